"""The functions of the CUDA driver that differ from those of the runtime in `calls`.

driver.cpp calls them. A CUmodule or CUlibrary is a module's handle, a CUfunction or CUkernel a
kernel's.
"""

import ctypes
import hashlib
import tempfile
from pathlib import Path

from nvfp4.capture.codes import Code, CudaError, driver_error_name
from nvfp4.capture.cuda.architectures import BY_NVRTC, OLDEST, Image
from nvfp4.capture.cuda.calls import allocate_unset, set_values
from nvfp4.capture.cuda.compilers import TARGET, CompileError, assemble, what_helps
from nvfp4.capture.cuda.entries import entry, store
from nvfp4.capture.cuda.runtime import CudaRuntime
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.capture.device import Device, runs_on
from nvfp4.capture.kernel import Resources
from nvfp4.records.launch import Buffer
from nvfp4.records.launch_errors import UnsupportedCall

_ADDRESS = ctypes.c_uint64
_ELF = b"\x7fELF"
_FATBIN = (b"\x50\xed\x55\xba", b"\xb1\x43\x62\x46")
_HOST_MEMORY, _DEVICE_MEMORY = 1, 2  # CUmemorytype

_assembled: dict[str, dict[str, Resources]] = {}


@entry()
def driver_init(runtime: CudaRuntime) -> None:
    """There is a device, as long as there is an emulation."""


# Modules


@entry(gives=_ADDRESS)
def module_load(runtime: CudaRuntime, image: int) -> int:
    if not image:
        raise CudaError(Code.INVALID_VALUE, "no image of a module")
    start = ctypes.string_at(image, 4)
    if start == _ELF or start in _FATBIN:
        raise UnsupportedCall(
            "machine code (a cubin or fatbin) was loaded, which cannot be emulated",
            hint="load the PTX: nvcc -ptx, nvrtcGetPTX, or CUDA text through NVRTC",
        )
    return load_module(runtime, ctypes.string_at(image).decode(errors="replace"))


def load_module(runtime: CudaRuntime, ptx: str) -> int:
    """The handle of a module of PTX. Raises CudaError."""
    return runtime.add_module((ptx,), _resources(ptx, runtime.device))


@entry(gives=_ADDRESS)
def module_load_file(runtime: CudaRuntime, name: str) -> int:
    path = Path(name)
    if not path.is_file():
        raise CudaError(Code.FILE_NOT_FOUND, name)
    image = ctypes.create_string_buffer(path.read_bytes())
    return module_load(runtime, ctypes.addressof(image))


def _resources(text: str, device: Device) -> dict[str, Resources]:
    """By ptxas, which refuses what the driver's compiler would. Raises CudaError."""
    if ".entry" not in text and ".version" not in text:
        raise CudaError(Code.INVALID_KERNEL_IMAGE, "this is no PTX")
    target = TARGET.search(text)
    virtual = f"compute_{target[1]}" if target else OLDEST
    if not runs_on(virtual, device.capability):
        message = f"the module is for {virtual.replace('compute', 'sm')}, not for {device.name}"
        raise CudaError(Code.NO_KERNEL_IMAGE_FOR_DEVICE, message)
    arch = Image(virtual, virtual).assembled(device.capability)
    key = hashlib.sha256(f"{arch}\n{text}".encode()).hexdigest()
    if key not in _assembled:
        with tempfile.TemporaryDirectory(prefix="nvfp4-ptx-") as folder:
            path = Path(folder, "module.ptx")
            path.write_text(text, encoding="utf-8")
            try:
                _assembled[key] = assemble(find_toolchain(), path, arch)
            except CompileError as error:
                of = (error.message, path, virtual, device.capability, BY_NVRTC)
                hint = what_helps(find_toolchain(), *of)
                said = f"{error.message}\n{hint}" if hint else error.message
                raise CudaError(Code.INVALID_PTX, said) from None
    return _assembled[key]


@entry()
def module_variable(runtime: CudaRuntime, address: int, size: int, module: int, name: str) -> None:
    _store_range(runtime.variable_of(module, name), address, size)


def _store_range(buffer: Buffer, address: int, size: int) -> None:
    """Where C++ wants it; it may want one of the two."""
    if address:
        store(address, buffer.address)
    if size:
        store(size, buffer.nbytes)


@entry(gives=_ADDRESS)
def kernel_name(runtime: CudaRuntime, function: int) -> int:
    return runtime.text(runtime.kernel(function).name)


@entry()
def launch_packed(runtime: CudaRuntime, function: int) -> None:
    raise UnsupportedCall(
        f"{runtime.kernel(function).name} is launched with packed parameters (`extra`)",
        hint="pass an array of pointers (kernelParams) instead",
    )


# Memory


@entry("cuMemAlloc", gives=_ADDRESS)
def allocate(runtime: CudaRuntime, size: int) -> int:
    if not size:
        raise CudaError(Code.INVALID_VALUE, "cuMemAlloc of 0 bytes")
    return allocate_unset(runtime, size, "cuMemAlloc")


@entry()
def fill(runtime: CudaRuntime, address: int, value: int, width: int, count: int) -> None:
    set_values(runtime, address, value, width, count, f"cuMemsetD{8 * width}")


@entry()
def address_range(runtime: CudaRuntime, start: int, size: int, address: int) -> None:
    buffer = runtime.buffer_at(address)
    if buffer is None:
        raise CudaError(Code.INVALID_VALUE, f"{address:#x} is no device memory")
    _store_range(buffer, start, size)


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


@entry("driver_error_name", gives=_ADDRESS)
def name_of_error(runtime: CudaRuntime, code: int) -> int:
    return runtime.text(driver_error_name(code))
