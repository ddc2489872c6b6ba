"""A search for the fastest of many candidates by interleaved timings, with early pruning.

Knows nothing of kernels or GPUs: a candidate is a key, and timing one is a function.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Estimate:
    """A candidate's mean, and its median with the ends of its 95 % confidence interval, in
    microseconds. Contenders are told apart by the median: a stray call hardly moves it.
    """

    candidate: str
    mean_us: float
    median_us: float
    low_us: float
    high_us: float
    calls: int


def median_interval(samples: Iterable[float]) -> tuple[float, float]:
    """The order statistics that hold the median with 95 % confidence; no shape of the distribution
    is assumed. All samples where there are fewer than six.

    The ranks are n/2 -+ 1.96 sqrt(n)/2, the normal approximation of the binomial distribution of
    how many of n samples lie below the median.
    """
    ordered = sorted(samples)
    n = len(ordered)
    if n < 6:
        return ordered[0], ordered[-1]
    half_width = 0.98 * math.sqrt(n)
    low = max(0, math.floor(n / 2 - half_width))
    high = min(n - 1, math.ceil(n / 2 + half_width) - 1)
    return ordered[low], ordered[high]


@dataclass
class Search:
    """Times candidates in turns and drops those that are surely slower than the best.

    time_us: one timed call of a candidate. calls: how many a survivor gets. first_calls: how many
    everyone gets before the first pruning, which drops what is slower than the best median times
    `hopeless`. times: earlier timings by candidate; the search goes on from there.
    """

    time_us: Callable[[str], float]
    calls: int = 50
    first_calls: int = 3
    hopeless: float = 1.3
    times: dict[str, list[float]] = field(default_factory=dict)

    def estimate(self, candidate: str) -> Estimate:
        samples = self.times[candidate]
        low, high = median_interval(samples)
        mean, median = statistics.fmean(samples), statistics.median(samples)
        return Estimate(candidate, mean, median, low, high, len(samples))

    def ranking(self) -> list[Estimate]:
        """Every candidate timed so far, the fastest first."""
        timed = [self.estimate(candidate) for candidate in self.times if self.times[candidate]]
        return sorted(timed, key=lambda estimate: estimate.median_us)

    def contenders(self, candidates: Iterable[str]) -> list[str]:
        """Those that may still be the fastest."""
        estimates = [self.estimate(candidate) for candidate in candidates]
        best = min(estimates, key=lambda estimate: estimate.median_us)
        few = best.calls < 6
        limit = self.hopeless * best.median_us if few else best.high_us
        return [e.candidate for e in estimates if (e.median_us if few else e.low_us) <= limit]

    def run(
        self,
        candidates: Iterable[str],
        progress: Callable[[int, list[str], Mapping[str, list[float]]], None] | None = None,
    ) -> list[Estimate]:
        """The ranking, once every contender has its calls or one is left.

        progress is called after each round with the calls a contender has had, the contenders and
        all times, for display and for saving. Raises ValueError without candidates.
        """
        alive = list(dict.fromkeys(candidates))
        if not alive:
            raise ValueError("nothing to search: the space has no candidate")
        target = self.first_calls
        while True:
            for candidate in alive:
                self.times.setdefault(candidate, [])
            while short := [c for c in alive if len(self.times[c]) < target]:
                for candidate in short:
                    self.times[candidate].append(self.time_us(candidate))
            alive = self.contenders(alive)
            if progress:
                progress(target, alive, self.times)
            if target >= self.calls or len(alive) == 1:
                return self.ranking()
            target = min(self.calls, 2 * target)
