"""A kernel that is worse in one way is predicted to be slower, for that reason."""

from functools import cache

import pytest
from model_kernels import MISSING, predicted
from twins import TWINS

from nvfp4.model.prediction import Prediction

pytestmark = pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")


@cache
def twins(name: str) -> tuple[Prediction, Prediction]:
    """The times of a good kernel and of one that is worse."""
    good, bad = (predicted(each.text, each.grid, each.block) for each in TWINS[name])
    return good, bad


WORSE: dict[str, tuple[float, tuple[str, ...]]] = {
    "uncoalesced": (1.5, ("memory_latency", "memory_bandwidth", "l1", "l2")),
    "spilling": (7, ("l1",)),  # written through to L2: if L1 kept it, less than 5
    "few CTAs": (2, ("pipe", "latency", "issue")),
    "one load in flight": (2, ("memory_latency",)),
    "sums over warps": (1.5, ("pipe", "latency")),
    "64 bits": (1.7, ("issue", "pipe", "latency")),
    "long loops of lanes": (3, ("latency", "pipe")),
    "a long chain": (1.4, ("latency", "pipe")),
    "bank conflicts": (3, ("shared",)),
    "divergent": (1.3, ("issue", "pipe", "latency")),
}
"""By what is worse: how many times as long it takes at least, and the parts that may grow most."""


@pytest.mark.parametrize("name", TWINS)
def test_the_worse_kernel_takes_longer_for_its_reason(name: str) -> None:
    good, bad = twins(name)
    factor, reasons = WORSE[name]
    assert bad.us > factor * good.us
    grows_most = max(bad.parts, key=lambda part: bad.parts[part] - good.parts.get(part, 0.0))
    assert grows_most in reasons


def test_a_kernel_says_what_it_spills_executes_and_leaves_idle() -> None:
    assert [each.kernels[0].spilled_bytes > 0 for each in twins("spilling")] == [False, True]
    good, bad = twins("few CTAs")
    assert "on 16 of 148 SMs" in bad.bound
    assert "SMs" not in good.bound
    assert twins("one load in flight")[1].bound.startswith("bytes in flight")
    good, bad = twins("divergent")
    assert bad.kernels[0].instructions > 1.7 * good.kernels[0].instructions
