"""The swizzle with which the copy engine wrote each 16 bytes of shared memory."""

import numpy as np

from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
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

    def note(self, offset: Array, nbytes: int, width: int) -> None:
        """Record that the copy engine writes ranges of the batch's shared memory."""
        _note(self.width, offset // _CHUNK_BYTES, (offset + nbytes) // _CHUNK_BYTES, width)


@loop
def _note(widths, first, last, width):  # type: ignore[no-untyped-def]
    """Set all widths from each first one to before the last one."""
    for i in range(first.shape[0]):
        widths[first[i] : last[i]] = width
