"""Which swizzle the copy engine wrote each 16 bytes of shared memory with."""

from __future__ import annotations

import numpy as np

from nvfp4.emulator.state.batch import Batch

UNKNOWN = 0
_CHUNK_BYTES = 16


class TileSwizzles:
    """width: uint8, bytes of the swizzle's lines: 16 without one, UNKNOWN where no tile was copied
    to."""

    def __init__(self, batch: Batch) -> None:
        self.width = np.zeros(batch.shared.data.size // _CHUNK_BYTES, np.uint8)

    def note(self, offset: int, nbytes: int, width: int) -> None:
        """The copy engine writes a range of the batch's shared memory."""
        self.width[offset // _CHUNK_BYTES : (offset + nbytes) // _CHUNK_BYTES] = width
