"""How often `nvfp4 compare` would say what is true, by the scatter between processes.

    python -m scripts.compare_simulated

Needs no GPU: the times are drawn. All shapes of a process deviate by the same factor, and so do
all processes of a round, by another. Prints, for a copy and for a file that is 1 % slower, how
often each verdict came and after how many rounds; with the rule that a verdict must be the same
twice in a row, and without it. Takes minutes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import exp
from statistics import fmean

from nvfp4.cli.compare.decision import least_rounds
from nvfp4.cli.compare.rounds import Limits, Round, comparisons_of, is_settled, run_rounds

threshold, comparisons, drift = 0.005, 200, 0.01
Rule = Callable[[Sequence[Round]], bool]
means_us = (25.1, 45.5, 14.7)


def word_of(rounds: Sequence[Round]) -> str:
    """The verdict after these rounds."""
    return comparisons_of(rounds, threshold)[0].total.word


def is_clear(rounds: Sequence[Round]) -> bool:
    """Whether they have one."""
    return len(rounds) >= least_rounds and word_of(rounds) != "unclear"


class Machine:
    """Benchmarks two files. factor: of the second one's time. now: a clock that each benchmark
    moves by one.
    """

    def __init__(self, factor: float, scatter: float, seed: int) -> None:
        self.now = 0.0
        self._factor, self._scatter = factor, scatter
        self._draw = random.Random(seed)
        self._drift = 0.0

    def benchmark(self, number: int) -> list[float]:
        """The mean times of a file, in microseconds."""
        if self.now % 2 == 0:
            self._drift = self._draw.gauss(0, drift)
        self.now += 1
        factor = exp(self._drift + self._draw.gauss(0, self._scatter))
        return [us * factor * (self._factor if number else 1.0) for us in means_us]


def simulated(factor: float, scatter: float, most: int, rule: Rule) -> tuple[Counter[str], float]:
    """The verdicts, and the mean number of rounds, of which there may be so many at most."""
    words: Counter[str] = Counter()
    counts = []
    for seed in range(comparisons):
        machine = Machine(factor, scatter, seed)
        clock = partial(getattr, machine, "now")
        rounds, _ = run_rounds(machine.benchmark, 2, Limits(2.0 * most), seed, rule, clock=clock)
        words[word_of(rounds)] += 1
        counts.append(len(rounds))
    return words, fmean(counts)


def main() -> None:
    """Prints a row for each case."""
    rules: dict[str, Rule] = {"twice": partial(is_settled, threshold=threshold), "once": is_clear}
    print("rule   scatter  slower  rounds at most: verdicts, mean rounds")
    for name, rule in rules.items():
        for scatter in (0.002, 0.003, 0.01):
            for factor in (1.0, 1.01):
                for most in (6, 12):
                    words, mean = simulated(factor, scatter, most, rule)
                    said = ", ".join(f"{word} {count}" for word, count in words.most_common())
                    print(f"{name}  {scatter:.1%}  {factor - 1:.0%}  {most:>2}: {said}; {mean:.1f}")


if __name__ == "__main__":
    main()
