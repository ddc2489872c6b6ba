"""Buffers of global memory, and the windows through which generic addresses see the rest.

A global address is a host address. Shared and local memory appear in the generic address space
at fixed windows far above any host address.
"""

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.records.launch import Buffer, Memory

SHARED_WINDOW = 1 << 60
LOCAL_WINDOW = 1 << 61
WINDOW_SHIFT = 60
RED_ZONE_BYTES = 256
NULL_PAGE_BYTES = 1 << 16
"""Addresses below this are never mapped."""
_NEAR_BYTES = 1 << 20
PARAMETERS = "the kernel's parameters"
# Accesses to a sector. READ_LATE: read when the next launch might have begun.
READ, WRITTEN, READ_LATE = 1, 2, 4


class GlobalMemory:
    """The buffers a launch may touch, sorted, and a flag for each of their 32-byte sectors.

    touched: READ, WRITTEN, READ_LATE. kept: by address, the buffers that the launch writes and what
    they held before.
    """

    def __init__(self, own: Sequence[Buffer], memory: Memory) -> None:
        """own: the launch's parameters and the module's variables.

        Of overlapping buffers, those that start first and reach farthest are kept.
        """
        self._own = list(own)
        self._freed = memory.freed
        self.kept: dict[int, tuple[Buffer, Array]] = {}
        self.buffers: list[Buffer] = []
        for buffer in sorted([*own, *memory.known()], key=lambda b: (b.address, -b.nbytes)):
            if buffer.nbytes == 0:
                continue
            if self.buffers and buffer.address < self.buffers[-1].end:
                last = self.buffers[-1]
                if buffer.end > last.end:
                    self.buffers[-1] = replace(last, nbytes=buffer.end - last.address)
                continue
            self.buffers.append(buffer)
        self.read_only = [b for b in self.buffers if not b.writable]
        self.addresses = [b.address for b in self.buffers]
        self.starts = np.array(self.addresses, np.uint64)
        self.ends = np.array([b.end for b in self.buffers], np.uint64)
        counts = [_sectors(b) for b in self.buffers]
        self.sector0 = np.cumsum([0, *counts])[:-1].astype(np.int64)
        self.touched = np.zeros(sum(counts), np.uint8)

    def own(self, space: str | None) -> list[Buffer]:
        """The launch's parameters, or the constants of its module."""
        constants = [b for b in self._own if not b.writable and b.name != PARAMETERS]
        return [b for b in self._own if b.name == PARAMETERS] if space == "param" else constants

    def keep_contents(self, first: int, last: int) -> None:
        """Remember the contents of buffers before a write to addresses from `first` to `last`."""
        low = bisect_right(self.addresses, first) - 1
        for buffer in self.buffers[low : bisect_right(self.addresses, last)]:
            if buffer.address not in self.kept and buffer.writable:
                self.kept[buffer.address] = (buffer, contents(buffer).copy())

    def flags(self, buffer: Buffer) -> Array:
        """Flags of the accesses to each sector of a buffer so far."""
        first = int(self.sector0[bisect_right(self.addresses, buffer.address) - 1])
        return self.touched[first : first + _sectors(buffer)]

    def spread(self) -> float:
        """Return how many sectors memory takes the time of, for each one that was touched.

        It delivers pairs of sectors. Of a block of four, the first takes as long as 1.45 of those
        of whole blocks and each further one as long as 0.85 (H100, strides and places at random).
        """
        count = 0.0
        for buffer in self.buffers:
            before = buffer.address >> 5 & 7
            flags = np.pad(self.flags(buffer), (before, -(before + _sectors(buffer)) % 8)) > 0
            pairs = flags[::2] | flags[1::2]
            blocks = pairs.reshape(-1, 4).any(1)
            count += 1.7 * np.count_nonzero(pairs) + 1.2 * np.count_nonzero(blocks)
        return count / max(1, int(np.count_nonzero(self.touched)))

    def sector_base(self, index: int) -> int:
        """Return the offset from the sector number of an address in a buffer to its index in
        `touched`."""
        return int(self.sector0[index]) - (self.buffers[index].address >> 5)

    def nearest(self, address: int) -> tuple[Buffer, int] | None:
        """The buffer that holds or lies nearest to an address, and the address's offset in it."""

        def gap(buffer: Buffer) -> int:
            return max(buffer.address - address, address - buffer.end + 1, 0)

        i = bisect_right(self.addresses, address)
        best = min(self.buffers[max(0, i - 1) : i + 1], key=gap, default=None)
        return None if best is None else (best, address - best.address)

    def describe(self, address: int, element: bool = True) -> str:
        """Describe an address in words, such as `c[4, 0, 0], byte 8 of c (4096 bytes)`.

        The address itself is left out, as it differs from run to run. element: whether to name the
        element.
        """
        if address < NULL_PAGE_BYTES:
            return f"byte {address} from a null pointer" if address else "a null pointer"
        found = self.nearest(address)
        if found is None or not _meant(*found):
            unknown = "an address where no tensor of the GPU is alive"
            return self._freed_at(address) or unknown + _as_negative(self.buffers, address)
        buffer, offset = found
        if not 0 <= offset < buffer.nbytes and (freed := self._freed_at(address)):
            return freed
        whole = f"{buffer.name} ({buffer.nbytes} bytes)"
        if offset < 0:
            place = f"{-offset} bytes before {whole}"
        elif offset >= buffer.nbytes:
            place = f"{offset - buffer.nbytes} bytes past the end of {whole}"
        else:
            place = f"byte {offset} of {whole}"
        index = element_at(buffer, offset) if element else None
        return f"{index}, {place}" if index else place

    def _freed_at(self, address: int) -> str | None:
        """Describe the byte of freed memory that was at this address; None if there was none."""
        for buffer in self._freed():
            if buffer.address <= address < buffer.end:
                return f"byte {address - buffer.address} of {buffer.name}, which has been freed"
        return None


def element_at(buffer: Buffer, offset: int) -> str | None:
    """Return the element that holds a byte of a buffer, in its tensor's coordinates: `c[4, 0,
    1]`."""
    index = buffer.view.index(offset) if buffer.view else None
    if index is None:
        return None
    name = buffer.name if buffer.name.isidentifier() else "element "
    return f"{name}[{', '.join(map(str, index))}]"


def _meant(buffer: Buffer, offset: int) -> bool:
    """Return whether an offset is so near to its buffer that the access was probably meant for it.

    No access is meant for the kernel's parameters, which are elsewhere in every run.
    """
    gap = max(-offset, offset + 1 - buffer.nbytes, 0)
    return gap <= (0 if buffer.name == PARAMETERS else max(_NEAR_BYTES, 4 * buffer.nbytes))


def _as_negative(buffers: list[Buffer], address: int) -> str:
    """Return a clause for an address that looks like a buffer's plus a negative number taken as
    unsigned; "" for others."""
    for buffer in buffers:
        below = (1 << 32) - (address - buffer.address)
        if 0 < below <= _NEAR_BYTES:
            return f", {buffer.name} plus {-below} taken as an unsigned number of 32 bits"
    return ""


def in_window(address: Array) -> Array:
    """Convert generic addresses of shared or local memory to addresses in that state space."""
    return address.astype(np.uint64) & np.uint64((1 << WINDOW_SHIFT) - 1)


RANK_SHIFT = 24
"""Shared addresses have the rank of their CTA in its cluster here, as on the hardware."""


def rank_of(address: Array) -> Array:
    """The rank of the CTA whose memory a shared address, generic or not, is in: int64."""
    return (address.astype(np.uint64) >> np.uint64(RANK_SHIFT)).astype(np.int64) & 0xFF


def isolated(nbytes: int, align: int) -> Array:
    """Return zeros at an aligned address, uint8[nbytes], with unused bytes around them: an access
    past them, or past a tensor next to them, hits neither."""
    block = np.zeros(nbytes + align + 2 * RED_ZONE_BYTES, np.uint8)
    skip = RED_ZONE_BYTES + -(block.ctypes.data + RED_ZONE_BYTES) % align
    return block[skip : skip + nbytes]


def contents(buffer: Buffer) -> Array:
    """The bytes of a buffer, as they are: uint8[nbytes]."""
    return host_bytes(buffer.address, buffer.nbytes)


def host_bytes(address: int, nbytes: int) -> Array:
    """Return uint8[nbytes] of host memory; the caller has checked the range."""
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, (nbytes,))


def _sectors(buffer: Buffer) -> int:
    return ((buffer.end + 31) >> 5) - (buffer.address >> 5)
