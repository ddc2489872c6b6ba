"""Statistics of repeated timings."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """runs, and in the unit of the samples: mean, median, std, err, best, worst.

    std is the sample standard deviation (n - 1); err is that of the mean. Both are 0 at one run,
    where nothing is known of the spread.
    """

    runs: int
    mean: float
    median: float
    std: float
    err: float
    best: float
    worst: float


def summarise(samples: Sequence[float]) -> Stats:
    """Statistics of at least one sample. Raises ValueError for none."""
    if not samples:
        raise ValueError("statistics need at least one timed call")
    runs = len(samples)
    std = statistics.stdev(samples) if runs > 1 else 0.0
    return Stats(
        runs=runs,
        mean=statistics.fmean(samples),
        median=statistics.median(samples),
        std=std,
        err=std / math.sqrt(runs),
        best=min(samples),
        worst=max(samples),
    )


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of positive values; None of no value or where one is not positive."""
    if not values or min(values) <= 0:
        return None
    return statistics.geometric_mean(values)
