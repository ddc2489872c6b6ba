"""The functions of the CUDA runtime for streams, events and the device; see `calls`."""

from __future__ import annotations

import ctypes

from nvfp4.capture.cuda.codes import Code, CudaError
from nvfp4.capture.cuda.registry import entry, store
from nvfp4.capture.cuda.runtime import CudaRuntime
from nvfp4.capture.errors import UnsupportedCall


@entry()
def new_handle(runtime: CudaRuntime, target: int) -> None:
    store(target, runtime.new_handle())


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
    """All work is done; after a fault `call` has raised already."""


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
