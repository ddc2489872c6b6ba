"""What the judge refuses to believe of the times a submission's process sends."""

import math
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvfp4.cli.verdict import BenchmarkResult, Submission, Verdict
from nvfp4.gpu.timing import CallTime
from nvfp4.judge.clock.calibration import DeviceLimits
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
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.messages import Called

limits = DeviceLimits(read_gbps=1000.0, empty_ns=2000.0, settle_ns=10_000.0)


def steady(mean_ns: float) -> Stats:
    return summarise([mean_ns] * 3)


def test_a_mean_under_the_floor_is_refused() -> None:
    floor_ns = limits.floor_ns(8_000_000)
    refuse_impossible(steady(floor_ns), floor_ns)
    refuse_impossible(steady(floor_ns * floor_tolerance), floor_ns)
    with pytest.raises(SubmissionFailed, match=r"mean of 5\.000 us is below the physical floor"):
        refuse_impossible(steady(5000.0), floor_ns)


def test_a_short_read_may_be_faster_than_by_the_bandwidth_of_a_long_one() -> None:
    h100 = DeviceLimits(read_gbps=2991.0, empty_ns=3200.0, settle_ns=10_000.0)
    seen_ns, nbytes = 44_500.0, 132_200_000
    assert seen_ns < h100.floor_ns(nbytes)
    refuse_impossible(steady(seen_ns), h100.floor_ns(nbytes))


def refusal(check: Callable[..., None], *arguments: object) -> str:
    """What a check raises, or nothing."""
    try:
        check(*arguments)
    except SubmissionFailed as failed:
        return str(failed)
    return ""


@pytest.mark.parametrize(
    ("late_ns", "believed"),
    [
        ([10_000.0] * 5, True),
        ([40_000.0] * 5, True),
        ([400_000.0] * 5, False),
        ([10_000.0] * 4 + [9e6], True),  # one call of many
    ],
)
def test_work_that_outlasts_the_call_is_refused(late_ns: list[float], believed: bool) -> None:
    times = [CallTime(2e4, 2e4 + late, wall_ns=1e6) for late in late_ns]
    said = refusal(refuse_unfinished, steady(2e4), times, limits)
    assert ("work on another stream is not joined" in said) is not believed


@pytest.mark.parametrize(("wall_ns", "believed"), [(101e6, True), (114e6, True), (200e6, False)])
def test_calls_that_took_longer_than_reported_are_refused(wall_ns: float, believed: bool) -> None:
    times = [CallTime(1e8, 1e8, wall_ns=wall_ns)] * 5
    said = refusal(refuse_slow_clock, steady(1e8), times)
    assert ("by the judge's clock and 100000" in said) is not believed


@pytest.mark.parametrize("wall_ns", [12.1e6, 50e6])
def test_a_busy_cpu_may_delay_answers_in_every_attempt_but_not_without_limit(
    wall_ns: float,
) -> None:
    times = [CallTime(5.9e6, 5.9e6, wall_ns=wall_ns)] * 3
    with pytest.raises(SubmissionFailed, match="by the judge's clock"):
        refuse_slow_clock(steady(5.9e6), times)
    refuse_slow_clock(steady(5.9e6), times, patience=9)
    with pytest.raises(SubmissionFailed, match="by the judge's clock"):
        refuse_slow_clock(steady(5.9e6), [CallTime(5.9e6, 5.9e6, wall_ns=60e6)] * 3, patience=9)


def test_two_of_five_calls_cannot_be_free() -> None:
    times = [CallTime(1e8, 1e8, wall_ns=wall_ns) for wall_ns in (1e8, 1e8, 1e8, 2e8, 2e8)]
    with pytest.raises(SubmissionFailed, match="by the judge's clock"):
        refuse_slow_clock(steady(1e8), times)


def test_the_first_estimate_that_agrees_is_believed() -> None:
    good, long = Estimate(call_ns=30e3, error_ns=10e3), Estimate(call_ns=60e3, error_ns=10e3)
    assert first_consistent_estimate(steady(26e3), iter([good, long])) == good
    assert first_consistent_estimate(steady(26e3), iter([long, good])) == good
    assert first_consistent_estimate(steady(26e3), iter([])) is None


def test_without_an_estimate_that_agrees_the_last_one_is_refused() -> None:
    first, last = Estimate(call_ns=60e3, error_ns=10e3), Estimate(call_ns=50e3, error_ns=15e3)
    assert first_consistent_estimate(steady(26e3), iter([first, last])) == last
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


def test_the_spread_of_one_run_is_zero() -> None:
    stats = summarise([5.0])
    assert (stats.runs, stats.std, stats.err) == (1, 0.0, 0.0)
    assert stats.mean == stats.median == stats.best == stats.worst == 5.0


def test_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        summarise([])


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


def test_the_score_of_the_contest_s_speeds_of_light() -> None:
    assert score_us([8.622, 17.275, 4.317]) == pytest.approx(8.63, abs=0.005)


@pytest.mark.parametrize("means", [[], [0.0, 5.0]])
def test_there_is_no_score_of_nothing_or_of_zero(means: list[float]) -> None:
    assert score_us(means) is None
