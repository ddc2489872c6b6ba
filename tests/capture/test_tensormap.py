import ctypes

import pytest

from nvfp4.records import tensormap
from nvfp4.records.launch_errors import InvalidTensorMap, UnsupportedTensorMap
from nvfp4.records.tensormap import DataType, Fill, Interleave, Swizzle, TensorMap


def make(**changes: object) -> TensorMap:
    fields: dict[str, object] = {
        **{"data_type": DataType.FLOAT16, "address": 0x7F0000000010},
        **{"shape": (64, 1 << 32, 3), "strides_bytes": (128, 1 << 20)},
        **{"box": (64, 8, 1), "element_strides": (1, 1, 1)},
        **{"swizzle": Swizzle.BYTES_128, "fill": Fill.NAN},
    }
    return TensorMap(**(fields | changes))  # type: ignore[arg-type]


def test_a_tensor_map_survives_its_128_bytes() -> None:
    raw = make().pack()
    assert len(raw) == 128
    assert TensorMap.unpack(raw) == make()


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (InvalidTensorMap, {"address": 0x1008}, "multiple of 16"),
        (InvalidTensorMap, {"strides_bytes": (120, 1 << 20)}, "stride 120"),
        (InvalidTensorMap, {"box": (64, 257, 1)}, "257"),
        (InvalidTensorMap, {"box": (128, 8, 1)}, "swizzle"),
        (InvalidTensorMap, {"box": (4, 8, 1)}, "inner row of 8 bytes"),
        (InvalidTensorMap, {"shape": (64, 0, 3)}, "extent 0"),
        (InvalidTensorMap, {"strides_bytes": (128,)}, "rank 3"),
        (InvalidTensorMap, {"l2_promotion": 4}, "promotion 4"),
        (InvalidTensorMap, {"data_type": DataType.UINT16}, "NaN fill"),
        (UnsupportedTensorMap, {"element_strides": (1, 2, 1)}, "element strides"),
        (UnsupportedTensorMap, {"interleave": Interleave.BYTES_16}, "interleaved"),
        (UnsupportedTensorMap, {"swizzle": Swizzle.BYTES_128_ATOM_64}, "BYTES_128_ATOM_64"),
        (
            UnsupportedTensorMap,
            {"data_type": DataType.PACKED_16U6_ALIGN16B},
            "PACKED_16U6_ALIGN16B",
        ),
    ],
)
def test_an_encode_call_against_the_rules_or_beyond_the_emulator_is_named(
    kind: type[Exception], change: dict, words: str
) -> None:
    with pytest.raises(kind, match=words):
        make(**change)


ADDRESSES = ("target", "shape", "strides", "box", "element_strides")


@pytest.mark.parametrize(
    "change", [*({each: 0} for each in ADDRESSES), {"target": 2**40 + 16}, {"data_type": 99}]
)
def test_an_encode_call_with_a_wrong_address_or_type_is_an_error(change: dict) -> None:
    room = ctypes.create_string_buffer(256)
    given = dict.fromkeys((*ADDRESSES, "address"), ctypes.addressof(room) + 63 & ~63)
    modes = dict.fromkeys(("data_type", "interleave", "swizzle", "promotion", "fill"), 0)
    with pytest.raises(InvalidTensorMap):
        tensormap.encode_tensor_map(**{**given, **modes, "rank": 3, **change})


def test_packed_fp4_counts_half_bytes() -> None:
    plain = {"swizzle": Swizzle.NONE, "fill": Fill.ZERO}
    tile = make(data_type=DataType.PACKED_16U4_ALIGN8B, box=(128, 8, 1), **plain)
    assert tile.inner_box_bytes == 64
    assert tile.box_bytes == 512
