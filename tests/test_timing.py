"""Timers, the limits of a device, and what the judge refuses to believe."""

from __future__ import annotations

import math
import time

import pytest
import torch

from device import DeviceLimits, device_facts, measure_limits
from judge import (
    _refuse_impossible,
    _refuse_unfinished,
    _times_of,
    floor_tolerance,
    schedules,
)
from reference import default_device
from stats import Stats, summarise
from submission_process import SubmissionFailed
from timing import CpuTimer, CudaTimer, call_timer

limits = DeviceLimits(read_gbps=1000.0, empty_ns=2000.0, settle_ns=10_000.0)


def steady(mean_ns: float) -> Stats:
    return summarise([mean_ns] * 3)


def test_a_call_on_the_cpu_is_timed_and_its_result_handed_on() -> None:
    def call() -> str:
        time.sleep(0.02)
        return "result"

    result, elapsed = CpuTimer().time(call)
    assert result == "result"
    assert 20e6 <= elapsed.call_ns < 2e9
    assert elapsed.settled_ns == elapsed.call_ns


def test_a_patched_clock_does_not_move_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = CpuTimer()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    _, elapsed = timer.time(lambda: time.sleep(0.002))
    assert elapsed.call_ns >= 2e6


def test_an_error_of_the_call_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        CpuTimer().time(lambda: 1 // 0)


def test_a_floor_is_the_bytes_over_the_bandwidth_and_an_empty_call() -> None:
    assert limits.floor_ns(500_000) == pytest.approx(500 + 2000)
    assert limits.floor_ns(0) == 2000


def test_the_limits_of_this_device_are_believable() -> None:
    measured = measure_limits(default_device())
    assert 0.5 < measured.read_gbps < 20_000
    assert 0 <= measured.empty_ns < 1e6
    assert measured.settle_ns >= 0


def test_the_facts_name_this_device_and_its_torch() -> None:
    facts = device_facts(default_device())
    assert facts.kind == default_device().type
    assert facts.name
    assert facts.torch == torch.__version__
    assert (facts.capability is None) is (facts.kind == "cpu")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_schedule_warms_up_and_repeats(kind: str) -> None:
    assert schedules[kind].warm_up_calls >= 1
    assert schedules[kind].timed_calls >= 2


def test_a_mean_under_the_floor_is_refused() -> None:
    floor_ns = limits.floor_ns(8_000_000)
    _refuse_impossible(steady(floor_ns), floor_ns)
    _refuse_impossible(steady(floor_ns * floor_tolerance), floor_ns)
    with pytest.raises(SubmissionFailed, match=r"mean of 5\.000 us is below the physical floor"):
        _refuse_impossible(steady(5000.0), floor_ns)


@pytest.mark.parametrize(
    ("late_ns", "believed"), [(10_000.0, True), (40_000.0, True), (400_000.0, False)]
)
def test_work_that_outlasts_the_call_is_refused(late_ns: float, believed: bool) -> None:
    mean_ns = 20_000.0
    elapsed = [(mean_ns, mean_ns + late_ns)] * 5
    if believed:
        _refuse_unfinished(steady(mean_ns), elapsed, limits)
    else:
        with pytest.raises(SubmissionFailed, match="work on another stream is not joined"):
            _refuse_unfinished(steady(mean_ns), elapsed, limits)


def test_one_late_call_of_many_is_no_unfinished_work() -> None:
    elapsed = [(20_000.0, 30_000.0)] * 4 + [(20_000.0, 9e6)]
    _refuse_unfinished(steady(20_000.0), elapsed, limits)


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
        _times_of(answer)


def test_times_that_can_be_are_read() -> None:
    assert _times_of({"call_ns": 1.5, "settled_ns": 2.5}) == (1.5, 2.5)


@pytest.mark.gpu
def test_events_time_the_kernel_and_not_the_flush() -> None:
    device = torch.device("cuda", 0)
    timer = call_timer(device)
    assert isinstance(timer, CudaTimer)
    small = torch.zeros(1024, device=device)
    for _ in range(5):
        timer.time(small.sum)
    best_ns = min(timer.time(small.sum)[1].call_ns for _ in range(20))
    flush = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush[0].record()
    timer.flush()
    flush[1].record()
    torch.cuda.synchronize()
    assert best_ns < flush[0].elapsed_time(flush[1]) * 1e6 / 2


@pytest.mark.gpu
def test_a_timed_call_finds_a_cold_cache() -> None:
    device = torch.device("cuda", 0)
    timer = call_timer(device)
    in_cache = torch.randn(4 << 20, device=device)  # 16 MiB, less than the L2 of any judged GPU
    for _ in range(5):
        timer.time(in_cache.sum)
    cold_ns = min(timer.time(in_cache.sum)[1].call_ns for _ in range(20))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    warm_ns = math.inf
    for _ in range(20):
        torch.cuda._sleep(1_000_000)  # covers the host's launch, as the flush does
        in_cache.sum()
        start.record()
        in_cache.sum()
        end.record()
        torch.cuda.synchronize()
        warm_ns = min(warm_ns, start.elapsed_time(end) * 1e6)
    assert cold_ns > 1.1 * warm_ns


@pytest.mark.gpu
def test_work_on_another_stream_shows_after_the_second_event() -> None:
    device = torch.device("cuda", 0)
    timer = call_timer(device)
    other = torch.cuda.Stream(device)

    def elsewhere() -> None:
        with torch.cuda.stream(other):
            torch.cuda._sleep(50_000_000)

    timer.time(elsewhere)
    _, elapsed = timer.time(elsewhere)
    assert elapsed.settled_ns - elapsed.call_ns > 5e6
