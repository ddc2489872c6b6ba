"""Codes of likely causes, and the sentence that each becomes."""

from dataclasses import dataclass, field
from typing import Any

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
    "k.tail_dropped": "the sum ends at element {first}: {what}",
    "k.dropped": "k blocks {blocks} of 16 elements are missing from the sum",
    "k.twice": "k blocks {blocks} of 16 elements are counted twice",
    "k.share_alone": "{what}",
    "precision.float16": "{what}",
}
"""By code, with the arguments to fill in. ``what`` and the like are for people only; the arguments
beside them say the same to programs."""

words = ("what", "place", "moves")
"""Arguments that a program does not need."""


@dataclass(frozen=True)
class Cause:
    """A cause by its code. arguments: fill the text of the code; see ``texts``."""

    code: str
    arguments: dict[str, Argument] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The sentence that the participant reads."""
        return texts[self.code].format(**self.arguments)

    def record(self) -> dict[str, Any]:
        """``{"code": ..., argument: value, ...}``."""
        arguments = {name: each for name, each in self.arguments.items() if name not in words}
        return {"code": self.code, **arguments}


def cause(code: str, **arguments: Argument) -> Cause:
    """A cause; the arguments are those of its text."""
    return Cause(code, arguments)


def signed(symbol: str, offset: int) -> str:
    """``k + 3`` or ``k - 3``."""
    return f"{symbol} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else symbol
