"""Shared memory descriptors of tcgen05: where the 16-byte chunks of a matrix lie.

Bits 0-13 address, 16-29 leading and 32-45 stride byte offset, all in 16 bytes; 46-48 are 0b001,
49-51 base offset, 52 mode of the leading offset, 61-63 swizzle. Source: PTX ISA, Shared memory
descriptor, and Strides.

A matrix has rows along M or N. K-major, 8 rows lie next to each other, 16 bytes each, or as many as
the swizzle is wide; stride leads to the next 8 rows, and without a swizzle leading to the next 16
bytes of K. M- or N-major, a chunk holds neighbours along M or N, and 8 chunks along K lie next to
each other.
"""

from functools import lru_cache

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.tile_swizzles import BY_ATOMS_OF_32
from nvfp4.records.base import Record

CHUNK = 16
_WIDTHS = {0: 16, 6: 32, 4: 64, 2: 128, 1: 128}
_NAMES = {0: "none", 6: "32 B", 4: "64 B", 2: "128 B", 1: "128 B in atoms of 32 B"}
_MASKS = {0: 0, 6: 1, 4: 3, 2: 7}
_ATOMS_OF_32 = 1
_VERSIONS = (0b001, 0b000)
"""Values of the version field: the one in the manual, and the one that Triton up to 3.5 sets, which
a B200 accepts."""


class MatrixDescriptor(Record):
    """A decoded matrix descriptor. Offsets are in bytes."""

    address: int
    leading: int
    stride: int
    version: int
    base_offset: int
    absolute: bool
    reserved: int
    swizzle: int
    """Code of bits 61-63."""

    @property
    def tile_swizzle(self) -> int:
        """The swizzle as a width of `TileSwizzles`: bytes, or BY_ATOMS_OF_32."""
        return BY_ATOMS_OF_32 if self.swizzle == _ATOMS_OF_32 else _WIDTHS[self.swizzle]

    def __str__(self) -> str:
        name = _NAMES.get(self.swizzle, f"invalid ({self.swizzle})")
        return (
            f"address {self.address:#x}, leading offset {self.leading}, "
            f"stride offset {self.stride}, swizzle {name}"
        )

    def trouble(self, transposed: bool, is_tf32: bool) -> str | None:
        """Return the rule that this descriptor breaks, in words, or None."""
        if self.version not in _VERSIONS:
            return f"bits 46-48 are {self.version:#05b}, which must be 0b001"
        if self.reserved:
            return f"bits 53-60 are {self.reserved:#x}, which must be 0"
        if self.swizzle not in _WIDTHS:
            return f"the swizzle {self.swizzle} of bits 61-63 does not exist"
        by_atoms = self.swizzle == _ATOMS_OF_32
        if by_atoms != (transposed and is_tf32) and (by_atoms or transposed):
            return (
                "only transposed tf32 matrices, and all of these, have a swizzle in atoms of 32 B"
            )
        return None

    def unknown(self) -> str | None:
        """Return the part of this descriptor that is not emulated, in words, or None."""
        if self.base_offset and self.swizzle:  # without one it has no meaning
            return f"the base offset {self.base_offset}"
        return "an absolute leading offset (bit 52)" if self.absolute else None

    def chunks(self, rows: int, depth: int, transposed: bool) -> Array:
        """Return the shared addresses of the 16-byte chunks, int64[rows, chunks of K]; transposed
        int64[K, chunks of rows].

        rows, depth: size of the matrix, in bytes along the dimension of the chunks.
        """
        phase = self.address % 1024
        shape = (rows, depth, transposed, self.leading, self.stride, self.swizzle)
        return _chunks(*shape, phase) + (self.address - phase)


def decode(bits: int) -> MatrixDescriptor:
    """Take a descriptor apart."""

    def field(low: int, width: int) -> int:
        return bits >> low & ((1 << width) - 1)

    return MatrixDescriptor(
        address=field(0, 14) << 4,
        leading=field(16, 14) << 4,
        stride=field(32, 14) << 4,
        version=field(46, 3),
        base_offset=field(49, 3),
        absolute=bool(field(52, 1)),
        reserved=field(53, 8),
        swizzle=field(61, 3),
    )


@lru_cache(maxsize=512)
def _chunks(
    rows: int, depth: int, transposed: bool, leading: int, stride: int, swizzle: int, phase: int
) -> Array:
    width = _WIDTHS[swizzle]
    if not transposed:
        row, chunk = np.meshgrid(np.arange(rows), np.arange(depth // CHUNK), indexing="ij")
        place = row % 8 * width + row // 8 * stride + chunk * (CHUNK if swizzle else leading)
    else:
        step, chunk = np.meshgrid(np.arange(depth), np.arange(rows // CHUNK), indexing="ij")
        together = 4 if swizzle == _ATOMS_OF_32 else 8
        along_k, along_rows = (stride, leading) if swizzle else (leading, stride)
        place = step % together * width + step // together * along_k
        place = place + chunk % (width // CHUNK) * CHUNK + chunk // (width // CHUNK) * along_rows
    place = place + phase
    if swizzle == _ATOMS_OF_32:
        place ^= (place >> 7 & 3) << 5
    else:
        place ^= (place >> 7 & _MASKS[swizzle]) << 4
    found: Array = place.astype(np.int64)
    found.flags.writeable = False
    return found
