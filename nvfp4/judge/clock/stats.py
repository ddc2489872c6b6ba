"""Statistics of timings."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """std: the sample standard deviation (n - 1); err: that of the mean; both are 0 at one run."""

    runs: int
    mean: float
    median: float
    std: float
    err: float
    best: float
    worst: float


def summarise(samples: Sequence[float]) -> Stats:
    """Raises ValueError without samples."""
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
