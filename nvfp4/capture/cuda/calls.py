"""The functions of the CUDA runtime that compiled host code calls, by their names.

Each takes the runtime and its arguments as integers, addresses among them, and raises CudaError
for what CUDA refuses. runtime.cpp calls some under names of its own. `device_calls` has those of
streams, events and the device.
"""

from __future__ import annotations

import ctypes
import re

from nvfp4.capture import graphs, host_access
from nvfp4.capture.cuda.codes import Code, CudaError, error_name
from nvfp4.capture.cuda.kernel import dynamic_shared_said, examined
from nvfp4.capture.cuda.registry import entry, store
from nvfp4.capture.cuda.runtime import CudaRuntime
from nvfp4.capture.torch_memory import put_noise
from nvfp4.records.launch import Buffer, Dim3
from nvfp4.records.launch_errors import InvalidTensorMap, UnsupportedCall
from nvfp4.records.tensormap import encode_tensor_map

_OF_TEXTURES = re.compile(r"Texture|Surface|ChannelDesc|Array|TexObject|SurfObject")


def dim3_at(address: int) -> Dim3:
    x, y, z = (ctypes.c_uint32 * 3).from_address(address)
    return x, y, z


def _signed(word: int) -> int:
    return ctypes.c_int64(word).value


# Modules


@entry()
def register_module(runtime: CudaRuntime, handle: int) -> None:
    store(handle, runtime.register_module())


@entry()
def register_function(runtime: CudaRuntime, module: int, function: int, name: int) -> None:
    runtime.register_function(module, function, ctypes.string_at(name).decode())


@entry()
def register_variable(runtime: CudaRuntime, module: int, shadow: int, name: int, size: int) -> None:
    runtime.register_variable(module, shadow, ctypes.string_at(name).decode())


@entry()
def register_managed(runtime: CudaRuntime, module: int, pointer: int, name: int, size: int) -> None:
    raise UnsupportedCall(
        f"__managed__ variables ({ctypes.string_at(name).decode()}) are not emulated",
        hint="use a __device__ variable and cudaMemcpyToSymbol, or a tensor",
    )


# Launches


@entry()
def launch(
    runtime: CudaRuntime,
    function: int,
    grid: int,
    block: int,
    cluster: int,
    arguments: int,
    shared_bytes: int,
    stream: int,
) -> None:
    runtime.refuse_destroyed(stream)
    dims = dim3_at(grid), dim3_at(block), dim3_at(cluster)
    runtime.launch(function, *dims, arguments, shared_bytes, stream)


@entry("cudaFuncSetAttribute")
def set_function_attribute(runtime: CudaRuntime, function: int, which: int, value: int) -> None:
    kernel = runtime.kernel(function)
    if which != 8:  # cudaFuncAttributeMaxDynamicSharedMemorySize
        return
    most = runtime.device.shared_bytes_per_block - kernel.resources.shared_bytes
    with examined(kernel, runtime.examine):
        if not 0 <= _signed(value) <= most:
            raise CudaError(
                Code.INVALID_VALUE,
                f"{kernel.name}: {_signed(value)} bytes of dynamic shared memory; "
                f"{most} are the most on {runtime.device.name}",
            )
    kernel.shared_asked_for = value


@entry()
def function_handle(runtime: CudaRuntime, target: int, function: int) -> None:
    """The host's address of a kernel is its handle, too."""
    runtime.kernel(function)
    store(target, function)


@entry()
def function_numbers(runtime: CudaRuntime, function: int, numbers: int) -> None:
    kernel = runtime.kernel(function)
    used, device = kernel.resources, runtime.device
    by_registers = device.attributes[12] // max(1, -(-used.registers // 8) * 8) // 32 * 32
    values = (
        used.shared_bytes,
        0,
        used.local_bytes,
        min(kernel.most_threads or 1024, by_registers, 1024),
        used.registers,
        dynamic_shared_said(kernel, device),
        device.capability[0] * 10 + device.capability[1],
    )
    target = (ctypes.c_int64 * len(values)).from_address(numbers)
    for index, value in enumerate(values):
        target[index] = value


def blocks_per_multiprocessor(
    runtime: CudaRuntime, function: int, threads: int, shared_bytes: int
) -> int:
    """How many blocks of a kernel fit at once."""
    used, device = runtime.kernel(function).resources, runtime.device
    warps = -(-threads // 32)
    by_registers = device.attributes[82] // max(1, -(-used.registers // 8) * 8 * 32 * warps)
    return min(
        device.attributes[106],
        device.threads_per_multiprocessor // max(threads, 1),
        by_registers,
        device.shared_bytes_per_multiprocessor
        // (shared_bytes + used.shared_bytes + device.attributes[111]),
    )


@entry()
def occupancy(
    runtime: CudaRuntime, blocks: int, function: int, threads: int, shared_bytes: int
) -> None:
    count = blocks_per_multiprocessor(runtime, function, threads, shared_bytes)
    store(blocks, count, ctypes.c_int32)


@entry()
def available_shared(
    runtime: CudaRuntime, target: int, function: int, blocks: int, threads: int
) -> None:
    device, used = runtime.device, runtime.kernel(function).resources
    share = device.shared_bytes_per_multiprocessor // max(blocks, 1) - device.attributes[111]
    store(target, max(0, min(share, device.shared_bytes_per_block) - used.shared_bytes))


# Memory


@entry()
def cudaMalloc(runtime: CudaRuntime, target: int, size: int) -> None:
    host_memory(runtime, target, size)
    address = ctypes.c_uint64.from_address(target).value
    put_noise(address, size)
    host_access.wrote(address, size)


@entry()
def host_memory(runtime: CudaRuntime, target: int, size: int) -> None:
    """Managed or of the host, whose pages are cleared before a process gets them."""
    if size > runtime.device.memory_bytes:
        raise CudaError(Code.MEMORY_ALLOCATION, f"{size} bytes")
    store(target, runtime.allocate(size) if size else 0)


@entry()
def cudaFree(runtime: CudaRuntime, address: int) -> None:
    if address and not runtime.free(address):
        raise CudaError(Code.INVALID_VALUE, f"cudaFree of {address:#x}, which is not allocated")


def _on_device(runtime: CudaRuntime, address: int, size: int, doing: str) -> Buffer | None:
    """The buffer that holds a range; None for host memory. Raises CudaError at its end."""
    buffer = runtime.buffer_at(address)
    if buffer is not None and address + size > buffer.end:
        raise CudaError(
            Code.INVALID_VALUE,
            f"{doing} of {size} bytes ends {address + size - buffer.end} bytes past {buffer.name}",
        )
    return buffer


@entry()
def cudaMemset(runtime: CudaRuntime, address: int, value: int, size: int) -> None:
    if not size:
        return
    if _on_device(runtime, address, size, "cudaMemset") is None:
        raise CudaError(Code.INVALID_VALUE, f"cudaMemset of {address:#x}, no device memory")

    def fill() -> None:
        ctypes.memset(address, value & 0xFF, size)
        host_access.wrote(address, size)

    graphs.do(fill)


@entry()
def cudaMemset2D(
    runtime: CudaRuntime, address: int, pitch: int, value: int, width: int, height: int
) -> None:
    for row in range(height):
        cudaMemset(runtime, address + row * pitch, value, width)


@entry()
def cudaMemcpy(runtime: CudaRuntime, to: int, source: int, size: int, kind: int) -> None:
    if not size:
        return
    on_device = [_on_device(runtime, each, size, "cudaMemcpy") for each in (source, to)]
    # cudaMemcpyKind: which of source and target are the device's; 4 leaves it to the addresses.
    expected = {0: (False, False), 1: (False, True), 2: (True, False), 3: (True, True)}.get(kind)
    for buffer, device, what in zip(on_device, expected or (), ("source", "target"), strict=False):
        if device and buffer is None:
            raise CudaError(Code.INVALID_VALUE, f"cudaMemcpy: its {what} is no device memory")

    def copy() -> None:
        if on_device[0] is not None:
            host_access.reads(source, size)
        ctypes.memmove(to, source, size)
        if on_device[1] is not None:
            host_access.wrote(to, size)

    graphs.do(copy)


@entry()
def cudaMemcpy2D(
    runtime: CudaRuntime,
    to: int,
    to_pitch: int,
    source: int,
    source_pitch: int,
    width: int,
    height: int,
    kind: int,
) -> None:
    for row in range(height):
        cudaMemcpy(runtime, to + row * to_pitch, source + row * source_pitch, width, kind)


def _symbol_range(runtime: CudaRuntime, shadow: int, size: int, offset: int) -> int:
    variable = runtime.variable(shadow)
    if offset + size > variable.nbytes:
        raise CudaError(
            Code.INVALID_VALUE,
            f"{size} bytes at {offset} of {variable.name}, which has {variable.nbytes}",
        )
    return variable.address + offset


@entry()
def copy_to_symbol(runtime: CudaRuntime, shadow: int, source: int, size: int, offset: int) -> None:
    to = _symbol_range(runtime, shadow, size, offset)
    graphs.do(lambda: ctypes.memmove(to, source, size))


@entry()
def copy_from_symbol(runtime: CudaRuntime, to: int, shadow: int, size: int, offset: int) -> None:
    source = _symbol_range(runtime, shadow, size, offset)
    graphs.do(lambda: ctypes.memmove(to, source, size))


@entry()
def symbol(runtime: CudaRuntime, shadow: int, address: int, size: int) -> None:
    variable = runtime.variable(shadow)
    store(address, variable.address)
    store(size, variable.nbytes)


@entry()
def is_device_memory(runtime: CudaRuntime, address: int, answer: int) -> None:
    store(answer, runtime.buffer_at(address) is not None, ctypes.c_int32)


@entry()
def cudaMemGetInfo(runtime: CudaRuntime, free: int, total: int) -> None:
    store(free, runtime.device.memory_bytes)
    store(total, runtime.device.memory_bytes)


# Errors


@entry("cudaGetLastError")
def get_last_error(runtime: CudaRuntime) -> int:
    return runtime.take_last_error(clear=True)


@entry("cudaPeekAtLastError")
def peek_at_last_error(runtime: CudaRuntime) -> int:
    return runtime.take_last_error(clear=False)


@entry()
def error_text(runtime: CudaRuntime, code: int, target: int) -> None:
    store(target, runtime.text(runtime.describe(code)))


@entry("error_name")
def name_of_error(runtime: CudaRuntime, code: int, target: int) -> None:
    store(target, runtime.text(error_name(code)))


@entry()
def unsupported(runtime: CudaRuntime, name: int) -> None:
    function = ctypes.string_at(name).decode()
    if _OF_TEXTURES.search(function):
        raise UnsupportedCall(
            f"textures are not emulated, nor are surfaces; host code calls {function}",
            hint="read the memory through a pointer; const __restrict__ and __ldg take the same "
            "read-only cache",
        )
    raise UnsupportedCall(
        f"host code calls {function}, which is not emulated",
        hint="launches, memory, streams, events and attributes of the CUDA runtime are",
    )


@entry()
def tensor_map(
    runtime: CudaRuntime,
    target: int,
    data_type: int,
    rank: int,
    address: int,
    shape: int,
    strides: int,
    box: int,
    steps: int,
    interleave: int,
    swizzle: int,
    promotion: int,
    fill: int,
) -> int:
    modes = (interleave, swizzle, promotion, fill)
    try:
        encode_tensor_map(target, data_type, rank, address, shape, strides, box, steps, modes)
    except InvalidTensorMap as error:
        raise CudaError(Code.INVALID_VALUE, f"cuTensorMapEncodeTiled: {error}") from None
    return 0
