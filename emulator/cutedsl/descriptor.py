"""Tensor maps as CuTe DSL's host code writes them itself, in the hardware's own bytes.

No CUDA call is made for these: compiled host code stores sixteen 64-bit words, of which the
first eight mean something. The layout was found by varying one argument of
`make_tiled_tma_atom` (CuTe DSL 4.8.1) and of the driver's encode call (H100, driver 580) at a
time; scripts/fidelity_maps.py compares them.

    word 0  address
    word 1  bits 0-3 are 2 (the driver leaves them clear), 4-6 rank - 1, 7-10 element type,
            13-14 swizzle, 15 NaN fill, 16 TF32, 17-18 L2 promotion; the upper half is the
            stride of dimension 1 in units of 16 bytes
    word 2  strides of dimensions 2 and 3, 32 bits each
    word 3  stride of dimension 4; then four upper bits for each of the four strides
    word 4  extents - 1 of dimensions 0 and 1, 32 bits each; word 5 of 2 and 3
    word 6  extent - 1 of dimension 4; the top byte is the box's extent - 1 in dimension 0
    word 7  a byte each: the box's extents - 1 in dimensions 1 to 4

Bit 21 of word 1 stands where tensors are large and changes no data.
"""

from __future__ import annotations

import struct

from emulator.engine.tensormap import TENSOR_MAP_BYTES, DataType, Fill, Swizzle, TensorMap

_TYPES = {
    0: DataType.UINT8,
    1: DataType.UINT16,
    2: DataType.UINT32,
    3: DataType.INT32,
    4: DataType.UINT64,
    5: DataType.INT64,
    6: DataType.FLOAT16,
    7: DataType.FLOAT32,
    8: DataType.FLOAT32_FTZ,
    9: DataType.FLOAT64,
    10: DataType.BFLOAT16,
    11: DataType.PACKED_16U4_ALIGN8B,
}
_KNOWN_BITS = 0xF | 7 << 4 | 15 << 7 | 63 << 13 | 1 << 21
_NAN_FILL = 1 << 15
_TF32 = 1 << 16
_AS_TF32 = {
    DataType.FLOAT32: DataType.TFLOAT32,
    DataType.FLOAT32_FTZ: DataType.TFLOAT32_FTZ,
}


def decode(raw: bytes) -> TensorMap | None:
    """The tensor map in `raw`; None if these are not the bytes of one, or not of a known kind.

    Raises TensorMapError if it breaks the rules of the driver's encode call.
    """
    if len(raw) != TENSOR_MAP_BYTES:
        return None
    words = struct.unpack_from("<8Q", raw)
    modes = words[1] & 0xFFFFFFFF
    element, rank = modes >> 7 & 15, (modes >> 4 & 7) + 1
    if modes & 15 != 2 or modes & ~_KNOWN_BITS or element not in _TYPES or rank > 5:
        return None
    if words[6] >> 32 & 0xFFFFFF or words[7] >> 32:
        return None
    data_type = _TYPES[element]
    if modes & _TF32:
        data_type = _AS_TF32.get(data_type, data_type)
    halves = struct.unpack("<16I", struct.pack("<8Q", *words))
    strides = [(halves[3 + i] | (words[3] >> 32 + 4 * i & 15) << 32) * 16 for i in range(4)]
    extents = [half + 1 for half in halves[8:13]]
    box = [(words[6] >> 56) + 1, *((words[7] >> 8 * i & 255) + 1 for i in range(4))]
    return TensorMap(
        data_type=data_type,
        address=words[0],
        shape=tuple(extents[:rank]),
        strides_bytes=tuple(strides[: rank - 1]),
        box=tuple(box[:rank]),
        element_strides=(1,) * rank,
        swizzle=Swizzle(modes >> 13 & 3),
        l2_promotion=modes >> 17 & 3,
        fill=Fill.NAN if modes & _NAN_FILL else Fill.ZERO,
    )
