"""A kernel that is worse in one way is predicted to be slower, for that reason."""

from functools import cache

import pytest
from model_kernels import MISSING, predicted
from twins import TWINS

from nvfp4.model.prediction import GPUS, Prediction

pytestmark = pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")


@cache
def twins(name: str) -> tuple[Prediction, Prediction]:
    """The times of a good kernel and of one that is worse."""
    good, bad = (predicted(each.text, each.grid, each.block) for each in TWINS[name])
    return good, bad


def worse_by(good: Prediction, bad: Prediction) -> str:
    """The part of the time that grows most."""
    return max(bad.parts, key=lambda name: bad.parts[name] - good.parts.get(name, 0.0))


def test_lanes_that_read_far_from_each_other_wait_for_memory_or_l1() -> None:
    good, bad = twins("uncoalesced")
    assert bad.us > 1.5 * good.us
    assert worse_by(good, bad) in ("memory_latency", "memory_bandwidth", "l1", "l2")


def test_registers_that_are_spilled_cost_loads_and_stores() -> None:
    good, bad = twins("spilling")
    assert good.kernels[0].spilled_bytes == 0
    assert bad.kernels[0].spilled_bytes > 0
    assert worse_by(good, bad) == "l1"


def test_what_is_spilled_is_written_through_to_l2() -> None:
    good, bad = twins("spilling")
    assert bad.us > 7 * good.us  # if L1 kept it: less than 5


def test_the_interval_is_that_of_measured_over_predicted_times() -> None:
    _, bad = twins("few CTAs")
    assert bad.low_us == pytest.approx(bad.us * GPUS["B200"].low)
    assert bad.high_us == pytest.approx(bad.us * GPUS["B200"].high)


def test_few_thread_blocks_leave_multiprocessors_without_work() -> None:
    good, bad = twins("few CTAs")
    assert bad.us > 2 * good.us
    assert "on 16 of 148 SMs" in bad.bound
    assert "SMs" not in good.bound


def test_one_load_in_flight_waits_for_memory_as_often_as_it_loads() -> None:
    good, bad = twins("one load in flight")
    assert bad.us > 2 * good.us
    assert worse_by(good, bad) == "memory_latency"
    assert bad.bound.startswith("bytes in flight")


def test_lanes_that_hit_one_bank_take_turns() -> None:
    good, bad = twins("bank conflicts")
    assert bad.us > 3 * good.us
    assert worse_by(good, bad) == "shared"


def test_a_warp_whose_threads_part_goes_both_ways() -> None:
    good, bad = twins("divergent")
    assert bad.us > 1.3 * good.us
    assert worse_by(good, bad) in ("issue", "pipe", "latency")
    assert bad.kernels[0].instructions > 1.7 * good.kernels[0].instructions
