"""The course of a comparison on a GPU: rounds in which each file is benchmarked once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nvfp4.cli.compare.decision import Comparison, Word, compared, joint_mean, least_rounds

End = Literal["clear", "limit", "rounds", "interrupted"]


@dataclass(frozen=True)
class Round:
    """order: the files by number, as they were timed. times_us: [files][shapes], by number."""

    order: tuple[int, ...]
    times_us: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Limits:
    """rounds: exactly so many. Where that is None, rounds are added until the verdict is clear, or
    one more would pass deadline_s, on the clock; three there are in any case.
    """

    deadline_s: float
    rounds: int | None = None


def comparisons_of(rounds: Sequence[Round], threshold: float) -> list[Comparison]:
    """Every file but the first with the first. threshold: a share."""
    times = [[each.times_us[file] for each in rounds] for file in range(len(rounds[0].order))]
    return [compared(times[0], file, threshold) for file in times[1:]]


def round_means_us(found: Round) -> list[float]:
    """The geometric mean of each file over the shapes."""
    return [joint_mean(times) for times in found.times_us]


def is_settled(rounds: Sequence[Round], threshold: float) -> bool:
    """Whether the verdict of each file is clear, and was the same before the last round: who looks
    after every round and stops at the first clear verdict stops at flukes.
    """
    if len(rounds) <= least_rounds:
        return False
    words = _words(rounds, threshold)
    return "unclear" not in words and words == _words(rounds[:-1], threshold)


def _words(rounds: Sequence[Round], threshold: float) -> list[Word]:
    return [each.total.word for each in comparisons_of(rounds, threshold)]


def orders(files: int, seed: int) -> Iterator[tuple[int, ...]]:
    """In which order each round takes the files: a random one, then the same backwards, so that
    what grows steadily over both rounds cancels.
    """
    draw = random.Random(seed)
    while True:
        order = tuple(draw.sample(range(files), files))
        yield order
        yield order[::-1]


def run_rounds(
    benchmark: Callable[[int], Sequence[float]],
    files: int,
    limits: Limits,
    seed: int,
    is_clear: Callable[[Sequence[Round]], bool],
    on_round: Callable[[int, Round], None] = lambda number, found: None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[Round], End]:
    """Every whole round, and why there are no more. benchmark: the mean times of a file, by its
    number; what it raises ends the rounds, but an interrupt leaves those that are whole, if they
    are enough for a verdict.
    """
    rounds: list[Round] = []
    longest_s = 0.0
    for order in orders(files, seed):
        began_s = clock()
        end = _end(rounds, limits, began_s + longest_s, is_clear)
        if end:
            return rounds, end
        try:
            times = {file: tuple(benchmark(file)) for file in order}
        except KeyboardInterrupt:
            if len(rounds) < least_rounds:
                raise
            return rounds, "interrupted"
        rounds.append(Round(order, tuple(times[file] for file in range(files))))
        longest_s = max(longest_s, clock() - began_s)
        on_round(len(rounds), rounds[-1])
    raise AssertionError("orders do not end")


def _end(
    rounds: Sequence[Round],
    limits: Limits,
    next_end_s: float,
    is_clear: Callable[[Sequence[Round]], bool],
) -> End | None:
    """Why to end after these rounds; None where there is to be another, which would end then."""
    if limits.rounds is not None:
        return "rounds" if len(rounds) >= limits.rounds else None
    if len(rounds) < least_rounds:
        return None
    if is_clear(rounds):
        return "clear"
    return "limit" if next_end_s > limits.deadline_s else None
