"""The functions of the CUDA runtime for streams, events and the device; see `calls`."""

from __future__ import annotations

import ctypes

from nvfp4.capture import stream_order
from nvfp4.capture.cuda.codes import Code, CudaError
from nvfp4.capture.cuda.registry import entry, store
from nvfp4.capture.cuda.runtime import CudaRuntime
from nvfp4.records.launch_errors import UnsupportedCall

_NON_BLOCKING = 1


@entry()
def new_handle(runtime: CudaRuntime, target: int) -> None:
    store(target, runtime.new_handle())


@entry()
def new_stream(runtime: CudaRuntime, target: int, flags: int) -> None:
    handle = runtime.new_handle()
    stream_order.made(handle, blocking=not flags & _NON_BLOCKING)
    store(target, handle)


@entry()
def record_event(runtime: CudaRuntime, event: int, stream: int) -> None:
    runtime.refuse_destroyed(event)
    stream_order.record(event, stream)


@entry()
def stream_waits(runtime: CudaRuntime, stream: int, event: int) -> None:
    runtime.refuse_destroyed(event)
    stream_order.wait(stream, event)


@entry()
def synchronize_stream(runtime: CudaRuntime, stream: int) -> None:
    """All work is done; after a fault `call` has raised already."""
    stream_order.synchronize(stream)


@entry()
def synchronize_event(runtime: CudaRuntime, event: int) -> None:
    stream_order.synchronize_event(event)


@entry()
def destroy(runtime: CudaRuntime, handle: int) -> None:
    runtime.destroy(handle)


@entry()
def alive(runtime: CudaRuntime, handle: int) -> None:
    runtime.refuse_destroyed(handle)


@entry()
def no_time(runtime: CudaRuntime) -> None:
    raise CudaError(
        Code.NOT_SUPPORTED, "cudaEventElapsedTime: no time can be measured without a GPU"
    )


@entry()
def cudaSetDevice(runtime: CudaRuntime, device: int) -> None:
    if device:
        raise CudaError(Code.INVALID_DEVICE, f"device {device}; there is device 0 alone")


@entry()
def cudaDeviceSynchronize(runtime: CudaRuntime) -> None:
    stream_order.synchronize()


@entry()
def cudaDeviceGetAttribute(runtime: CudaRuntime, target: int, which: int) -> None:
    if which not in runtime.device.attributes:
        raise UnsupportedCall(f"host code asks for device attribute {which}, which is not known")
    store(target, runtime.device.attributes[which], ctypes.c_int32)


@entry()
def device_number(runtime: CudaRuntime, target: int, which: int) -> None:
    store(target, runtime.device.attributes.get(which, 0), ctypes.c_int32)


@entry()
def device_name(runtime: CudaRuntime, target: int, size: int) -> None:
    name = runtime.device.name.encode()[: size - 1] + b"\0"
    ctypes.memmove(target, name, len(name))
