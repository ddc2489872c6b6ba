"""The course of a comparison on a GPU: waves of rounds, until the verdict is clear."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from nvfp4.cli.compare.decision import Comparison, Word, compared, joint_mean, least_rounds

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
    return [joint_mean([us for each in rounds for us in each.times_us[file]]) for file in files]


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
