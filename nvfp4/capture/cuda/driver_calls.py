"""The functions of the CUDA driver that differ from those of the runtime in `calls`.

driver.cpp calls them. A CUmodule or CUlibrary is a module's handle, a CUfunction or CUkernel a
kernel's.
"""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from pathlib import Path

from nvfp4.capture import host_access
from nvfp4.capture.cuda.codes import Code, CudaError, driver_error_name
from nvfp4.capture.cuda.compilers import CompileError, Resources, assemble
from nvfp4.capture.cuda.registry import entry, store
from nvfp4.capture.cuda.runtime import CudaRuntime
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.capture.torch_memory import put_noise
from nvfp4.records.launch_errors import UnsupportedCall

_ELF = b"\x7fELF"
_FATBIN = (b"\x50\xed\x55\xba", b"\xb1\x43\x62\x46")
_HOST_MEMORY, _DEVICE_MEMORY = 1, 2  # CUmemorytype

_assembled: dict[str, dict[str, Resources]] = {}


@entry()
def driver_init(runtime: CudaRuntime) -> None:
    """There is a device, as long as there is an emulation."""


# Modules


@entry()
def module_load(runtime: CudaRuntime, handle: int, image: int) -> None:
    if not image:
        raise CudaError(Code.INVALID_VALUE, "no image of a module")
    start = ctypes.string_at(image, 4)
    if start == _ELF or start in _FATBIN:
        raise UnsupportedCall(
            "machine code (a cubin or fatbin) was loaded, which cannot be emulated",
            hint="load the PTX: nvcc -ptx, nvrtcGetPTX, or CUDA text through NVRTC",
        )
    store(handle, load_module(runtime, ctypes.string_at(image).decode(errors="replace")))


def load_module(runtime: CudaRuntime, ptx: str) -> int:
    """The handle of a module of PTX. Raises CudaError."""
    return runtime.add_module((ptx,), _resources(ptx, runtime.device.arch))


@entry()
def module_load_file(runtime: CudaRuntime, handle: int, name: int) -> None:
    path = Path(ctypes.string_at(name).decode())
    if not path.is_file():
        raise CudaError(Code.FILE_NOT_FOUND, str(path))
    image = ctypes.create_string_buffer(path.read_bytes())
    module_load(runtime, handle, ctypes.addressof(image))


def _resources(text: str, arch: str) -> dict[str, Resources]:
    """By ptxas, which refuses what the driver's compiler would. Raises CudaError."""
    if ".entry" not in text and ".version" not in text:
        raise CudaError(Code.INVALID_KERNEL_IMAGE, "this is no PTX")
    key = hashlib.sha256(f"{arch}\n{text}".encode()).hexdigest()
    if key not in _assembled:
        with tempfile.TemporaryDirectory(prefix="nvfp4-ptx-") as folder:
            path = Path(folder, "module.ptx")
            path.write_text(text, encoding="utf-8")
            try:
                _assembled[key] = assemble(find_toolchain(), path, arch)
            except CompileError as error:
                raise CudaError(Code.INVALID_PTX, error.message) from None
    return _assembled[key]


@entry()
def module_unload(runtime: CudaRuntime, handle: int) -> None:
    runtime.drop_module(handle)


@entry()
def module_function(runtime: CudaRuntime, target: int, module: int, name: int) -> None:
    store(target, runtime.function(module, ctypes.string_at(name).decode()))


@entry()
def module_variable(runtime: CudaRuntime, address: int, size: int, module: int, name: int) -> None:
    variable = runtime.variable_of(module, ctypes.string_at(name).decode())
    if address:
        store(address, variable.address)
    if size:
        store(size, variable.nbytes)


@entry()
def kernel_name(runtime: CudaRuntime, target: int, function: int) -> None:
    store(target, runtime.text(runtime.kernel(function).name))


@entry()
def launch_packed(runtime: CudaRuntime, function: int) -> None:
    raise UnsupportedCall(
        f"{runtime.kernel(function).name} is launched with packed parameters (`extra`)",
        hint="pass an array of pointers (kernelParams) instead",
    )


# Memory


@entry("cuMemAlloc")
def allocate(runtime: CudaRuntime, target: int, size: int) -> None:
    if not size:
        raise CudaError(Code.INVALID_VALUE, "cuMemAlloc of 0 bytes")
    if size > runtime.device.memory_bytes:
        raise CudaError(Code.MEMORY_ALLOCATION, f"{size} bytes")
    address = runtime.allocate(size, "cuMemAlloc")
    put_noise(address, size)
    host_access.wrote(address, size)
    store(target, address)


@entry()
def fill(runtime: CudaRuntime, address: int, value: int, width: int, count: int) -> None:
    """Count values of a width in bytes; cuMemsetD8, D16, D32."""
    buffer = runtime.buffer_at(address)
    if buffer is None:
        raise CudaError(Code.INVALID_VALUE, f"cuMemsetD{8 * width} of {address:#x}")
    if address + width * count > buffer.end:
        raise CudaError(
            Code.INVALID_VALUE,
            f"cuMemsetD{8 * width} ends {address + width * count - buffer.end} bytes past "
            f"{buffer.name}",
        )
    value &= (1 << 8 * width) - 1
    data = value.to_bytes(width, "little") * count
    ctypes.memmove(address, data, len(data))
    host_access.wrote(address, len(data))


@entry()
def address_range(runtime: CudaRuntime, start: int, size: int, address: int) -> None:
    buffer = runtime.buffer_at(address)
    if buffer is None:
        raise CudaError(Code.INVALID_VALUE, f"{address:#x} is no device memory")
    if start:
        store(start, buffer.address)
    if size:
        store(size, buffer.nbytes)


@entry()
def pointer_attribute(runtime: CudaRuntime, target: int, which: int, address: int) -> None:
    """CUpointer_attribute: of host memory and of device memory."""
    buffer = runtime.buffer_at(address)
    if which == 2:
        kind = _HOST_MEMORY if buffer is None else _DEVICE_MEMORY
        store(target, kind if address else 0, ctypes.c_uint32)
    elif which == 3:
        store(target, 0 if buffer is None else address)
    elif which in (8, 9):  # whether it is managed; the device's number
        store(target, 0, ctypes.c_uint32)
    elif which == 11:
        store(target, buffer.address if buffer else 0)
    elif which == 12:
        store(target, buffer.nbytes if buffer else 0)
    else:
        raise CudaError(Code.NOT_SUPPORTED, f"attribute {which} of a pointer is not known")


# Errors


@entry("driver_error_name")
def name_of_error(runtime: CudaRuntime, code: int, target: int) -> None:
    store(target, runtime.text(driver_error_name(code)))
