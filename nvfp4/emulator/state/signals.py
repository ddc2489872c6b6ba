"""What instructions tell the scheduler, and the time it tells them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nvfp4.emulator.ptx.types import Array

# The registers that tell the time, with their register classes.
CLOCK_REGISTERS = {
    "clock": "b32", "clock_hi": "b32", "clock64": "b64",
    "globaltimer": "b64", "globaltimer_lo": "b32", "globaltimer_hi": "b32",
}  # fmt: skip
_TICK = 16


@dataclass
class Signals:
    """Instructions write this record; the scheduler reads it after every basic block.

    released: lanes that may run again, and the block where they go on. changed: something has
    changed that threads in front of a gate may wait for. ticks: basic blocks run so far, and
    reads of a clock.
    """

    released: list[tuple[Array, int]] = field(default_factory=list)
    changed: bool = False
    ticks: int = 0

    def release(self, lanes: Array, block: int) -> None:
        """These lanes go on at a block."""
        self.released.append((lanes, block))
        self.changed = True

    def clock(self, name: str) -> Array:
        """A clock register. Time is deterministic: 16 cycles, or 16 ns, for each tick."""
        self.ticks += 1
        now = self.ticks * _TICK
        if CLOCK_REGISTERS[name] == "b64":
            return np.array([now], np.uint64)
        return np.array([(now >> 32 if name.endswith("_hi") else now) & 0xFFFFFFFF], np.uint32)
