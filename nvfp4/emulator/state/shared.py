"""Shared memory of the CTAs of a batch."""

from __future__ import annotations

import numpy as np

from nvfp4.emulator.ptx.program import SHARED_BASE
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.launch_state import LaunchState
from nvfp4.emulator.state.races import WRITTEN_BEFORE, Clocks


class SharedMemory:
    """One row of bytes for each CTA, and its shadow when races are looked for.

    stride: bytes from one row to the next. writers, readers: the stamps of races.py, one a byte.
    undefined: the bits of `data` that are undefined, if that is tracked.
    """

    def __init__(self, ctas: int, launch: LaunchState, warps: int) -> None:
        self.base = launch.shared_base
        self.size = max(0, launch.shared_bytes - launch.shared_base)
        self.stride = -(-self.size // 128) * 128 + 128
        # Rows start at multiples of 128, so that an offset is aligned as its address is.
        self.block = np.empty(ctas * self.stride + 128, np.uint8)
        skip = -self.block.ctypes.data % 128
        self.data = self.block[skip : skip + ctas * self.stride]
        self.data[:] = launch.order.bytes(self.data.size)
        self.host_address = self.data.ctypes.data
        self.checked = launch.check
        self.clocks = Clocks(ctas, warps)
        cells = self.data.size if self.checked else 0
        self.writers = np.zeros(cells, np.int64)
        self.readers = np.zeros((2, cells), np.int64)
        self.undefined = np.full(self.data.size, 255, np.uint8) if launch.tracks_memory else None
        for row in range(0, ctas * self.stride if self.base < SHARED_BASE else 0, self.stride):
            systems = slice(row, row + SHARED_BASE - self.base)
            self.writers[systems] = WRITTEN_BEFORE
            if self.undefined is not None:
                self.undefined[systems] = 0

    def address(self, offset: int) -> int:
        """The shared address, in its CTA, of a byte of `data`."""
        return int(offset) % self.stride + self.base

    def words(self) -> Array:
        """The bytes as uint64[...]."""
        words: Array = self.data.view(np.uint64)
        return words
