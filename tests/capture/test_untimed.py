"""A time that nobody has measured: a search may take it, and nobody gets to see a number."""

import math
from typing import Any

import pytest

from nvfp4.capture.untimed import Untimed
from nvfp4.records.launch_errors import NeedsGpu


@pytest.mark.parametrize("start", [math.inf, 1e9, 10**6])
def test_a_search_for_the_least_takes_the_first(start: float) -> None:
    best: Any = start
    chosen = None
    for name in ("first", "second"):
        time_us = Untimed()
        if time_us < best:
            best, chosen = time_us, name
    assert chosen == "first"


@pytest.mark.parametrize("start", [0, -1, -math.inf])
def test_a_search_for_the_most_takes_the_first(start: float) -> None:
    best: Any = start
    chosen = None
    for name in ("first", "second"):
        gbps = 66e6 / (Untimed() / 1e6) / 1e9
        if best < gbps:
            best, chosen = gbps, name
    assert chosen == "first"


def test_the_least_of_several_is_the_first() -> None:
    times: list[Any] = [Untimed(), math.inf, Untimed()]
    assert min(times) is times[0]
    assert min(range(3), key=times.__getitem__) == 0
    assert sorted(times)[-1] == math.inf
    timings: dict[str, Any] = {"a": [math.inf] * 3, "b": [Untimed()] * 3}
    assert min(timings, key=timings.__getitem__) == "b"


def test_what_is_computed_from_it_is_no_number_either() -> None:
    time = Untimed()
    mean = round((time + time) / 2 * 1000, 3)
    assert f"{mean:.2f} us, {mean!s}, {mean!r}" == "not timed us, not timed, not timed"


@pytest.mark.parametrize("use", [float, int, math.log, lambda t: t < 20.5, lambda t: t > 3])
def test_where_a_number_is_wanted_it_is_refused(use: object) -> None:
    with pytest.raises(NeedsGpu, match="no time can be measured"):
        use(Untimed())  # type: ignore[operator]
