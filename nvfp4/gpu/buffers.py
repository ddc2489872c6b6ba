"""The tensors that the judge and the worker share.

They lie in an anonymous file or in memory of a device. Both map it by a descriptor.
"""

import mmap
import os
from dataclasses import dataclass

import torch

from nvfp4.contract.layout import layouts
from nvfp4.contract.task import output_dtypes
from nvfp4.gpu.device_memory import Place, allocate, open_memory
from nvfp4.records.files import sealed_file

output_name = "output"
"""The buffer for what custom_kernel returned, [l, m, 1] of any dtype."""

page_bytes = mmap.PAGESIZE


def _sizes(m: int, k: int, l: int) -> dict[str, int]:
    sizes = {name: layout.nbytes for name, layout in layouts(m, k, l).items()}
    widest = max(dtype.itemsize for dtype in output_dtypes)
    return {**sizes, output_name: l * m * widest}


@dataclass
class SharedBuffers:
    """Flat uint8 tensors by name. fd: by which the other side opens them; None on that side of a
    device."""

    tensors: dict[str, torch.Tensor]
    fd: int | None = None

    def close(self) -> None:
        self.tensors.clear()
        self.close_fd()

    def close_fd(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def create_buffers(m: int, k: int, l: int, device: torch.device) -> SharedBuffers:
    """The buffers of a case, uninitialised."""
    sizes = _sizes(m, k, l)
    if device.type == "cuda":
        fd, place = allocate(mapped_bytes(sizes), device)
        return SharedBuffers(_tensors(place, sizes), fd)
    with sealed_file(mapped_bytes(sizes)) as file:
        fd = os.dup(file.fileno())
    return SharedBuffers(_tensors(_file(fd, sizes), sizes), fd)


def open_buffers(m: int, k: int, l: int, device: torch.device, fd: int) -> SharedBuffers:
    """The same buffers in another process."""
    sizes = _sizes(m, k, l)
    if device.type == "cuda":
        return SharedBuffers(_tensors(open_memory(fd, mapped_bytes(sizes), device), sizes))
    return SharedBuffers(_tensors(_file(fd, sizes), sizes), fd)


def _with_guard(nbytes: int) -> int:
    """Whole pages for a tensor, and an unused one after it."""
    return (-(-nbytes // page_bytes) + 1) * page_bytes


def mapped_bytes(sizes: dict[str, int]) -> int:
    return page_bytes + sum(_with_guard(nbytes) for nbytes in sizes.values())


def whole_bytes(m: int, k: int, l: int) -> int:
    """Of the memory that the buffers of a case lie in."""
    return mapped_bytes(_sizes(m, k, l))


def offsets(m: int, k: int, l: int) -> dict[str, int]:
    """Where each buffer of a case begins in that memory."""
    return _offsets(_sizes(m, k, l))


def _offsets(sizes: dict[str, int]) -> dict[str, int]:
    """Every tensor starts on a page of its own, as allocations on a device are aligned, and lies
    between unused pages, so that what reaches past it is in no tensor."""
    found, offset = {}, page_bytes
    for name, nbytes in sizes.items():
        found[name] = offset
        offset += _with_guard(nbytes)
    return found


def _tensors(place: Place, sizes: dict[str, int]) -> dict[str, torch.Tensor]:
    return {name: place(offset, sizes[name]) for name, offset in _offsets(sizes).items()}


def buffers_in(mapping: mmap.mmap, m: int, k: int, l: int) -> SharedBuffers:
    """The buffers of a case in memory of this process."""
    sizes = _sizes(m, k, l)
    return SharedBuffers(_tensors(_mapped(mapping), sizes))


def _file(fd: int, sizes: dict[str, int]) -> Place:
    return _mapped(mmap.mmap(fd, mapped_bytes(sizes)))


def _mapped(mapping: mmap.mmap) -> Place:
    return lambda offset, nbytes: torch.frombuffer(
        mapping, dtype=torch.uint8, count=nbytes, offset=offset
    )
