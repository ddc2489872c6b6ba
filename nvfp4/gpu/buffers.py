"""The tensors that the judge and the worker share.

They lie in an anonymous file or in memory of a device. Both map it by a descriptor.
"""

import mmap
import os

import torch

from nvfp4.contract.tree import Tree
from nvfp4.gpu.device_memory import Place, allocate, open_memory
from nvfp4.records.base import Record
from nvfp4.records.files import sealed_file

output_name = "output"
"""Name of the buffer for the output of custom_kernel."""

page_bytes = mmap.PAGESIZE
alignment = 512
"""The alignment of each buffer in bytes, and no larger power of two: that of torch's allocator."""

Sizes = dict[str, int]
"""Bytes of each buffer, by its name."""


def sizes_of(inputs: Tree, room_bytes: int) -> Sizes:
    """Return the buffers of a case on the device: its storages there, and room for an output, if
    any."""
    return {**_on("cuda", inputs), **({output_name: room_bytes} if room_bytes else {})}


def host_sizes_of(inputs: Tree) -> Sizes:
    """Return the storages that lie in the host's memory; usually none."""
    return _on("cpu", inputs)


def _on(device: str, inputs: Tree) -> Sizes:
    pairs = zip(inputs.names, inputs.storages, strict=True)
    return {name: storage.nbytes for name, storage in pairs if storage.device == device}


class SharedBuffers(Record, frozen=False):
    """Flat uint8 tensors by name."""

    tensors: dict[str, torch.Tensor]
    fd: int | None = None
    """Descriptor with which the other process opens them; None in that process for device
    memory."""

    def close(self) -> None:
        self.tensors.clear()
        self.close_fd()

    def close_fd(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def of_sets(sizes: Sizes, count: int) -> Sizes:
    """Return the sizes of so many sets of buffers that lie behind each other."""
    return {f"{number}.{name}": sizes[name] for number in range(count) for name in sizes}


def in_sets(whole: SharedBuffers, count: int) -> list[SharedBuffers]:
    """Return the sets of buffers whose sizes are those of `of_sets`."""
    sets = [SharedBuffers({}) for _ in range(count)]
    for key, tensor in whole.tensors.items():
        number, _, name = key.partition(".")
        sets[int(number)].tensors[name] = tensor
    return sets


def create_buffers(sizes: Sizes, device: torch.device) -> SharedBuffers:
    """Buffers of these sizes, uninitialised."""
    if device.type == "cuda":
        fd, place = allocate(mapped_bytes(sizes), device)
        return SharedBuffers(_tensors(place, sizes), fd)
    with sealed_file(mapped_bytes(sizes)) as file:
        fd = os.dup(file.fileno())
    return SharedBuffers(_tensors(_file(fd, sizes), sizes), fd)


def open_buffers(sizes: Sizes, device: torch.device, fd: int) -> SharedBuffers:
    """Open the buffers that another process created, given their sizes and file descriptor."""
    if device.type == "cuda":
        return SharedBuffers(_tensors(open_memory(fd, mapped_bytes(sizes), device), sizes))
    return SharedBuffers(_tensors(_file(fd, sizes), sizes), fd)


def _with_guard(nbytes: int) -> int:
    """Return the bytes of whole pages for a tensor and of one unused page after it."""
    return (-(-(alignment + nbytes) // page_bytes) + 1) * page_bytes


def mapped_bytes(sizes: Sizes) -> int:
    """Return the size in bytes of the memory that holds buffers of these sizes."""
    return page_bytes + sum(_with_guard(nbytes) for nbytes in sizes.values())


def offsets(sizes: Sizes) -> dict[str, int]:
    """Return the byte offset of each buffer. Each has pages of its own and lies between unused
    ones, so that an access past its end hits no tensor."""
    found, offset = {}, page_bytes
    for name, nbytes in sizes.items():
        found[name] = offset + alignment
        offset += _with_guard(nbytes)
    return found


def _tensors(place: Place, sizes: Sizes) -> dict[str, torch.Tensor]:
    return {name: place(offset, sizes[name]) for name, offset in offsets(sizes).items()}


def buffers_in(mapping: mmap.mmap, sizes: Sizes) -> SharedBuffers:
    """Return buffers in memory of this process."""
    return SharedBuffers(_tensors(_mapped(mapping), sizes))


def _file(fd: int, sizes: Sizes) -> Place:
    return _mapped(mmap.mmap(fd, mapped_bytes(sizes)))


def _mapped(mapping: mmap.mmap) -> Place:
    """Return places in a mapping, each of which is a storage of its own."""

    def place(offset: int, nbytes: int) -> torch.Tensor:
        found = torch.frombuffer(mapping, dtype=torch.uint8, count=max(1, nbytes), offset=offset)
        return found[:nbytes]

    return place
