"""The registers of all threads of a batch.

A register is an array that broadcasts to the shape of the group that reads it (see `group`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from nvfp4.emulator.arithmetic import choosing
from nvfp4.emulator.ptx.types import Array


class RegisterFile:
    """arrays: one a register. shape: (CTAs, threads) of the batch."""

    def __init__(self, shape: tuple[int, int], defaults: list[Array]) -> None:
        self.shape = shape
        self.arrays = list(defaults)
        # Arrays that were made here and that nobody else has seen may be written in place.
        self.owned: dict[int, Array] = {}

    def write(self, lanes: Array, registers: Mapping[int, Array], which: int) -> None:
        """Take over some lanes' values of the registers in the bit set `which`."""
        for index in register_numbers(which):
            value = registers[index]
            target = self.owned.get(index)
            if target is None or target is not self.arrays[index]:
                target = np.ascontiguousarray(np.broadcast_to(self.arrays[index], self.shape))
                if target is self.arrays[index] or target.base is not None:
                    target = target.copy()
                self.owned[index] = self.arrays[index] = target
            target.reshape(-1)[lanes] = value


def register_numbers(which: int) -> Iterator[int]:
    """The registers in a bit set, the lowest first."""
    while which:
        low = which & -which
        yield low.bit_length() - 1
        which ^= low


def select(guard: Array, new: Array, old: Array) -> Array:
    """`new` where guard holds, else `old`."""
    if guard.size == 1:
        return new if guard.reshape(-1)[0] else old
    return choosing.select(guard, new, old)
