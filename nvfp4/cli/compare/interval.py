"""Statistics: whether one submission is faster than another, by the times of both in several
rounds."""

import math
from collections.abc import Sequence
from typing import Literal

from nvfp4.cli.verdict import figure_that_ranks
from nvfp4.records.base import Record

confidence = 0.9
"""The confidence of an interval. If both ends are within the threshold, a test of equivalence at
5 % has passed.
"""

threshold = 0.005
"""The smallest change that counts, as a share of the first file's time."""

Word = Literal["faster", "slower", "same", "unclear"]

Times = Sequence[Sequence[float]]
"""[rounds][shapes], microseconds."""


class Change(Record):
    """The change of one shape, or of the figure of all shapes that ranks."""

    verdict: Word
    change: float
    """The change as a share of the first time."""
    low: float
    high: float
    """Upper end of the interval of the change."""
    baseline_us: float
    file_us: float
    """Geometric means over the rounds."""


def changes_of(baseline: Times, file: Times, ranking_by: str = "geom") -> list[Change]:
    """Return the change of each shape, then that of what ranks, from three rounds or more.

    What slows a whole round down cancels: only differences within rounds count.
    """
    ones, others = (
        [[math.log(us) for us in (*row, figure_that_ranks(row, ranking_by))] for row in times]
        for times in (baseline, file)
    )
    pairs = zip(zip(*ones, strict=True), zip(*others, strict=True), strict=True)
    return [_change(one, other) for one, other in pairs]


def _change(baseline: Sequence[float], file: Sequence[float]) -> Change:
    """Return the change, from logarithms of times, one of each file per round."""
    from scipy.stats import ttest_1samp

    differences = [other - one for one, other in zip(baseline, file, strict=True)]
    middle, low, high = (math.fsum(differences) / len(differences),) * 3
    if len(set(differences)) > 1:
        low, high = map(float, ttest_1samp(differences, 0.0).confidence_interval(confidence))
    baseline_us, file_us = (math.exp(math.fsum(each) / len(each)) for each in (baseline, file))
    ends = (math.expm1(low), math.expm1(high))
    return Change(word_of(middle, low, high), math.expm1(middle), *ends, baseline_us, file_us)


def word_of(middle: float, low: float, high: float) -> Word:
    """Return the verdict, given the logarithm of a ratio and its interval.

    same: the whole interval lies within the threshold. faster, slower: the whole interval lies on
    one side of zero and the estimate beyond the threshold. unclear: neither.
    """
    limit = math.log1p(threshold)
    if -limit <= low and high <= limit:
        return "same"
    if low > 0 and middle > limit:
        return "slower"
    if high < 0 and middle < -limit:
        return "faster"
    return "unclear"
