"""Tensor maps: arguments of `cuTensorMapEncodeTiled`, and the hardware's 128 bytes for them.

The driver's bytes are not documented. Their layout was found by varying one argument of CuTe
DSL's `make_tiled_tma_atom` (4.8.1), whose host code writes them itself, and of the driver's encode
call (H100, driver 580) at a time; scripts/fidelity/maps.py compares them. Sixteen 64-bit words, of
which the first eight mean something:

    word 0  address
    word 1  bits 0-3 are 2 (the driver leaves them clear), 4-6 rank - 1, 7-10 element type,
            13-14 swizzle, 15 NaN fill, 16 TF32, 17-18 L2 promotion, 19-20 what the swizzle
            moves as a whole: 0 16 bytes, 1 32 bytes; the upper half is the stride of
            dimension 1 in units of 16 bytes
    word 2  strides of dimensions 2 and 3, 32 bits each
    word 3  stride of dimension 4; then four upper bits for each of the four strides
    word 4  extents - 1 of dimensions 0 and 1, 32 bits each; word 5 of 2 and 3
    word 6  extent - 1 of dimension 4; the top byte is the box's extent - 1 in dimension 0
    word 7  a byte each: the box's extents - 1 in dimensions 1 to 4

Bit 21 of word 1 stands where tensors are large and changes no data. Enumerators have the values of
the CUDA driver API (cuda.h), so that a captured call can hand its arguments over unchanged.
"""

import ctypes
import math
import struct
from enum import IntEnum
from functools import lru_cache

from nvfp4.records.base import Record
from nvfp4.records.launch_errors import InvalidTensorMap, UnsupportedTensorMap

TENSOR_MAP_BYTES = 128


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


_FORMATS = {
    DataType.UINT8: (8, 0, 0),
    DataType.UINT16: (16, 1, 0),
    DataType.UINT32: (32, 2, 0),
    DataType.INT32: (32, 3, 0),
    DataType.UINT64: (64, 4, 0),
    DataType.INT64: (64, 5, 0),
    DataType.FLOAT16: (16, 6, 0),
    DataType.FLOAT32: (32, 7, 0),
    DataType.FLOAT32_FTZ: (32, 8, 0),
    DataType.FLOAT64: (64, 9, 0),
    DataType.BFLOAT16: (16, 10, 0),
    DataType.PACKED_16U4_ALIGN8B: (4, 11, 0),
    DataType.TFLOAT32: (32, 7, 1),
    DataType.TFLOAT32_FTZ: (32, 8, 1),
}
"""Bits of an element, its code, and whether it is read as TF32."""
_TYPES = {(element, tf32): each for each, (_, element, tf32) in _FORMATS.items()}

_SWIZZLE_SPAN_BYTES = {
    Swizzle.NONE: 0,
    Swizzle.BYTES_32: 32,
    Swizzle.BYTES_64: 64,
    Swizzle.BYTES_128: 128,
    Swizzle.BYTES_128_ATOM_32: 128,
}
"""Width of the swizzle pattern, 0 for none."""


_KIND = 2
_KNOWN_BITS = 0xF | 7 << 4 | 15 << 7 | 511 << 13
_SWIZZLES = {(int(each), 0): each for each in list(Swizzle)[:4]}
_SWIZZLES[int(Swizzle.BYTES_128), 1] = Swizzle.BYTES_128_ATOM_32
"""Codes of swizzles by their width and the size of their atoms."""
_ENCODED_SWIZZLES = {each: codes for codes, each in _SWIZZLES.items()}
_NAN_FILL = 1 << 15


class TensorMap(Record):
    """A tiled tensor map; tuples run from the innermost (contiguous) dimension outwards.

    shape, box, element_strides: `rank` entries, counted in elements. strides_bytes: `rank - 1`
    entries, the byte distance along dimensions 1 and up.
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

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element_bits(self) -> int:
        return _FORMATS[self.data_type][0]

    @property
    def converts(self) -> tuple[bool, bool]:
        """Whether loads round numbers to TF32, and whether they make zeros of denormal ones."""
        return self.data_type.name.startswith("TF"), self.data_type.name.endswith("FTZ")

    @property
    def inner_box_bytes(self) -> int:
        """Bytes of one row of the box in shared memory."""
        return self.box[0] * self.element_bits // 8

    @property
    def box_bytes(self) -> int:
        """Bytes that one full tile transfers, which its mbarrier must expect."""
        return self.inner_box_bytes * math.prod(self.box[1:])

    def pack(self) -> bytes:
        """Return the descriptor's 128 bytes."""
        _, element, tf32 = _FORMATS[self.data_type]
        swizzle, atom = _ENCODED_SWIZZLES[self.swizzle]
        fields = {0: _KIND, 4: self.rank - 1, 7: element, 13: swizzle, 15: int(self.fill), 16: tf32}
        fields |= {17: self.l2_promotion, 19: atom}
        modes = sum(value << bit for bit, value in fields.items())
        strides = [stride // 16 for stride in self.strides_bytes] + [0] * (5 - self.rank)
        upper = sum((stride >> 32) << 4 * i for i, stride in enumerate(strides))
        extents = [extent - 1 for extent in self.shape] + [0] * (5 - self.rank)
        box = [extent - 1 for extent in self.box] + [0] * (5 - self.rank)
        halves = [modes, *(stride & 0xFFFFFFFF for stride in strides), upper, *extents]
        last = box[0] << 24, sum(extent << 8 * i for i, extent in enumerate(box[1:])), 0
        return struct.pack("<Q14I", self.address, *halves, *last).ljust(TENSOR_MAP_BYTES, b"\0")

    @classmethod
    @lru_cache(maxsize=256)
    def unpack(cls, raw: bytes) -> "TensorMap":
        """Return the tensor map in 128 bytes.

        Raises InvalidTensorMap if these are not the bytes of one, or not of a known kind, and
        UnsupportedTensorMap.
        """
        if len(raw) != TENSOR_MAP_BYTES:
            raise InvalidTensorMap(f"a tensor map has {TENSOR_MAP_BYTES} bytes, not {len(raw)}")
        address, *halves = struct.unpack_from("<Q14I", raw)
        modes = halves[0]
        element, rank = modes >> 7 & 15, (modes >> 4 & 7) + 1
        known = modes & 15 == _KIND and not modes & ~_KNOWN_BITS and (element, 0) in _TYPES
        if not known or rank > 5 or halves[11] & 0xFFFFFF or halves[13]:
            hint = "make the descriptor with cuTensorMapEncodeTiled and pass its address unchanged"
            raise InvalidTensorMap("these 128 bytes are not a tensor map", hint=hint)
        swizzle = _SWIZZLES.get((modes >> 13 & 3, modes >> 19 & 3))
        if swizzle is None:
            raise UnsupportedTensorMap(
                "a tensor map whose swizzle moves more than 32 bytes as a whole is not emulated"
            )
        strides = [(halves[1 + i] | (halves[5] >> 4 * i & 15) << 32) * 16 for i in range(4)]
        box = [(halves[11] >> 24) + 1, *((halves[12] >> 8 * i & 255) + 1 for i in range(4))]
        return cls(
            data_type=_TYPES.get((element, modes >> 16 & 1)) or _TYPES[element, 0],
            address=address,
            shape=tuple(half + 1 for half in halves[6 : 6 + rank]),
            strides_bytes=tuple(strides[: rank - 1]),
            box=tuple(box[:rank]),
            element_strides=(1,) * rank,
            swizzle=swizzle,
            l2_promotion=modes >> 17 & 3,
            fill=Fill.NAN if modes & _NAN_FILL else Fill.ZERO,
        )

    def __post_init__(self) -> None:
        """Check the rules of the driver's encode call (CUDA driver API, tensor map objects)."""
        rank, name = self.rank, self.data_type.name
        _require(1 <= rank <= 5, f"a tensor map has 1 to 5 dimensions, not {rank}")
        _support(self.data_type in _FORMATS, f"tensor maps of {name} are not emulated")
        _support(self.interleave is Interleave.NONE, "interleaved tensor maps are not emulated")
        known = self.swizzle in _SWIZZLE_SPAN_BYTES
        _support(known, f"swizzle {self.swizzle.name} is not emulated")
        _require(
            (len(self.strides_bytes) + 1, len(self.box), len(self.element_strides)) == (rank,) * 3,
            f"rank {rank} needs {rank - 1} strides, {rank} box extents and {rank} element strides",
        )
        address = f"the tensor's address {self.address:#x} is not a multiple of 16"
        _require(self.address % 16 == 0, address)
        for axis, stride in enumerate(self.strides_bytes, start=1):
            what = f"stride {stride} bytes of dimension {axis} is not a multiple of 16 below 2^40"
            _require(stride % 16 == 0 and 0 <= stride < 1 << 40, what)
        sizes = zip(self.shape, self.box, self.element_strides, strict=True)
        for axis, (extent, box, step) in enumerate(sizes):
            _require(1 <= extent <= 1 << 32, f"extent {extent} of dimension {axis}: 1 to 2^32")
            _require(1 <= box <= 256, f"box extent {box} of dimension {axis}: 1 to 256")
            _require(1 <= step <= 8, f"element stride {step} of dimension {axis}: 1 to 8")
        _require(self.fill is Fill.ZERO or "FLOAT" in name, f"a NaN fill of {name}")
        _require(0 <= self.l2_promotion <= 3, f"L2 promotion {self.l2_promotion}: 0 to 3")
        unit = all(step == 1 for step in self.element_strides)
        _support(unit, "element strides other than 1 are not emulated")
        row = f"the box's inner row of {self.inner_box_bytes} bytes"
        whole = self.box[0] * self.element_bits % 8 == 0
        _require(whole and self.inner_box_bytes % 16 == 0, f"{row} is not a multiple of 16")
        span = _SWIZZLE_SPAN_BYTES[self.swizzle]
        fits = not span or self.inner_box_bytes <= span
        _require(fits, f"{row} is wider than its {span}-byte swizzle")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidTensorMap(message)


def _support(holds: bool, message: str) -> None:
    if not holds:
        raise UnsupportedTensorMap(message)


def encode_tensor_map(
    target: int, data_type: int, rank: int, address: int, shape: int, strides: int, box: int,
    element_strides: int, interleave: int, swizzle: int, promotion: int, fill: int
) -> None:  # fmt: skip
    """Do what cuTensorMapEncodeTiled does: write the descriptor to `target` (128 bytes).

    shape, strides, box, element_strides: addresses of u64[rank], u64[rank - 1], u32[rank],
    u32[rank]. Raises InvalidTensorMap if the driver would refuse.
    """
    given = (target, shape, box, element_strides, *([strides] if rank > 1 else []))
    if not all(given) or not 1 <= rank <= 5:
        raise InvalidTensorMap(f"a null pointer, or {rank} dimensions, where 1 to 5 are allowed")
    _require(target % 64 == 0, f"the tensor map's own address {target:#x} is not a multiple of 64")
    try:
        tensor_map = TensorMap(
            DataType(data_type),
            address,
            tuple((ctypes.c_uint64 * rank).from_address(shape)),
            tuple((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
            tuple((ctypes.c_uint32 * rank).from_address(box)),
            tuple((ctypes.c_uint32 * rank).from_address(element_strides)),
            Interleave(interleave),
            Swizzle(swizzle),
            promotion,
            Fill(fill),
        )
    except ValueError as error:
        raise InvalidTensorMap(str(error)) from None
    raw = tensor_map.pack()
    ctypes.memmove(target, raw, len(raw))
