"""Statistics of timings, at their edges too."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvfp4.cli.verdict import BenchmarkResult, Submission, Verdict
from nvfp4.judge.clock.timing_checks import summarise

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
