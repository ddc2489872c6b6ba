"""How often `nvfp4 compare` would say what is true, by the scatter between processes.

    python -m scripts.compare_simulated

Needs no GPU: the times are drawn. All shapes of a process deviate by the same factor, and so do
all processes of a wave, by another. Prints, for a copy and for a file that is 1 % slower, how
often each verdict came and after how many rounds. Takes a minute.
"""

from __future__ import annotations

import random
from collections import Counter
from math import exp
from statistics import fmean

from nvfp4.cli.compare.rounds import Limits, Waves, comparisons_of

threshold, comparisons, drift = 0.005, 200, 0.01
means_us = (25.1, 45.5, 14.7)


class Clock:
    """A wave takes a second."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def simulated(
    factor: float, scatter: float, at_once: int, waves: int
) -> tuple[Counter[str], float]:
    """The verdicts, and the mean number of rounds. factor: of the second file's time. scatter: of
    a process. at_once: rounds of a wave. waves: how many there may be.
    """
    words: Counter[str] = Counter()
    counts = []
    for seed in range(comparisons):
        draw = random.Random(seed)
        clock = Clock()
        course = Waves(Limits(float(waves)), threshold, clock)
        while course.end is None:
            clock.now_s += 1.0
            drifted = draw.gauss(0, drift)
            course.add(
                [
                    [_process(draw, each, drifted, scatter) for each in (1.0, factor)]
                    for _ in range(at_once)
                ]
            )
        words[comparisons_of(course.rounds, threshold)[0].total.word] += 1
        counts.append(len(course.rounds))
    return words, fmean(counts)


def _process(draw: random.Random, factor: float, drifted: float, scatter: float) -> list[float]:
    deviation = exp(drifted + draw.gauss(0, scatter))
    return [us * factor * deviation for us in means_us]


def main() -> None:
    """Prints a row for each case."""
    print("at once  waves at most  scatter  slower: verdicts, mean rounds")
    for at_once, waves in ((8, 3), (4, 3), (1, 4)):
        for scatter in (0.002, 0.004, 0.01):
            for factor in (1.0, 1.01):
                words, mean = simulated(factor, scatter, at_once, waves)
                said = ", ".join(f"{word} {count}" for word, count in words.most_common())
                print(f"{at_once}  {waves}  {scatter:.1%}  {factor - 1:.0%}: {said}; {mean:.1f}")


if __name__ == "__main__":
    main()
