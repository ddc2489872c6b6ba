"""What a comparison found."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import Op

Array = np.ndarray[Any, Any]
_MOST_SAMPLES = 24


@dataclass
class Errors:
    """The largest errors of an approximation: units in the last place, relative, absolute."""

    ulp: int
    relative: float
    absolute: float


@dataclass
class Outcome:
    """One comparison: results compared, results whose bits differ, and some of those.

    errors: of an approximation. error: why the comparison failed, if it did.
    """

    name: str
    tried: int
    different: int
    samples: list[dict[str, list[str]]] = field(default_factory=list)
    errors: Errors | None = None
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"ERROR {self.name}: {self.error[:200]}"
        found = f"{self.name}: {self.different} of {self.tried} differ"
        return f"{found}, such as {self.samples[0]}" if self.samples else found


def difference(name: str, columns: list[Array], got: list[Array], want: list[Array]) -> Outcome:
    """Compares the emulator's results (got) for operands (columns) with the device's (want)."""
    different = np.zeros(len(columns[0]), dtype=bool)
    for g, w in zip(got, want, strict=True):
        different |= g != w
    outcome = Outcome(name, len(columns[0]), int(different.sum()))
    wrong = np.flatnonzero(different)
    # Samples with different results show more than many of one kind.
    _, first = np.unique(want[0][wrong], return_index=True)
    for i in wrong[first[:: max(1, len(first) // _MOST_SAMPLES)][:_MOST_SAMPLES]]:
        outcome.samples.append(
            {
                "operands": [hex(int(column[i])) for column in columns],
                "emulated": [hex(int(g[i])) for g in got],
                "device": [hex(int(w[i])) for w in want],
            }
        )
    return outcome


def approximation_errors(op: Op, columns: list[Array], got: Array, want: Array) -> Errors:
    """Over finite nonzero results of the same sign; of sin and cos over angles up to pi."""

    def values(words: Array) -> Array:
        if op.opcode.endswith("x2"):
            words = words.view(np.uint16)
        if "bf16" in op.opcode:
            words = words.astype(np.uint32) << np.uint32(16)
        base = {2: np.float16, 4: np.float32, 8: np.float64}[words.itemsize]
        return words.view(base).astype(np.float64)

    with np.errstate(all="ignore"):
        g, w, x = values(got), values(want), values(columns[0])
        usable = np.isfinite(g) & np.isfinite(w) & (w != 0) & (np.sign(g) == np.sign(w))
        if op.opcode.startswith(("sin", "cos")):
            usable &= np.abs(x) <= np.pi
        size = 2 if op.opcode.endswith("16x2") else got.itemsize
        signed = [words.view(f"i{size}").astype(np.int64) for words in (got, want)]
        ulp = np.abs(signed[0] - signed[1])[usable]
        absolute = np.abs(g - w)[usable]
        relative = np.abs((g - w) / w)[usable]
    return Errors(
        int(ulp.max(initial=0)), float(relative.max(initial=0.0)), float(absolute.max(initial=0.0))
    )
