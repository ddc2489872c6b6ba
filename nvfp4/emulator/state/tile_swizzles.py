"""The swizzle with which the copy engine wrote each 16 bytes of shared memory."""

import numpy as np

from nvfp4.emulator.state.batch import Batch

UNKNOWN = 0
BY_ATOMS_OF_32 = 129
"""The width that stands for a swizzle of 128 bytes in atoms of 32."""
_CHUNK_BYTES = 16


def swizzle_name(width: int) -> str:
    """Return the name of a swizzle for messages."""
    if width == _CHUNK_BYTES:
        return "no swizzle"
    if width == BY_ATOMS_OF_32:
        return "a swizzle of 128 bytes in atoms of 32"
    return f"a swizzle of {width} bytes"


class TileSwizzles:
    """The swizzles of copied tiles.

    width: bytes of the swizzle's lines, uint8: 16 without a swizzle, UNKNOWN where no tile was
    copied.
    """

    def __init__(self, batch: Batch) -> None:
        self.width = np.zeros(batch.shared.data.size // _CHUNK_BYTES, np.uint8)

    def note(self, offset: int, nbytes: int, width: int) -> None:
        """Record that the copy engine writes a range of the batch's shared memory."""
        self.width[offset // _CHUNK_BYTES : (offset + nbytes) // _CHUNK_BYTES] = width
