"""The functions of the CUDA runtime that compiled host code calls, by their names.

Each takes the runtime and its arguments as integers, addresses among them, and raises CudaError
for what CUDA refuses. runtime.cpp calls some under names of its own.
"""

import ctypes
import functools
import math
from collections.abc import Callable

from nvfp4.capture import graphs, host_access, stream_order
from nvfp4.capture import kernel as kernels
from nvfp4.capture.codes import Code, CudaError, error_name
from nvfp4.capture.cuda.entries import entry, store
from nvfp4.capture.cuda.runtime import PINNING, WHAT_WORKS, CudaRuntime
from nvfp4.capture.torch_memory import put_noise
from nvfp4.records.launch import Buffer, Dim3, resident_ctas
from nvfp4.records.launch_errors import InvalidTensorMap, UnsupportedCall
from nvfp4.records.tensormap import encode_tensor_map

_ADDRESS, _INT = ctypes.c_uint64, ctypes.c_int32
_DYNAMIC_SHARED = 8  # cudaFuncAttributeMaxDynamicSharedMemorySize
_CARVEOUT = 9  # cudaFuncAttributePreferredSharedMemoryCarveout, in percent or -1
_CLUSTER_SIZES = (11, 12, 13)  # cudaFuncAttributeRequiredClusterWidth, ...Height, ...Depth
_NON_BLOCKING = 1

# Methods of the runtime.
_methods = (CudaRuntime.register_function, CudaRuntime.register_variable)
for _method in (*_methods, CudaRuntime.take_last_error):
    entry(_method.__name__)(_method)
for _giving in (CudaRuntime.register_module, CudaRuntime.new_handle):
    entry(_giving.__name__, gives=_ADDRESS)(_giving)


def _dim3_at(address: int) -> Dim3:
    x, y, z = (ctypes.c_uint32 * 3).from_address(address)
    return x, y, z


# Modules and launches


_workspace_bytes = 256
"""Size of the workspace with its barrier, as in `cooperative_groups/details/driver_abi.h`. %envreg1
and %envreg2 hold the upper and the lower half of its address."""


@functools.cache
def _workspace(runtime: CudaRuntime) -> int:
    """Return the address of the word that grid.sync() counts in.

    It is the same for all launches, since it is part of the PTX that runs.
    """
    return runtime.allocate(_workspace_bytes, "a grid's barrier")


def grid_barrier(
    runtime: CudaRuntime, function: int, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int,
    stream: int,
) -> dict[str, int]:  # fmt: skip
    """Prepare the barrier of a grid whose blocks all run at once; return the special registers with
    its address. Raises CudaError if the blocks do not fit."""
    kernel, device = runtime.kernel(function), runtime.device
    each = kernels.blocks_per_multiprocessor(kernel, device, math.prod(block), shared_bytes)
    size = max(1, math.prod(kernel.clusters(cluster)))
    most, blocks = resident_ctas(device.multiprocessors, each, size), math.prod(grid)
    if blocks > most:
        message = f"{kernel.name}: {blocks} blocks, of which {most} fit on {device.name} at once"
        raise CudaError(Code.COOPERATIVE_LAUNCH_TOO_LARGE, message)
    workspace = _workspace(runtime)
    cleared = _workspace_bytes.to_bytes(4, "little") + bytes(_workspace_bytes - 4)
    graphs.do(stream, lambda: host_access.put(workspace, cleared))
    return {"%envreg1": workspace >> 32, "%envreg2": workspace & 0xFFFFFFFF}


@entry()
def launch(
    runtime: CudaRuntime, function: int, grid: int, block: int, cluster: int, arguments: int,
    shared_bytes: int, stream: int, programmatic: int, cooperative: int
) -> None:  # fmt: skip
    dims = _dim3_at(grid), _dim3_at(block), _dim3_at(cluster)
    registers = grid_barrier(runtime, function, *dims, shared_bytes, stream) if cooperative else {}
    early = bool(programmatic and not cooperative)
    runtime.launch(function, *dims, arguments, shared_bytes, stream, registers, early)


# Functions and their limits


@entry("cudaFuncSetAttribute")
def set_function_attribute(runtime: CudaRuntime, function: int, which: int, value: int) -> None:
    kernel = runtime.kernel(function)
    if which == _DYNAMIC_SHARED:
        with kernels.examined(kernel, runtime.examine):
            kernels.allow_dynamic_shared(kernel, runtime.device, ctypes.c_int64(value).value)
    elif which == _CARVEOUT and not -1 <= (percent := ctypes.c_int32(value).value) <= 100:
        raise CudaError(Code.INVALID_VALUE, f"{kernel.name}: a carveout of {percent} %")
    elif which == kernels.LARGE_CLUSTERS:
        kernel.large_clusters = bool(value)
    elif which in _CLUSTER_SIZES:
        no_attribute(runtime, which)


@entry()
def no_attribute(runtime: CudaRuntime, which: int) -> None:
    message = f"attribute {which} of launches or kernels is not emulated"
    raise CudaError(Code.NOT_SUPPORTED, message)


@entry(gives=_INT)
def function_attribute(runtime: CudaRuntime, function: int, which: int) -> int:
    """Return a kernel's attribute by its CUfunction_attribute; 0 for others."""
    return kernels.kernel_attributes(runtime.kernel(function), runtime.device).get(which, 0)


@entry(gives=_INT)
def occupancy(runtime: CudaRuntime, function: int, threads: int, shared_bytes: int) -> int:
    kernel, device = runtime.kernel(function), runtime.device
    if not 0 < threads < 1 << 31:
        raise CudaError(Code.INVALID_VALUE, f"the occupancy of blocks of {threads} threads")
    if threads > 1024 or shared_bytes > kernels.dynamic_shared_limit(kernel, device):
        return 0
    return kernels.blocks_per_multiprocessor(kernel, device, threads, shared_bytes)


# Memory


def _allocate(runtime: CudaRuntime, size: int, by: str, shared: bool = False) -> int:
    """Allocate memory by a function of CUDA and return its address. shared: whether host code can
    access it. Raises CudaError, and NotWhileCapturing."""
    stream_order.refuse_capture("memory is allocated")
    if size > runtime.device.memory_bytes:
        raise CudaError(Code.MEMORY_ALLOCATION, f"{size} bytes")
    return runtime.allocate(size, by, shared) if size else 0


@entry(gives=_ADDRESS)
def cudaMalloc(runtime: CudaRuntime, size: int) -> int:
    """Allocate memory of the device alone, filled with noise."""
    address = _allocate(runtime, size, "cudaMalloc")
    put_noise(address, size)
    host_access.wrote(address, size)
    return address


@entry(gives=_ADDRESS)
def host_memory(runtime: CudaRuntime, size: int, managed: int) -> int:
    """Allocate managed or pinned memory, whose pages are zero at first."""
    return _allocate(runtime, size, "cudaMallocManaged" if managed else PINNING, shared=True)


@entry()
def cudaFreeAsync(runtime: CudaRuntime, address: int, pinned: int) -> None:
    if address and not runtime.free(address, bool(pinned)):
        by = "cudaFreeHost" if pinned else "cudaFree"
        raise CudaError(Code.INVALID_VALUE, f"{by} of {address:#x}, which is none of its memory")


@entry()
def cudaFree(runtime: CudaRuntime, address: int, pinned: int) -> None:
    if address:
        stream_order.synchronize()
    cudaFreeAsync(runtime, address, pinned)


def _on_device(runtime: CudaRuntime, address: int, size: int, doing: str) -> Buffer | None:
    """Return the buffer that holds a range; None for host memory. Raises CudaError for a range that
    reaches past it."""
    buffer = runtime.buffer_at(address)
    if buffer is not None and address + size > buffer.end:
        raise CudaError(
            Code.INVALID_VALUE,
            f"{doing} of {size} bytes ends {address + size - buffer.end} bytes past {buffer.name}",
        )
    return buffer


@entry()
def cudaMemset(runtime: CudaRuntime, address: int, value: int, size: int, stream: int) -> None:
    if not size:
        return
    if _on_device(runtime, address, size, "cudaMemset") is None:
        raise CudaError(Code.INVALID_VALUE, f"cudaMemset of {address:#x}, no device memory")
    data = bytes([value & 0xFF]) * size

    def fill() -> None:
        host_access.put(address, data)
        # Copies have a predicted time: to read and write a half takes as long as to write all.
        host_access.copy(address, address, size // 2)

    graphs.do_in(stream, "cudaMemset", fill, reads=False)


@entry()
def cudaMemcpy(
    runtime: CudaRuntime, to: int, source: int, size: int, kind: int, stream: int, blocking: int
) -> None:
    if not size:
        return
    found = [_on_device(runtime, each, size, "cudaMemcpy") for each in (source, to)]
    # cudaMemcpyKind: which of source and target are the device's; 4 leaves it to the addresses.
    expected = {0: (False, False), 1: (False, True), 2: (True, False), 3: (True, True)}.get(kind)
    for buffer, device, what in zip(found, expected or (), ("source", "target"), strict=False):
        if device and buffer is None:
            raise CudaError(Code.INVALID_VALUE, f"cudaMemcpy: its {what} is no device memory")
    if None not in found and 0 < abs(to - source) < size:
        raise CudaError(Code.INVALID_VALUE, "cudaMemcpy: source and target may not overlap")

    def copy() -> None:
        if None not in found:
            host_access.copy(to, source, size)
        elif found[0] is not None:
            ctypes.memmove(to, host_access.get(source, size), size)
        elif found[1] is not None:
            host_access.put(to, ctypes.string_at(source, size))
        else:
            ctypes.memmove(to, source, size)

    if found[1] is None or (blocking and (found[0] is None or kind in (1, 2))):
        stream_order.synchronize(stream)
    if None in found:
        graphs.do(stream, copy)
    else:
        graphs.do_in(stream, "cudaMemcpy", copy)


@entry()
def copy_to_symbol(runtime: CudaRuntime, shadow: int, source: int, size: int, offset: int) -> None:
    variable = runtime.variable(shadow)
    if offset + size > variable.nbytes:
        message = f"{size} bytes at {offset} of {variable.name}, which has {variable.nbytes}"
        raise CudaError(Code.INVALID_VALUE, message)
    cudaMemcpy(runtime, variable.address + offset, source, size, 4, 0, blocking=True)


@entry(gives=_ADDRESS)
def symbol_address(runtime: CudaRuntime, shadow: int) -> int:
    return runtime.variable(shadow).address


@entry()
def cudaMemGetInfo(runtime: CudaRuntime, free: int, total: int) -> None:
    store(free, runtime.device.memory_bytes)
    store(total, runtime.device.memory_bytes)


# Streams and events: all work is done when a call returns; after a fault `entries.call` has raised.


@entry()
def destroy(runtime: CudaRuntime, event: int) -> None:
    """Destroy an event, or a stream other than the default one."""
    runtime.destroyed.add(event)


@entry(gives=_ADDRESS)
def new_stream(runtime: CudaRuntime, flags: int) -> int:
    handle = runtime.new_handle()
    stream_order.made(handle, blocking=not flags & _NON_BLOCKING)
    return handle


_of_streams: dict[str, Callable[..., None]] = {
    "record_event": lambda _, event, stream: stream_order.record(event, stream),
    "stream_waits": lambda _, stream, event: stream_order.wait(stream, event),
    "synchronize_stream": lambda _, stream: stream_order.synchronize(stream),
    "synchronize_event": lambda _, event: stream_order.synchronize_event(event),
    "cudaDeviceSynchronize": lambda _: stream_order.synchronize(),
}
for _name, _function in _of_streams.items():
    entry(_name)(_function)


@entry()
def no_time(runtime: CudaRuntime) -> None:
    message = "cudaEventElapsedTime: no time can be measured without a GPU"
    raise CudaError(Code.NOT_SUPPORTED, message)


# The device


@entry()
def cudaSetDevice(runtime: CudaRuntime, device: int) -> None:
    if device:
        raise CudaError(Code.INVALID_DEVICE, f"device {device}: there is only device 0")


@entry(gives=_INT)
def cudaDeviceGetAttribute(runtime: CudaRuntime, which: int, device: int) -> int:
    cudaSetDevice(runtime, device)
    return runtime.device.attribute(which)


@entry(gives=_INT)
def device_number(runtime: CudaRuntime, which: int) -> int:
    return runtime.device.attributes.get(which, 0)


@entry()
def device_name(runtime: CudaRuntime, target: int, size: int) -> None:
    name = runtime.device.name.encode()[: size - 1] + b"\0"
    ctypes.memmove(target, name, len(name))


# Errors


@entry(gives=_ADDRESS)
def error_text(runtime: CudaRuntime, code: int) -> int:
    return runtime.text(runtime.describe(code))


@entry("error_name", gives=_ADDRESS)
def name_of_error(runtime: CudaRuntime, code: int) -> int:
    return runtime.text(error_name(code))


@entry()
def unsupported(runtime: CudaRuntime, function: str) -> None:
    raise UnsupportedCall(f"host code calls {function}, which is not emulated", hint=WHAT_WORKS)


@entry(count=12)
def tensor_map(runtime: CudaRuntime, *given: int) -> None:
    try:
        encode_tensor_map(*given)
    except InvalidTensorMap as error:
        raise CudaError(Code.INVALID_VALUE, f"cuTensorMapEncodeTiled: {error}") from None
