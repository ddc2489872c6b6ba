"""The parameters of a launch as bytes, from the arguments of the call."""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from nvfp4.capture.torch_memory import kernel_memory
from nvfp4.records import launch_errors
from nvfp4.records.tensormap import DataType, Fill, Swizzle, TensorMap

_POINTER_BYTES = 8
_L2_128B = 2
_FLOATS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}
# Triton names element types as the hardware does; the tensor map takes the driver's numbers.
_HOST_TYPES = {8: DataType.FLOAT32_FTZ, 9: DataType.FLOAT64, 10: DataType.BFLOAT16}


def pack_arguments(
    kernel: str,
    signature: Sequence[Any],
    arguments: Sequence[Any],
    descriptors: Sequence[dict[str, Any]] | None,
    sizes: Sequence[int],
    scratch: Sequence[int],
) -> list[bytes]:
    """Return the bytes of each parameter of the PTX kernel.

    signature: Triton's type of each argument; constants are no parameters. descriptors: how the
    kernel was compiled for each tensor descriptor, in order. sizes: bytes of the parameters.
    scratch: addresses that follow the arguments, as far as the kernel takes them.

    Raises TypeError, ValueError and OverflowError as Triton does, LaunchRefused for descriptors
    that the driver would refuse.
    """
    flat = list(_flat(signature, arguments, iter(descriptors or ())))
    flat += [("u64", address) for address in scratch[: len(sizes) - len(flat)]]
    if len(flat) != len(sizes):
        message = f"{kernel} takes {len(sizes)} parameters, {len(flat)} are given"
        raise launch_errors.UnsupportedCall(message)
    return [_bytes(kind, value, size) for (kind, value), size in zip(flat, sizes, strict=True)]


def pointer(value: Any) -> int:
    """Return the address of a tensor, of an integer or of None.

    Raises TypeError and ValueError as Triton does for what is no pointer or not on the device.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    address = getattr(value, "data_ptr", None)
    if address is None:
        raise TypeError("Pointer argument must be either uint64 or have data_ptr method")
    tensor = getattr(value, "base", value)
    if getattr(getattr(tensor, "device", None), "type", None) not in (None, kernel_memory()):
        raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
    return int(address())


def _flat(
    signature: Sequence[Any], arguments: Sequence[Any], descriptors: Iterator[dict[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """(type, value) of each parameter: tuples one by one, descriptors as several."""
    for kind, value in zip(signature, arguments, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, tuple(value), descriptors)
        elif kind.startswith("tensordesc"):
            yield "map", _tensor_map(value, next(descriptors)).pack()
            yield from (("i64", extent) for extent in (*value.shape, *value.strides))
        elif kind != "constexpr":
            yield kind, value


def _tensor_map(value: Any, compiled: dict[str, Any]) -> TensorMap:
    """Return the tensor map that Triton would have the driver encode."""
    if compiled.get("is_im2col"):
        raise launch_errors.UnsupportedTensorMap("im2col tensor descriptors are not emulated")
    shape = list(value.shape)
    if compiled.get("fp4_padded"):
        shape[-1] *= 2
    nbytes, element = compiled["elem_size"], compiled["elem_type"]
    if getattr(value, "round_f32_to_tf32", False):
        element = DataType.TFLOAT32
    try:
        return TensorMap(
            data_type=_HOST_TYPES.get(element) or DataType(element),
            address=pointer(value.base),
            shape=tuple(reversed(shape)),
            strides_bytes=tuple(stride * nbytes for stride in reversed(value.strides[:-1])),
            box=tuple(reversed(compiled["block_size"])),
            element_strides=(1,) * len(shape),
            swizzle=Swizzle(compiled["swizzle"]),
            l2_promotion=_L2_128B,
            fill=Fill.NAN if getattr(value, "padding", "zero") == "nan" else Fill.ZERO,
        )
    except launch_errors.InvalidTensorMap as error:
        message = f"Triton Error [CUDA]: Failed to create tensor map descriptor: {error.message}"
        raise launch_errors.LaunchRefused(message) from None


def _bytes(kind: str, value: Any, size: int) -> bytes:
    if kind == "map":
        raw: bytes = value
    elif kind.startswith("*"):
        raw = pointer(value).to_bytes(_POINTER_BYTES, "little")
    elif kind == "bf16":
        raw = struct.pack("<f", value)[2:]
    elif kind in _FLOATS:
        raw = struct.pack(_FLOATS[kind], value)
    else:
        raw = (int(value) & (1 << 64) - 1).to_bytes(8, "little")[:size]
    if len(raw) != size:
        message = f"an argument of type {kind} has {len(raw)} bytes, not {size}"
        raise launch_errors.UnsupportedCall(message)
    return raw
