"""Which of two submissions is faster, by what both took in each of several rounds, and when there
are rounds enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

confidence = 0.9
"""Of an interval: at each of its two ends one in twenty lies beyond."""

least_rounds = 3

_resamples = 4999
_batch = 500
"""Resamples at once: thousands of rounds must not need gigabytes."""

_seed = 0
"""Equal times get equal intervals."""

Word = Literal["faster", "slower", "same", "unclear"]

Times = Sequence[Sequence[float]]
"""[rounds][shapes], microseconds."""


@dataclass(frozen=True)
class Change:
    """The natural logarithm of a time over the baseline's, and the ends of its interval. Swapping
    the two changes no more than signs.
    """

    log: float
    log_low: float
    log_high: float

    @property
    def shares(self) -> tuple[float, float, float]:
        """Estimate, low and high as shares of the baseline's time: 0.01 is 1 % longer."""
        return math.expm1(self.log), math.expm1(self.log_low), math.expm1(self.log_high)


@dataclass(frozen=True)
class Judged:
    """Of one shape, or of the geometric mean over all. Times in microseconds: geometric means
    over the rounds.
    """

    baseline_us: float
    file_us: float
    change: Change
    word: Word


@dataclass(frozen=True)
class Comparison:
    """Of one file with the baseline. shapes: in the order of the times. total: of the geometric
    mean, which submissions are ranked by.
    """

    shapes: list[Judged]
    total: Judged


def compared(baseline: Times, file: Times, threshold: float) -> Comparison:
    """Compares what both took in the same rounds, three at least. threshold: a share, such as
    0.005. What slows a whole round down cancels, as only differences within rounds count.
    """
    logs = [[[math.log(us) for us in row] for row in times] for times in (baseline, file)]
    total = [[[math.fsum(row) / len(row)] for row in times] for times in logs]
    shapes = range(len(baseline[0]))
    return Comparison(
        [_judged(logs[0], logs[1], shape, threshold) for shape in shapes],
        _judged(total[0], total[1], 0, threshold),
    )


def _judged(baseline: Times, file: Times, column: int, threshold: float) -> Judged:
    """Of one column of logarithms of times."""
    ones, others = ([row[column] for row in times] for times in (baseline, file))
    change = change_of([other - one for one, other in zip(ones, others, strict=True)])
    baseline_us, file_us = (math.exp(math.fsum(logs) / len(logs)) for logs in (ones, others))
    return Judged(baseline_us, file_us, change, word_of(change, threshold))


def change_of(log_ratios: Sequence[float]) -> Change:
    """The mean of what the rounds say, with a bootstrap interval: scipy's percentile interval,
    made wider as Student's t is wider than the normal distribution.

    Of few rounds the percentile interval alone is far too narrow (T. Hesterberg, What Teachers
    Should Know About the Bootstrap, 2015): of three it cannot reach beyond the extremes.
    """
    from scipy.stats import bootstrap, norm, t  # type: ignore[import-untyped]

    count, mean = len(log_ratios), math.fsum(log_ratios) / len(log_ratios)
    found = bootstrap(
        (log_ratios,),
        lambda sample, axis: sample.mean(axis),
        n_resamples=_resamples,
        batch=_batch,
        confidence_level=confidence,
        method="percentile",
        random_state=_seed,
    ).confidence_interval
    tail = (1 + confidence) / 2
    wider = t.ppf(tail, count - 1) / norm.ppf(tail) * math.sqrt(count / (count - 1))
    low, high = (mean + wider * (float(end) - mean) for end in found)
    return Change(mean, min(low, mean), max(high, mean))


def word_of(change: Change, threshold: float) -> Word:
    """same: the whole interval lies within the threshold. faster, slower: the whole interval lies
    on one side of zero and the estimate beyond the threshold. unclear: neither.
    """
    limit = math.log1p(threshold)
    if -limit <= change.log_low and change.log_high <= limit:
        return "same"
    if change.log_low > 0 and change.log > limit:
        return "slower"
    if change.log_high < 0 and change.log < -limit:
        return "faster"
    return "unclear"


def in_all(words: Sequence[Word]) -> Word:
    """The word for several files against one baseline: slower if one is, else unclear if one is,
    else faster if all are, else same.
    """
    for word in ("slower", "unclear", "same"):
        if word in words:
            return word
    return "faster"


_spare = 1.1
"""The longest wave may not be the last to be the longest."""

End = Literal["clear", "limit", "rounds", "interrupted"]


@dataclass(frozen=True)
class Round:
    """What one process of each file took. times_us: [files][shapes]. wave: the rounds whose
    processes were alive side by side have the same number, from 1.
    """

    wave: int
    times_us: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Limits:
    """rounds: exactly so many. Where that is None, waves are added until the verdict is clear, or
    one more would pass deadline_s, on the clock; three rounds there are in any case.
    """

    deadline_s: float
    rounds: int | None = None


def comparisons_of(rounds: Sequence[Round], threshold: float) -> list[Comparison]:
    """Every file but the first with the first. threshold: a share."""
    files = range(len(rounds[0].times_us))
    times = [[each.times_us[file] for each in rounds] for file in files]
    return [compared(times[0], file, threshold) for file in times[1:]]


def mean_times_us(rounds: Sequence[Round]) -> list[float]:
    """The geometric mean of each file over shapes and rounds."""
    files = range(len(rounds[0].times_us))
    return [geometric_mean([us for each in rounds for us in each.times_us[file]]) for file in files]


def is_settled(rounds: Sequence[Round], threshold: float) -> bool:
    """Whether the verdict of each file is clear, and was the same before the last wave: who looks
    after every wave and stops at the first clear verdict stops at flukes.
    """
    before = [each for each in rounds if each.wave < rounds[-1].wave]
    if len(before) < least_rounds:
        return False
    words = _words(rounds, threshold)
    return "unclear" not in words and words == _words(before, threshold)


def _words(rounds: Sequence[Round], threshold: float) -> list[Word]:
    return [each.total.word for each in comparisons_of(rounds, threshold)]


class Waves:
    """Takes wave after wave and says when it is enough. end: why; None while more are wanted."""

    def __init__(
        self,
        limits: Limits,
        threshold: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rounds: list[Round] = []
        self.end: End | None = None
        self._limits, self._threshold, self._clock = limits, threshold, clock
        self._longest_s = 0.0
        self._since_s = clock()

    def add(self, wave: Sequence[Sequence[Sequence[float]]]) -> list[Round]:
        """Notes the times of a wave, microseconds [rounds][files][shapes], and may set ``end``."""
        number = self.rounds[-1].wave + 1 if self.rounds else 1
        added = [Round(number, tuple(tuple(times) for times in each)) for each in wave]
        self.rounds += added
        now_s = self._clock()
        self._longest_s = max(self._longest_s, now_s - self._since_s)
        self._since_s = now_s
        self.end = self._end(now_s + _spare * self._longest_s)
        return added

    def cut_short(self, end: End) -> bool:
        """Whether what is there is enough for a verdict."""
        self.end = end
        return len(self.rounds) >= least_rounds

    def _end(self, next_end_s: float) -> End | None:
        """next_end_s: when another wave would end."""
        if self._limits.rounds is not None:
            return "rounds" if len(self.rounds) >= self._limits.rounds else None
        if len(self.rounds) < least_rounds:
            return None
        if is_settled(self.rounds, self._threshold):
            return "clear"
        return "limit" if next_end_s > self._limits.deadline_s else None
