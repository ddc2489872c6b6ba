"""What the judge refuses to believe of the times a submission's process sends."""

import math
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recorded_verdicts import timed_verdict

from nvfp4.cli.judging.warnings import warnings_of
from nvfp4.cli.verdict import BenchmarkResult, Submission, Verdict
from nvfp4.gpu.timing import CallTime, CpuTimer, CudaTimer, call_timer, flushes
from nvfp4.judge.clock import calibration
from nvfp4.judge.clock.calibration import DeviceLimits, calibrate, measure_limits
from nvfp4.judge.clock.gated_clock import first_consistent_estimate
from nvfp4.judge.clock.timing_checks import (
    Estimate,
    Samples,
    Stats,
    floor_tolerance,
    most_left_out,
    read_time,
    refuse_impossible,
    refuse_longer,
    refuse_slow_clock,
    refuse_unfinished,
    summarise,
)
from nvfp4.judge.facts import device_facts
from nvfp4.judge.modes import schedules
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.problems.nvfp4_gemv.reference import default_device
from nvfp4.records.messages import Called
from nvfp4.records.options import Options

limits = DeviceLimits(read_gbps=1000.0, empty_ns=2000.0, settle_ns=10_000.0)


def steady(mean_ns: float) -> Stats:
    return summarise([mean_ns] * 3)


def late(*late_ns: float) -> list[CallTime]:
    """Calls of 20 us whose work goes on for so long."""
    return [CallTime(2e4, 2e4 + each, wall_ns=1e6) for each in late_ns]


def waited(call_ns: float, *wall_ns: float) -> list[CallTime]:
    """Calls that took so long by the judge's clock."""
    return [CallTime(call_ns, call_ns, wall_ns=each) for each in wall_ns]


h100 = DeviceLimits(read_gbps=2991.0, empty_ns=3200.0, settle_ns=10_000.0)
floor_ns = limits.floor_ns(8_000_000)
below, outlasts, slow = "below the physical floor", "work on another stream", "by the judge's clock"

TIMES: dict[str, tuple[Callable[..., None], tuple[Any, ...], str]] = {
    "the floor": (refuse_impossible, (steady(floor_ns), floor_ns), ""),
    "a little less": (refuse_impossible, (steady(floor_ns * floor_tolerance), floor_ns), ""),
    "half of it": (refuse_impossible, (steady(5000.0), floor_ns), f"5.000 us is {below}"),
    "a short read, which may be faster than by the bandwidth of a long one": (
        *(refuse_impossible, (steady(44_500.0), h100.floor_ns(132_200_000)), ""),
    ),
    "work of 10 us more": (refuse_unfinished, (steady(2e4), late(*[1e4] * 5), limits), ""),
    "work of 40 us more": (refuse_unfinished, (steady(2e4), late(*[4e4] * 5), limits), ""),
    "work of 400 us more": (refuse_unfinished, (steady(2e4), late(*[4e5] * 5), limits), outlasts),
    "one call of many": (refuse_unfinished, (steady(2e4), late(*[1e4] * 4, 9e6), limits), ""),
    "1 ms more": (refuse_slow_clock, (steady(1e8), waited(1e8, *[101e6] * 5)), ""),
    "14 ms more": (refuse_slow_clock, (steady(1e8), waited(1e8, *[114e6] * 5)), ""),
    "twice as long": (refuse_slow_clock, (steady(1e8), waited(1e8, *[2e8] * 5)), slow),
    "two of five calls": (
        *(refuse_slow_clock, (steady(1e8), waited(1e8, *[1e8] * 3, *[2e8] * 2)), slow),
    ),
    "a busy CPU": (refuse_slow_clock, (steady(5.9e6), waited(5.9e6, *[12.1e6] * 3)), slow),
    "a busy CPU in every attempt": (
        *(refuse_slow_clock, (steady(5.9e6), waited(5.9e6, *[50e6] * 3), 9), ""),
    ),
    "a limit to that": (
        *(refuse_slow_clock, (steady(5.9e6), waited(5.9e6, *[60e6] * 3), 9), slow),
    ),
}


@pytest.mark.parametrize("what", TIMES)
def test_times_are_believed_up_to_a_tolerance(what: str) -> None:
    check, arguments, why = TIMES[what]
    with pytest.raises(SubmissionFailed, match=why) if why else nullcontext():
        check(*arguments)


def test_the_first_estimate_that_agrees_is_believed_or_the_last_one_refused() -> None:
    good, long = Estimate(call_ns=30e3, error_ns=10e3), Estimate(call_ns=60e3, error_ns=10e3)
    assert first_consistent_estimate(steady(26e3), iter([good, long])) == good
    assert first_consistent_estimate(steady(26e3), iter([long, good])) == good
    assert first_consistent_estimate(steady(26e3), iter([])) is None
    last = Estimate(call_ns=50e3, error_ns=15e3)
    assert first_consistent_estimate(steady(26e3), iter([long, last])) == last
    with pytest.raises(SubmissionFailed, match=r"50\.0 us by the judge's clock and 26\.0 us"):
        refuse_longer(steady(26e3), last)


@pytest.mark.parametrize(
    ("call_ns", "settled_ns"),
    [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (math.nan, math.nan), (1.0, math.inf)],
)
def test_times_that_cannot_be_are_refused(call_ns: float, settled_ns: float) -> None:
    with pytest.raises(SubmissionFailed, match="impossible times"):
        read_time(Called(call_ns, settled_ns, False, {}, []), 5.0)


def sample(call_ns: float, late: bool = False) -> CallTime:
    return CallTime(call_ns, call_ns, late)


def test_calls_the_host_was_late_for_are_left_out() -> None:
    samples = Samples(wanted=3)
    for each in (sample(5.0), sample(900.0, late=True), sample(6.0), sample(7.0)):
        assert not samples.complete
        samples.add(each)
    assert samples.complete
    assert [each.call_ns for each in samples.times] == [5.0, 6.0, 7.0]


def test_a_host_that_is_always_late_is_judged_all_the_same() -> None:
    samples, calls = Samples(wanted=20), 0
    while not samples.complete:
        samples.add(sample(900.0, late=True))
        calls += 1
    assert calls == 20 + most_left_out
    assert len(samples.times) == 20


@pytest.mark.parametrize("late", [False, True])
def test_times_that_can_be_are_read(late: bool) -> None:
    assert read_time(Called(1.5, 2.5, late, {}, []), 5.0) == CallTime(1.5, 2.5, late, wall_ns=5.0)


# Statistics of timings, at their edges too.

times = st.floats(1, 1e9)


@given(st.lists(times, min_size=2, max_size=50))
def test_statistics_are_those_of_the_standard_library(samples: list[float]) -> None:
    stats = summarise(samples)
    assert stats.runs == len(samples)
    assert stats.mean == pytest.approx(statistics.fmean(samples))
    assert stats.median == statistics.median(samples)
    assert stats.std == pytest.approx(statistics.stdev(samples), abs=1e-6)
    assert stats.err == pytest.approx(stats.std / math.sqrt(len(samples)))
    assert (stats.best, stats.worst) == (min(samples), max(samples))


def test_the_spread_of_one_run_is_zero_and_no_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        summarise([])
    stats = summarise([5.0])
    assert (stats.runs, stats.std, stats.err) == (1, 0.0, 0.0)
    assert stats.mean == stats.median == stats.best == stats.worst == 5.0


def score_us(means: list[float]) -> float | None:
    """The command's score of benchmarks with these means."""
    verdict = Verdict(Submission("submission.py", ""))
    verdict.benchmarks = [
        BenchmarkResult("m: 1; k: 64; l: 1; seed: 1", "pass", timed=True, mean_us=mean)
        for mean in means
    ]
    return verdict.score.geomean_us


@given(st.lists(times, min_size=1, max_size=20))
def test_the_score_is_the_geometric_mean(means: list[float]) -> None:
    assert score_us(means) == pytest.approx(statistics.geometric_mean(means))


@pytest.mark.parametrize("means", [[], [0.0, 5.0]])
def test_there_is_no_score_of_nothing_or_of_zero(means: list[float]) -> None:
    assert score_us(means) is None


# Timers, the limits of a device, and what the judge refuses to believe.


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


def test_what_settling_takes_is_not_hidden_behind_the_flush(monkeypatch: Any) -> None:
    waits: list[torch.device] = []

    class BusyDevice(CpuTimer):
        def time(self, call: Callable[[], Any]) -> tuple[Any, CallTime]:
            waits.clear()
            return call(), CallTime(1e3, 91e3 if waits else 11e3)

    monkeypatch.setattr(calibration.timing, "call_timer", lambda device, flush: BusyDevice())
    monkeypatch.setattr(calibration.timing, "wait_until_idle", waits.append)
    assert measure_limits(torch.device("cpu"), read_gbps=1.0).settle_ns == 90e3


def test_the_facts_name_this_device_and_its_torch() -> None:
    facts = device_facts(default_device(), Options())
    assert facts["kind"] == default_device().type
    assert facts["name"]
    assert facts["torch"] == torch.__version__
    assert (facts["capability"] is None) is (facts["kind"] == "cpu")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_schedule_warms_up_and_repeats(kind: str) -> None:
    assert schedules[kind].warm_up_calls >= 1
    assert schedules[kind].timed_calls >= 2


def best_ns(timer: CudaTimer, call: Callable[[], object]) -> float:
    """The shortest of 20 calls after five to warm up."""
    return min([timer.time(call)[1].call_ns for _ in range(25)][5:])


@pytest.mark.gpu
@pytest.mark.parametrize("flush", sorted(flushes.keys() - {"none"}))
@pytest.mark.alone
def test_events_time_the_kernel_and_not_the_flush_which_leaves_the_cache_cold(flush: str) -> None:
    device = torch.device("cuda", 0)
    timer = call_timer(device, flushes[flush])
    assert isinstance(timer, CudaTimer)
    small_ns = best_ns(timer, torch.zeros(1024, device=device).sum)
    events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    events[0].record()
    timer.flush()
    events[1].record()
    torch.cuda.synchronize()
    assert small_ns < events[0].elapsed_time(events[1]) * 1e6 / 2
    in_cache = torch.randn(4 << 20, device=device)  # 16 MiB, less than the L2 of any judged GPU
    cold_ns = best_ns(timer, in_cache.sum)
    start, end = events
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
@pytest.mark.alone
def test_the_contest_s_flush_leaves_something_to_write_back() -> None:
    device, size = torch.device("cuda", 0), 64 << 20
    kinds = ("contest", "clean")
    contest, clean = (calibrate(device, name, [size], True).floors_ns[0] for name in kinds)
    assert 100 < contest - clean < 50e3


@pytest.mark.gpu
@pytest.mark.alone
def test_the_contest_s_flush_needs_a_quarter_of_free_memory_at_most() -> None:
    device = torch.device("cuda", 0)
    torch.cuda.empty_cache()
    free_bytes = torch.cuda.mem_get_info(device)[0]
    before = torch.cuda.memory_reserved(device)
    CudaTimer(device).flush()
    taken = torch.cuda.memory_reserved(device) - before
    assert taken <= min(4 << 30, free_bytes // 4) + (64 << 20)


@pytest.mark.gpu
@pytest.mark.alone
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


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize("batched_us", [None, 25.0])
def test_times_on_a_gpu_that_no_clock_of_the_judge_s_has_seen_are_marked(
    kind: str, batched_us: float | None
) -> None:
    verdict = timed_verdict()
    assert verdict.device
    verdict.device = replace(verdict.device, kind=kind)
    verdict.benchmarks = [replace(each, batched_us=batched_us) for each in verdict.benchmarks]
    marked = "own_times" in {each.code for each in warnings_of(verdict)}
    assert marked is (kind == "cuda" and batched_us is None)
