"""Memory of a CUDA device that another process opens by a descriptor, and a flag in it."""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from nvfp4.records.files import kilobytes


def default_device() -> torch.device:
    """CUDA if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


Place = Callable[[int, int], torch.Tensor]
"""Returns the flat uint8 tensor at an offset, given its size in bytes."""

# As in cuda.h: pinned memory, of a device, by descriptor.
_pinned = _on_device = _descriptor = 1
_read_and_write = 3
_out_of_memory = 2
_size, _none = ctypes.c_size_t, ctypes.c_uint64()


class _Mapping:
    """A mapping of device memory that lasts as long as a tensor uses it."""

    def __init__(self, handle: ctypes.c_uint64, nbytes: int, device: torch.device) -> None:
        """Map the memory of `handle`, and release the handle."""
        self._driver, self._where = _driver(), (ctypes.c_uint64(), _size(nbytes))
        self._device = device
        at, size = self._where
        access = (ctypes.c_int * 3)(_on_device, _number(device), _read_and_write)
        _call("cuMemAddressReserve", ctypes.byref(at), size, _size(), _none, _none)
        _call("cuMemMap", at, size, _size(), handle, _none)
        _call("cuMemSetAccess", at, size, access, _size(1))
        _call("cuMemRelease", handle)

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be about to end
            self._driver.cuCtxSynchronize()
            self._driver.cuMemUnmap(*self._where)
            self._driver.cuMemAddressFree(*self._where)

    def place(self, offset: int, nbytes: int) -> torch.Tensor:
        part = _Part()
        part.mapping = self
        part.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self._where[0].value + offset, False),
            "version": 3,
        }
        return torch.as_tensor(part, device=self._device)


class _Part:
    """The object from which torch makes a tensor, and which the tensor keeps."""

    mapping: _Mapping
    __cuda_array_interface__: dict[str, Any]


def allocate(nbytes: int, device: torch.device) -> tuple[int, Place]:
    """Return a new descriptor and its memory. Raises torch.cuda.OutOfMemoryError, RuntimeError."""
    properties, size = _properties(nbytes, device)
    handle, fd = ctypes.c_uint64(), ctypes.c_int()
    for _ in range(2):
        code = _driver().cuMemCreate(ctypes.byref(handle), size, properties, _none)
        if code != _out_of_memory:
            break
        torch.cuda.empty_cache()
    if code == _out_of_memory:
        raise torch.cuda.OutOfMemoryError(f"the device has no {nbytes} bytes left")
    _refuse("cuMemCreate", code)
    _call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _descriptor, _none)
    return fd.value, _Mapping(handle, size.value, device).place


def open_memory(fd: int, nbytes: int, device: torch.device) -> Place:
    """Map what another process has allocated; closes the descriptor. Raises RuntimeError."""
    _, size = _properties(nbytes, device)
    handle, file = ctypes.c_uint64(), ctypes.c_void_p(fd)
    _call("cuMemImportFromShareableHandle", ctypes.byref(handle), file, _descriptor)
    os.close(fd)
    return _Mapping(handle, size.value, device).place


def _properties(nbytes: int, device: torch.device) -> tuple[Any, ctypes.c_size_t]:
    """Return CUmemAllocationProp, and the size rounded up to what the device can map."""
    torch.cuda.synchronize(device)  # makes the context
    properties = (ctypes.c_int * 8)(_pinned, _descriptor, _on_device, _number(device))
    unit = _size()
    _call("cuMemGetAllocationGranularity", ctypes.byref(unit), properties, 0)
    return properties, _size(-(-nbytes // unit.value) * unit.value)


def _number(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    _refuse(name, getattr(_driver(), name)(*arguments))


def _refuse(name: str, code: int) -> None:
    if code:
        raise RuntimeError(f"{name} failed with CUDA error {code}")


def free_memory_bytes(device: torch.device) -> int:
    """Return the free memory of a GPU, or of the host for device cpu."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    everything = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return kilobytes("/proc/meminfo").get("MemAvailable", everything)


_flag_bytes = 4
_greater_or_equal = 0  # CU_STREAM_WAIT_VALUE_GEQ of the CUDA driver


class Gate:
    """The side that opens the gate. ``fd`` is what the other side needs to wait there."""

    def __init__(self, device: torch.device) -> None:
        self.fd, place = allocate(_flag_bytes, device)
        self._flag = place(0, _flag_bytes).view(torch.int32)
        self.shut()

    def shut(self) -> None:
        """Make work that is queued after this wait until the gate opens."""
        self._flag.zero_()
        torch.cuda.synchronize(self._flag.device)

    def open(self) -> None:
        """Release waiting work as soon as this stream's work is done; asynchronous."""
        self._flag.fill_(1)


class WaitingSide:
    """The side of the gate that waits."""

    def __init__(self, fd: int, device: torch.device) -> None:
        self._flag = open_memory(fd, _flag_bytes, device)(0, _flag_bytes).view(torch.int32)
        self._wait = ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2

    def wait(self) -> None:
        """Make what is queued on the current stream from now on wait until the gate is open.

        Raises RuntimeError where the driver cannot do that.
        """
        stream = torch.cuda.current_stream(self._flag.device).cuda_stream
        address, value = ctypes.c_uint64(self._flag.data_ptr()), ctypes.c_uint32(1)
        how = ctypes.c_uint(_greater_or_equal)
        _refuse("cuStreamWaitValue32", self._wait(ctypes.c_void_p(stream), address, value, how))
