"""What the judge refuses to believe of the times a submission's process sends."""

from __future__ import annotations

import math
import time

import pytest
import torch

import clock
from cases import parse_case
from clock import (
    Batch,
    CallTimes,
    floor_tolerance,
    read_times,
    refuse_impossible,
    refuse_long_batch,
    refuse_slow_clock,
    refuse_unfinished,
)
from device import DeviceLimits
from stats import Stats, summarise
from submission_process import SubmissionFailed

limits = DeviceLimits(read_gbps=1000.0, empty_ns=2000.0, settle_ns=10_000.0)


def steady(mean_ns: float) -> Stats:
    return summarise([mean_ns] * 3)


def test_a_mean_under_the_floor_is_refused() -> None:
    floor_ns = limits.floor_ns(8_000_000)
    refuse_impossible(steady(floor_ns), floor_ns)
    refuse_impossible(steady(floor_ns * floor_tolerance), floor_ns)
    with pytest.raises(SubmissionFailed, match=r"mean of 5\.000 us is below the physical floor"):
        refuse_impossible(steady(5000.0), floor_ns)


@pytest.mark.parametrize(
    ("late_ns", "believed"), [(10_000.0, True), (40_000.0, True), (400_000.0, False)]
)
def test_work_that_outlasts_the_call_is_refused(late_ns: float, believed: bool) -> None:
    mean_ns = 20_000.0
    times = [CallTimes(mean_ns, mean_ns + late_ns, 1e6)] * 5
    if believed:
        refuse_unfinished(steady(mean_ns), times, limits)
    else:
        with pytest.raises(SubmissionFailed, match="work on another stream is not joined"):
            refuse_unfinished(steady(mean_ns), times, limits)


def test_one_late_call_of_many_is_no_unfinished_work() -> None:
    times = [CallTimes(2e4, 3e4, 1e6)] * 4 + [CallTimes(2e4, 9e6, 1e7)]
    refuse_unfinished(steady(2e4), times, limits)


@pytest.mark.parametrize(("wall_ns", "believed"), [(101e6, True), (114e6, True), (200e6, False)])
def test_calls_that_took_longer_than_reported_are_refused(wall_ns: float, believed: bool) -> None:
    times = [CallTimes(1e8, 1e8, wall_ns)] * 5
    if believed:
        refuse_slow_clock(steady(1e8), times)
    else:
        with pytest.raises(SubmissionFailed, match="by the judge's clock and 100000"):
            refuse_slow_clock(steady(1e8), times)


def test_a_batch_that_took_longer_than_reported_is_refused() -> None:
    refuse_long_batch(steady(26e3), Batch(call_ns=40e3, host_bound=False))
    refuse_long_batch(steady(26e3), Batch(call_ns=20e3, host_bound=False))
    with pytest.raises(SubmissionFailed, match="do not agree"):
        refuse_long_batch(steady(26e3), Batch(call_ns=80e3, host_bound=False))


def test_a_host_may_need_as_long_as_the_flush_hides_and_no_longer() -> None:
    refuse_long_batch(steady(26e3), Batch(call_ns=90e3, host_bound=True))
    with pytest.raises(SubmissionFailed, match="do not agree"):
        refuse_long_batch(steady(26e3), Batch(call_ns=2e6, host_bound=True))


class OpenedCaseWithoutWorker:
    """Takes part in a batch as an OpenedCase does; the device takes 6 ms."""

    case = parse_case("m: 128; k: 64; l: 1; seed: 1")

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.filled: list[object] = []
        self.checked: list[object] = []

    def fill(self, buffers: object, data: object) -> None:
        self.filled.append(data)

    def check(self, buffers: object, data: object) -> None:
        self.checked.append(data)

    def ask(self, op: str, **fields: object) -> dict:
        self.asked.append(op)
        if op == "batch_open":
            assert len(fields["sets"]) == 3  # type: ignore[arg-type]
        if op == "batch_wait":
            time.sleep(0.006)
        return {}


def test_a_batch_is_clocked_behind_the_busy_device_and_every_output_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "_busy_ns", lambda device: 3e6)
    opened = OpenedCaseWithoutWorker()
    batch = clock.time_batch(opened, [1, 2, 3], torch.device("cpu"))  # type: ignore[arg-type]
    assert opened.asked == ["batch_open", "batch_call", "batch_wait", "batch_hand_over"]
    assert len(opened.filled) == 3
    assert all(one is other for one, other in zip(opened.filled, opened.checked, strict=True))
    assert 1e6 <= batch.call_ns < 50e6
    assert not batch.host_bound


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "sent no times"),
        ({"call_ns": "5", "settled_ns": 6.0}, "sent no times"),
        ({"call_ns": True, "settled_ns": True}, "sent no times"),
        ({"call_ns": 0.0, "settled_ns": 1.0}, "impossible times"),
        ({"call_ns": -1.0, "settled_ns": 1.0}, "impossible times"),
        ({"call_ns": 2.0, "settled_ns": 1.0}, "impossible times"),
        ({"call_ns": math.nan, "settled_ns": math.nan}, "impossible times"),
        ({"call_ns": 1.0, "settled_ns": math.inf}, "impossible times"),
    ],
)
def test_times_that_cannot_be_are_refused(answer: dict[str, object], why: str) -> None:
    with pytest.raises(SubmissionFailed, match=why):
        read_times(answer, 5.0)


def test_times_that_can_be_are_read() -> None:
    assert read_times({"call_ns": 1.5, "settled_ns": 2.5}, 5.0) == CallTimes(1.5, 2.5, 5.0)
