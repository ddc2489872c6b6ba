"""Wrong elements, likely causes by their codes, and how much of the wrong elements each cause
explains."""

import math
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array
from nvfp4.problems.nvfp4_gemv.task import atol, rtol
from nvfp4.records.base import Record

Argument = int | float | str | list[int]

texts: dict[str, str] = {
    "output.unwritten": "c was not written: {elements} elements hold what c held before",
    "output.added": "c += instead of c =: the result is added to what c held before",
    "output.carried_batches": "the accumulator is not cleared between batches: batch b holds the "
    "sum of batches 0 to b",
    "places.rows": "right values stand in wrong rows: c[i] holds {source}",
    "places.batches": "results stand in the wrong batch: {moves}",
    "nibbles.swapped": "the nibbles of a (or of b) are swapped: element 2i stands in the low "
    "nibble",
    "nibbles.high_skipped": "high nibbles are skipped",
    "nibbles.low_skipped": "low nibbles are skipped",
    "nibbles.halves": "low nibbles of {operand} are taken for the first and high nibbles for the "
    "second half of every {elements} elements: elements 2i and 2i + 1 share a byte",
    "scales.other": "the scales of {instead} are used for {operand}",
    "scales.plain_as_permuted": "{operand} is the unpermuted tensor but is read with the permuted "
    "index",
    "scales.permuted_as_plain": "{operand} is read as if it were unpermuted",
    "scales.shift": "{what}",
    "scales.unsigned": "the sign of the scales is ignored, as FP4 tensor cores do, which read "
    "them as ue4m3",
    "k.tail_dropped": "the sum ends at element {first}: {what}",
    "k.dropped": "k blocks {blocks} of 16 elements are missing from the sum",
    "k.twice": "k blocks {blocks} of 16 elements are counted twice",
    "k.share_alone": "{what}",
    "precision.float16": "{what}",
}
"""Messages by code, with the arguments to fill in.

``what`` and similar arguments are for people only; the other arguments say the same to programs.
"""

words = ("what", "place", "moves")
"""Arguments that a program does not need, since they are words."""


class Cause(Record):
    """A cause by its code."""

    code: str
    arguments: dict[str, Argument] = field(default_factory=dict)
    """Values that fill the text of the code; see ``texts``."""

    @property
    def text(self) -> str:
        """The sentence that the participant reads."""
        return texts[self.code].format(**self.arguments)

    def record(self) -> dict[str, Any]:
        """Return ``{"code": ..., argument: value, ...}``."""
        arguments = {name: each for name, each in self.arguments.items() if name not in words}
        return {"code": self.code, **arguments}


def cause(code: str, **arguments: Argument) -> Cause:
    """Return a cause; the arguments are those of its text."""
    return Cause(code, arguments)


def signed(symbol: str, offset: int) -> str:
    """``k + 3`` or ``k - 3``."""
    return f"{symbol} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else symbol


_margin_bits = 10.0
"""Evidence, in bits, that an explanation needs beyond chance: luck reaches this once in a thousand
times."""

_least_chance = 2.0**-11

_sampled_batches = 2
_quick_rows, _slow_rows = 8, 32
_worth_a_look = 0.4
_worth_telling = 0.25
_most_checked = 12

Predict = Callable[[int, Array], Array]
"""Returns, for a batch and rows, the output of a kernel with the fault: float64 [rows]."""


class Hypothesis(Record):
    """A cause and its consequences."""

    cause: Cause
    predict: Predict
    exact: bool = False
    """Whether the output must be equal bit for bit."""


class Explanation(Record):
    """A hypothesis that explains a number of the wrong elements."""

    explained: int
    hypothesis: Hypothesis


class Mismatch(Record):
    """An output beside the expected one."""

    got: Array
    """The output, float64 [m, l]."""
    want: Array
    """The expected output, float64 [m, l]."""
    wrong: Array
    """Which elements are wrong, bool [m, l]."""
    sampled: list[tuple[int, Array]] = field(default_factory=list)
    """(batch, rows) of a few wrong rows of a few batches, finite elements only."""

    def __post_init__(self) -> None:
        for batch in map(int, _spread(np.flatnonzero(self.finite.any(axis=0)), _sampled_batches)):
            self.sampled.append((batch, _spread(np.flatnonzero(self.finite[:, batch]), _slow_rows)))

    @property
    def finite(self) -> Array:
        """Wrong elements that are not NaN or infinite, bool [m, l]."""
        return self.wrong & np.isfinite(self.got)

    @property
    def count(self) -> int:
        """Wrong elements."""
        return int(self.wrong.sum())

    def quick(self, rows: int = _quick_rows) -> list[tuple[int, Array]]:
        """Return the mismatch with fewer rows of each batch, for a first look."""
        return [(batch, _spread(each, rows)) for batch, each in self.sampled]

    def matches(self, hypothesis: Hypothesis, places: Iterable[tuple[int, Array]]) -> Array:
        """Return where the prediction holds, as a flat array of bool."""
        found = []
        for batch, rows in places:
            predicted = hypothesis.predict(batch, rows)
            found.append(agrees(self.got[rows, batch], predicted, hypothesis.exact))
        return np.concatenate(found) if found else np.zeros(0, bool)

    def explained_by(self, hypothesis: Hypothesis) -> Array:
        """Return where in c the prediction holds: bool [m, l]."""
        m, l = self.got.shape
        columns = [(batch, np.arange(m)) for batch in range(l)]
        return self.matches(hypothesis, columns).reshape(l, m).T

    def explain(self, hypothesis: Hypothesis, tried: int) -> Explanation | None:
        """Return what the hypothesis explains; None if that may be luck.

        tried: number of hypotheses of the same kind that are tried, since each may succeed by luck.
        """
        got, predicted = [], []
        for batch, rows in enumerate(np.flatnonzero(column) for column in self.wrong.T):
            got.append(self.got[rows, batch])
            predicted.append(hypothesis.predict(batch, rows))
        mine, theirs = np.concatenate(got), np.concatenate(predicted)
        right = agrees(mine, theirs, hypothesis.exact)
        count = int(right.sum())
        if count < _worth_telling * mine.size:
            return None
        chance = _chance(mine[right], theirs[right], hypothesis.exact)
        if count * -math.log2(chance) < math.log2(max(1, tried)) + _margin_bits:
            return None
        return Explanation(count, hypothesis)

    def worth_checking(self, hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
        """Return the hypotheses that explain a good part of a sample, the best first."""
        passed = []
        quick = self.quick()[-1:]
        for each in hypotheses:
            if self.matches(each, quick).mean() >= _worth_a_look:
                share = float(self.matches(each, self.sampled).mean())
                if share >= _worth_telling:
                    passed.append((share, each))
        passed.sort(key=lambda pair: -pair[0])
        return [each for _, each in passed[:_most_checked]]

    def explanations(self, hypotheses: Iterable[Hypothesis], tried: int) -> list[Explanation]:
        """Return the explanations by hypotheses that explain more than chance would."""
        checked = (self.explain(each, tried) for each in self.worth_checking(hypotheses))
        return [each for each in checked if each is not None]


def _spread(rows: Array, count: int) -> Array:
    """Return ``count`` of the rows, evenly spread."""
    return rows[np.unique(np.linspace(0, rows.size - 1, min(count, rows.size)).astype(int))]


def rounded(values: Array) -> Array:
    """float64 values rounded to float16 and back."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, np.float64).astype(np.float16).astype(np.float64)


def agrees(got: Array, predicted: Array, exact: bool = False) -> Array:
    """Return which elements are as predicted: bool of the shape of both, broadcast."""
    with np.errstate(invalid="ignore", over="ignore"):
        want = rounded(predicted)
        close = (got == want) | (np.isnan(got) & np.isnan(want))
        if not exact:
            # The sums of a kernel are rounded in their own order.
            close |= (np.abs(got - want) <= atol + rtol * np.abs(want)) & np.isfinite(want)
        return close


def _chance(got: Array, predicted: Array, exact: bool) -> float:
    """Return how often an element agrees with the prediction for another element by chance."""
    size = got.size
    shifts = {shift % size for shift in (1, 2, 3, 5, 8, 13, 21)} - {0} if size else set()
    hits = sum(int(agrees(np.roll(got, shift), predicted, exact).sum()) for shift in shifts)
    return max(_least_chance, (hits + 0.5) / (size * len(shifts) + 1))
