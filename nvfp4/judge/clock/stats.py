"""Statistics of timings."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from nvfp4.judge.opened_case import OpenedCase


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


_room_bytes = 20 << 10
"""In the result pipe, which loses what does not fit: statistics matter more."""


class TimedCalls:
    """Adds the times of the case in progress to its report, while there is room."""

    def __init__(self) -> None:
        self._opened: OpenedCase | None = None
        self._left_bytes = _room_bytes

    def of(self, opened: OpenedCase) -> None:
        """The case that the next report is about."""
        self._opened = opened

    def add_to(self, report: dict[str, str]) -> None:
        """Adds nanoseconds as `samples`, in the order of the calls."""
        opened, self._opened = self._opened, None
        if opened is None or "mean" not in report:
            return
        text = ",".join(f"{each:.6g}" for each in opened.times_ns)
        self._left_bytes -= len(text)
        if self._left_bytes >= 0:
            report["samples"] = text
