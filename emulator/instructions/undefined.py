"""Undefined bits where they matter: what is noted of them, and where they may come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nvfp4.emulator.errors import EmulatorError, UninitialisedRegister, UninitialisedShared
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.execution import Execution
from nvfp4.emulator.state.registers import select

_REGISTER_HINT = (
    "usual causes: a fragment that is only partly filled, or a load under a predicate that "
    "leaves its register unset where the predicate is false"
)
_SHARED_HINT = "write all of what is read, or wait for the copy that does"


@dataclass(frozen=True)
class Use:
    """An operand of which every bit matters.

    what: the use, as a clause. registers: what its undefined bits may come from, if they come from
    registers that nothing has set; None stands for the operand itself. loads: the PTX lines of the
    loads that they may come from.
    """

    site: Site
    what: str
    registers: tuple[str | None, ...]
    loads: tuple[int, ...]

    def check(self, ex: Execution, shadow: Array) -> None:
        """Note undefined bits in lanes that take part."""
        if not shadow.any():
            return
        flat = ex.group.spread(shadow)
        bad = np.flatnonzero((flat != 0) & ex.mask())
        if bad.size:
            bits = _in_words(int(flat[bad[0]]), 8 * flat.itemsize if flat.dtype != bool else 1)
            kind, cause, hint = self._cause(ex, bits)
            at = self.site.lane(ex.batch, ex.group.lanes[bad[0]])
            at.note(kind, f"{self.what}, but {cause}", hint, bad.size)

    def _cause(self, ex: Execution, bits: str) -> tuple[type[EmulatorError], str, str]:
        origins = ex.batch.launch.undefined_memory
        loaded = [origins[line] for line in self.loads if line in origins]
        plural = bits.startswith("bits")
        whose = f"its {bits} {'come' if plural else 'comes'} from" if bits else "it comes from"
        if loaded:
            kind, place = loaded[0]
            hint = _SHARED_HINT if kind is UninitialisedShared else _REGISTER_HINT
            return kind, f"{whose} {place}", hint
        if self.registers == (None,):
            cause = f"nothing has set {'its ' + bits if bits else 'it'}"
        else:
            names = [name or "itself" for name in self.registers]
            cause = f"{whose} {' or '.join(names)}, which nothing has set"
        return UninitialisedRegister, cause, _REGISTER_HINT


def _in_words(shadow: int, width: int) -> str:
    """The set bits of a shadow, `bits 3, 16-31`; nothing if all are set."""
    if shadow == (1 << width) - 1:
        return ""
    ranges = []
    bit = 0
    while shadow >> bit:
        if not shadow >> bit & 1:
            bit += 1
            continue
        first = bit
        while shadow >> bit & 1:
            bit += 1
        ranges.append(f"{first}-{bit - 1}" if bit - first > 1 else f"{first}")
    if len(ranges) == 1 and "-" not in ranges[0]:
        return f"bit {ranges[0]}"
    more = ", ..." if len(ranges) > 4 else ""
    return f"bits {', '.join(ranges[:4])}{more}"


def merge(
    unsure: Array, when: Array, value: Array, old: Array, shadow: Array, old_shadow: Array
) -> Array:
    """The shadow of a register that is set under a guard that may be undefined itself: where it
    is, a bit is undefined unless it is the same, set or not."""
    chosen = select(when, shadow, old_shadow)
    if not unsure.any():
        return chosen
    return np.where(unsure, shadow | old_shadow | (value ^ old), chosen)
