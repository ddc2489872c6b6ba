"""Statistics of timings, at their edges too."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvfp4.cli.verdict import BenchmarkResult, Submission, Verdict
from stats import geometric_mean, summarise

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


@given(st.lists(times, min_size=1, max_size=20))
def test_the_geometric_mean_lies_between_best_and_worst(values: list[float]) -> None:
    mean = geometric_mean(values)
    assert mean is not None
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)


def test_the_geometric_mean_of_the_contest_s_speeds_of_light() -> None:
    assert geometric_mean([8.622, 17.275, 4.317]) == pytest.approx(8.63, abs=0.005)


@pytest.mark.parametrize("values", [[], [0.0, 5.0], [-1.0]])
def test_there_is_no_geometric_mean_of_nothing_or_of_zero(values: list[float]) -> None:
    assert geometric_mean(values) is None


@given(st.lists(times, min_size=1, max_size=5))
def test_the_command_s_score_is_the_same_geometric_mean(means: list[float]) -> None:
    verdict = Verdict(Submission("submission.py", ""))
    verdict.benchmarks = [
        BenchmarkResult("m: 1; k: 64; l: 1; seed: 1", "pass", timed=True, mean_us=mean)
        for mean in means
    ]
    expected = geometric_mean(means)
    assert expected is not None
    assert verdict.score.geomean_us == pytest.approx(expected)
