"""Tensor maps: what `cuTensorMapEncodeTiled` is told, in 128 bytes of our own format.

The bytes that the driver writes are not documented, so host code that runs under the emulator
gets its descriptors from `TensorMap.pack`, and `cp.async.bulk.tensor` reads them back with
`TensorMap.unpack`. Enumerators have the values of the CUDA driver API (cuda.h), so that an
intercepted call can hand its arguments over unchanged.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from emulator.errors import TensorMapError

TENSOR_MAP_BYTES = 128
_MAGIC = 0x50414D54  # "TMAP"
_LAYOUT = struct.Struct("<IBBBBBB2x4xQ5I5H5B3x4Q")


class DataType(IntEnum):
    """CUtensorMapDataType."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12
    PACKED_16U4_ALIGN8B = 13
    PACKED_16U4_ALIGN16B = 14
    PACKED_16U6_ALIGN16B = 15


class Interleave(IntEnum):
    """CUtensorMapInterleave."""

    NONE = 0
    BYTES_16 = 1
    BYTES_32 = 2


class Swizzle(IntEnum):
    """CUtensorMapSwizzle."""

    NONE = 0
    BYTES_32 = 1
    BYTES_64 = 2
    BYTES_128 = 3
    BYTES_128_ATOM_32 = 4
    BYTES_128_ATOM_32_FLIP_8 = 5
    BYTES_128_ATOM_64 = 6


class Fill(IntEnum):
    """CUtensorMapFloatOOBfill: what elements outside the tensor read as."""

    ZERO = 0
    NAN = 1


_BITS = {
    DataType.UINT8: 8,
    DataType.UINT16: 16,
    DataType.UINT32: 32,
    DataType.INT32: 32,
    DataType.UINT64: 64,
    DataType.INT64: 64,
    DataType.FLOAT16: 16,
    DataType.FLOAT32: 32,
    DataType.FLOAT64: 64,
    DataType.BFLOAT16: 16,
    DataType.FLOAT32_FTZ: 32,
    DataType.TFLOAT32: 32,
    DataType.TFLOAT32_FTZ: 32,
    DataType.PACKED_16U4_ALIGN8B: 4,
}

_SWIZZLE_SPAN_BYTES = {
    Swizzle.NONE: 0,
    Swizzle.BYTES_32: 32,
    Swizzle.BYTES_64: 64,
    Swizzle.BYTES_128: 128,
}


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor map; tuples run from the innermost (contiguous) dimension outwards.

    shape, box, element_strides: `rank` entries, counted in elements.
    strides_bytes: `rank - 1` entries, the byte distance along dimensions 1 and up.
    """

    data_type: DataType
    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: int = 0
    fill: Fill = Fill.ZERO

    def __post_init__(self) -> None:
        self._check()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element_bits(self) -> int:
        return _BITS[self.data_type]

    @property
    def inner_box_bytes(self) -> int:
        """Bytes of one row of the box in shared memory."""
        return self.box[0] * self.element_bits // 8

    @property
    def box_bytes(self) -> int:
        """Bytes that one full tile transfers, what its mbarrier must expect."""
        total = self.inner_box_bytes
        for extent in self.box[1:]:
            total *= extent
        return total

    @property
    def swizzle_span_bytes(self) -> int:
        """Width of the swizzle pattern, 0 for none."""
        return _SWIZZLE_SPAN_BYTES[self.swizzle]

    def pack(self) -> bytes:
        """The descriptor's 128 bytes."""

        def padded(values: tuple[int, ...], length: int) -> tuple[int, ...]:
            return values + (0,) * (length - len(values))

        raw = _LAYOUT.pack(
            _MAGIC,
            self.data_type,
            self.rank,
            self.interleave,
            self.swizzle,
            self.l2_promotion,
            self.fill,
            self.address,
            *(v & 0xFFFFFFFF for v in padded(self.shape, 5)),
            *padded(self.box, 5),
            *padded(self.element_strides, 5),
            *padded(self.strides_bytes, 4),
        )
        return raw.ljust(TENSOR_MAP_BYTES, b"\0")

    @classmethod
    @lru_cache(maxsize=256)
    def unpack(cls, raw: bytes) -> TensorMap:
        """Read `pack`'s bytes. Raises TensorMapError if they are anything else."""
        if len(raw) != TENSOR_MAP_BYTES:
            raise TensorMapError(f"a tensor map has {TENSOR_MAP_BYTES} bytes, not {len(raw)}")
        fields = _LAYOUT.unpack_from(raw)
        magic, data_type, rank, interleave, swizzle, promotion, fill, address = fields[:8]
        if magic != _MAGIC:
            raise TensorMapError(
                "these 128 bytes are no tensor map of this emulator",
                hint="make the descriptor with the intercepted cuTensorMapEncodeTiled, and pass "
                "its address unchanged",
            )
        dims, box, steps = fields[8:13], fields[13:18], fields[18:23]
        return cls(
            data_type=DataType(data_type),
            address=address,
            shape=tuple(v or 1 << 32 for v in dims[:rank]),
            strides_bytes=tuple(fields[23 : 23 + rank - 1]),
            box=tuple(box[:rank]),
            element_strides=tuple(steps[:rank]),
            interleave=Interleave(interleave),
            swizzle=Swizzle(swizzle),
            l2_promotion=promotion,
            fill=Fill(fill),
        )

    def _check(self) -> None:
        """The rules of the driver's encode call (CUDA driver API, tensor map objects)."""
        if not 1 <= self.rank <= 5:
            raise TensorMapError(f"a tensor map has 1 to 5 dimensions, not {self.rank}")
        if self.data_type not in _BITS:
            raise TensorMapError(f"tensor maps of {self.data_type.name} are not emulated")
        if self.interleave is not Interleave.NONE:
            raise TensorMapError("interleaved tensor maps are not emulated")
        if self.swizzle not in _SWIZZLE_SPAN_BYTES:
            raise TensorMapError(f"swizzle {self.swizzle.name} is not emulated")
        lengths = (len(self.strides_bytes) + 1, len(self.box), len(self.element_strides))
        if lengths != (self.rank,) * 3:
            raise TensorMapError(
                f"rank {self.rank} needs {self.rank - 1} strides, {self.rank} box extents and "
                f"{self.rank} element strides"
            )
        if self.address % 16:
            raise TensorMapError(f"the tensor's address {self.address:#x} is no multiple of 16")
        for axis, stride in enumerate(self.strides_bytes, start=1):
            if stride % 16 or not 0 <= stride < 1 << 40:
                raise TensorMapError(
                    f"stride {stride} bytes of dimension {axis} is no multiple of 16 below 2^40"
                )
        for axis in range(self.rank):
            if not 1 <= self.shape[axis] <= 1 << 32:
                raise TensorMapError(f"extent {self.shape[axis]} of dimension {axis}: 1 to 2^32")
            if not 1 <= self.box[axis] <= 256:
                raise TensorMapError(f"box extent {self.box[axis]} of dimension {axis}: 1 to 256")
            if not 1 <= self.element_strides[axis] <= 8:
                raise TensorMapError(
                    f"element stride {self.element_strides[axis]} of dimension {axis}: 1 to 8"
                )
        if any(step != 1 for step in self.element_strides):
            raise TensorMapError("element strides other than 1 are not emulated")
        if self.inner_box_bytes % 16 or self.box[0] * self.element_bits % 8:
            raise TensorMapError(
                f"the box's inner row of {self.inner_box_bytes} bytes is no multiple of 16"
            )
        span = self.swizzle_span_bytes
        if span and self.inner_box_bytes > span:
            raise TensorMapError(
                f"the box's inner row of {self.inner_box_bytes} bytes is wider than its "
                f"{span}-byte swizzle"
            )
