"""Tensor maps, as host code makes them by itself and as it asks the driver for them."""

import ctypes
import struct
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.cute as cute
import torch
from conftest import intercept
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_ptr

from nvfp4.capture.codes import Code
from nvfp4.capture.cutedsl.callbacks import make_callbacks
from nvfp4.capture.cutedsl.host import HostRuntime
from nvfp4.records.launch import Launch
from nvfp4.records.launch_errors import InvalidTensorMap, UnsupportedCall
from nvfp4.records.tensormap import DataType, Fill, Swizzle, TensorMap


@cute.kernel
def prefetch_kernel(load: cute.CopyAtom, tensor: cute.Tensor) -> None:
    cpasync.prefetch_descriptor(load)


def described(
    dtype: Any, shape: tuple[int, ...], stride: tuple[int, ...], tile: tuple[int, ...], **how: Any
) -> TensorMap:
    """The tensor map that CuTe DSL makes for a copy of `tile` from a tensor at address 256 * n."""
    swizzle: Any = how.get("swizzle")

    @cute.jit
    def launch(pointer: cute.Pointer) -> None:
        tensor = cute.make_tensor(pointer, cute.make_layout(shape, stride=stride))
        staged = cute.make_ordered_layout(tile, order=tuple(range(len(tile))))
        if cutlass.const_expr(swizzle is not None):
            staged = cute.make_composed_layout(cute.make_swizzle(*swizzle), 0, staged)
        operation = cpasync.CopyBulkTensorTileG2SOp()
        load, coordinates = cpasync.make_tiled_tma_atom(operation, tensor, staged, tile)
        prefetch_kernel(load, coordinates).launch(grid=(1, 1, 1), block=(32, 1, 1))

    caught: list[Launch] = []
    memory = torch.zeros(4096, dtype=torch.uint8)
    address = -(-memory.data_ptr() // 256) * 256
    with intercept(caught.append):
        launch(make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=32))
    (launched,) = caught
    tensor_map = TensorMap.unpack(launched.parameters[0])
    assert tensor_map.address == address
    return tensor_map


@pytest.mark.parametrize(
    ("dtype", "data_type", "bits"),
    [
        (cutlass.Float4E2M1FN, DataType.PACKED_16U4_ALIGN8B, 4),
        *((cutlass.Float8E4M3FN, DataType.UINT8, 8), (cutlass.Uint8, DataType.UINT8, 8)),
        *((cutlass.Uint16, DataType.UINT16, 16), (cutlass.Uint32, DataType.UINT32, 32)),
        *((cutlass.Uint64, DataType.UINT64, 64), (cutlass.Float64, DataType.FLOAT64, 64)),
        *((cutlass.Float16, DataType.FLOAT16, 16), (cutlass.BFloat16, DataType.BFLOAT16, 16)),
        *((cutlass.Float32, DataType.FLOAT32, 32), (cutlass.TFloat32, DataType.TFLOAT32, 32)),
    ],
)
def test_element_types_are_read(dtype: Any, data_type: DataType, bits: int) -> None:
    tensor_map = described(dtype, (64, 16), (1, 64), (32, 8))
    assert tensor_map.data_type is data_type
    assert tensor_map.shape == (64, 16)
    assert tensor_map.strides_bytes == (64 * bits // 8,)
    assert tensor_map.box == (32, 8)
    assert tensor_map.swizzle is Swizzle.NONE


def test_five_dimensions_are_read() -> None:
    tensor_map = described(
        cutlass.Uint8, (64, 16, 7, 5, 3), (1, 64, 1024, 8192, 1 << 38), (32, 8, 2, 3, 1)
    )
    # CuTe sorts the dimensions by stride.
    assert tensor_map.shape == (64, 16, 7, 5, 3)
    assert tensor_map.strides_bytes == (64, 1024, 8192, 1 << 38)
    assert tensor_map.box == (32, 8, 2, 3, 1)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_swizzles_are_read(bits: int) -> None:
    width = 16 << bits
    tensor_map = described(cutlass.Uint8, (256, 16), (1, 256), (width, 8), swizzle=(bits, 4, 3))
    assert tensor_map.swizzle == bits
    assert tensor_map.box == (width, 8)


def test_a_rule_of_the_driver_is_kept() -> None:
    with pytest.raises(InvalidTensorMap, match="8 bytes"):
        described(cutlass.Uint8, (64, 16), (1, 64), (8, 8))


# Words 1 and 6 of maps that an H100's driver made of a [64, 256] tensor with a box of [8, 32].
DRIVER_WORDS = {
    0x0000004000000190: (DataType.INT32, 1024, Swizzle.NONE, 0, Fill.ZERO),
    0x0000008000000290: (DataType.INT64, 2048, Swizzle.NONE, 0, Fill.ZERO),
    0x0000004000000410: (DataType.FLOAT32_FTZ, 1024, Swizzle.NONE, 0, Fill.ZERO),
    0x0000004000010390: (DataType.TFLOAT32, 1024, Swizzle.NONE, 0, Fill.ZERO),
    0x0000004000010410: (DataType.TFLOAT32_FTZ, 1024, Swizzle.NONE, 0, Fill.ZERO),
    0x0000001000002010: (DataType.UINT8, 256, Swizzle.BYTES_32, 0, Fill.ZERO),
    0x0000001000060010: (DataType.UINT8, 256, Swizzle.NONE, 3, Fill.ZERO),
    0x0000002000008310: (DataType.FLOAT16, 512, Swizzle.NONE, 0, Fill.NAN),
}


@pytest.mark.parametrize("word", DRIVER_WORDS, ids=hex)
def test_the_driver_s_own_words_are_read(word: int) -> None:
    data_type, stride, swizzle, promotion, fill = DRIVER_WORDS[word]
    # Host code of CuTe DSL writes 2 into the nibble that the driver leaves clear.
    words = [0x1000, word | 2, 0, 0, 0x0000003F000000FF, 0, 0x1F << 56, 7]
    plain = TensorMap(data_type, 0x1000, (256, 64), (stride,), (32, 8), (1, 1), swizzle=swizzle)
    expected = replace(plain, l2_promotion=promotion, fill=fill)
    assert TensorMap.unpack(struct.pack("<8Q", *words).ljust(128, b"\0")) == expected


def test_other_bytes_are_no_tensor_map() -> None:
    words = [4096, 0x0000000400040012, 0, 0, 0x0000000F0000003F, 0, 0x1F << 56, 7]
    raw = struct.pack("<8Q", *words).ljust(128, b"\0")
    assert TensorMap.unpack(raw).pack() == raw
    unknown = raw[:8] + struct.pack("<Q", words[1] | 1 << 22) + raw[16:]
    for other in (bytes(128), b"\xff" * 128, bytes(64), unknown):
        with pytest.raises(InvalidTensorMap):
            TensorMap.unpack(other)


def test_the_driver_s_encode_call_writes_the_hardware_s_form() -> None:
    runtime = HostRuntime()
    encode = make_callbacks(runtime, (), [])["_cuTensorMapEncodeTiled"]
    target = (ctypes.c_uint8 * 192)()
    where = ctypes.addressof(target) + 63 & ~63
    shape, stride = (ctypes.c_uint64 * 2)(64, 16), ctypes.c_uint64(64)
    box, steps = (ctypes.c_uint32 * 2)(32, 8), (ctypes.c_uint32 * 2)(1, 1)
    pointers = map(ctypes.addressof, (shape, stride, box, steps))
    arguments = where, int(DataType.UINT8), 2, 4096, *pointers, 0, int(Swizzle.BYTES_32), 0, 0
    assert encode(*arguments) == 0
    tensor_map = TensorMap.unpack(ctypes.string_at(where, 128))
    assert (tensor_map.address, tensor_map.shape, tensor_map.box) == (4096, (64, 16), (32, 8))
    assert tensor_map.swizzle is Swizzle.BYTES_32
    # The driver would refuse this address; so does the callback, and the reason waits.
    assert encode(*arguments[:3], 4097, *arguments[4:]) == Code.LAUNCH_FAILURE
    with pytest.raises(InvalidTensorMap, match="multiple of 16"):
        runtime.raise_pending()


def test_a_kernel_without_ptx_is_named() -> None:
    runtime = HostRuntime()
    with pytest.raises(UnsupportedCall, match="kernel named lost"):
        runtime.find_kernel(runtime.load_library(("",)), "lost")


def test_a_cuda_function_that_is_not_captured_says_so() -> None:
    runtime = HostRuntime()
    callbacks = make_callbacks(runtime, (), ["_cudaMallocManaged", "printf"])
    assert "printf" not in callbacks
    assert callbacks["_cudaMallocManaged"]() == Code.LAUNCH_FAILURE
    with pytest.raises(UnsupportedCall, match="cudaMallocManaged"):
        runtime.raise_pending()
    runtime.raise_pending()
