"""The tensors that the judge and the worker share.

On a CPU they lie in an anonymous file that both map; its descriptor travels over the socket. On
CUDA each is an allocation of the judge that the worker opens by its IPC handle.
"""

import base64
import fcntl
import mmap
import os
import tempfile
from dataclasses import dataclass, field

import torch

from layout import layouts
from task import output_dtypes

output_name = "output"
"""The buffer for what custom_kernel returned, [l, m, 1] of any dtype."""

_page_bytes = mmap.PAGESIZE


def _sizes(m: int, k: int, l: int) -> dict[str, int]:
    sizes = {name: layout.nbytes for name, layout in layouts(m, k, l).items()}
    widest = max(dtype.itemsize for dtype in output_dtypes)
    return {**sizes, output_name: l * m * widest}


@dataclass
class SharedBuffers:
    """Flat uint8 tensors by name. The other side opens them by ``handles``, as JSON, or, on a CPU,
    by ``fd``."""

    tensors: dict[str, torch.Tensor]
    handles: dict[str, list[object]] = field(default_factory=dict)
    fd: int | None = None

    def close(self) -> None:
        self.tensors.clear()
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def create_buffers(m: int, k: int, l: int, device: torch.device) -> SharedBuffers:
    """The buffers of a case, uninitialised."""
    sizes = _sizes(m, k, l)
    if device.type == "cuda":
        tensors = {
            name: torch.empty(nbytes, dtype=torch.uint8, device=device)
            for name, nbytes in sizes.items()
        }
        return SharedBuffers(tensors, {name: export_tensor(each) for name, each in tensors.items()})
    fd = _anonymous_file(_mapped_bytes(sizes))
    return SharedBuffers(_map(fd, sizes), fd=fd)


def open_buffers(
    m: int, k: int, l: int, device: torch.device, handles: dict[str, list[object]], fd: int | None
) -> SharedBuffers:
    """The same buffers in another process."""
    sizes = _sizes(m, k, l)
    if fd is not None:
        return SharedBuffers(_map(fd, sizes), fd=fd)
    return SharedBuffers({name: import_tensor(handles[name]) for name in sizes})


def whole_mapping(buffers: SharedBuffers) -> tuple[int, int]:
    """Address and size of the memory that a case's tensors on a CPU lie in."""
    sizes = {name: each.numel() for name, each in buffers.tensors.items()}
    first = next(iter(buffers.tensors.values()))
    return first.data_ptr() - _page_bytes, _mapped_bytes(sizes)


def _with_guard(nbytes: int) -> int:
    """Whole pages for a tensor, and an unused one after it."""
    return (-(-nbytes // _page_bytes) + 1) * _page_bytes


def _mapped_bytes(sizes: dict[str, int]) -> int:
    return _page_bytes + sum(_with_guard(nbytes) for nbytes in sizes.values())


def _anonymous_file(nbytes: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("nvfp4", os.MFD_ALLOW_SEALING)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, nbytes)
    return fd


def _map(fd: int, sizes: dict[str, int]) -> dict[str, torch.Tensor]:
    """Every tensor starts on a page of its own, as allocations on a device are aligned, and lies
    between unused pages, so that what reaches past it is in no tensor."""
    mapping = mmap.mmap(fd, _mapped_bytes(sizes))
    tensors, offset = {}, _page_bytes
    for name, nbytes in sizes.items():
        tensors[name] = torch.frombuffer(mapping, dtype=torch.uint8, count=nbytes, offset=offset)
        offset += _with_guard(nbytes)
    return tensors


def export_tensor(tensor: torch.Tensor) -> list[object]:
    """The IPC handle of a CUDA allocation; bytes become base64."""
    return [
        {"base64": base64.b64encode(part).decode()} if isinstance(part, bytes) else part
        for part in tensor.untyped_storage()._share_cuda_()
    ]


def import_tensor(handle: list[object]) -> torch.Tensor:
    """The same allocation, flat uint8."""
    torch.cuda.init()
    parts = [
        base64.b64decode(part["base64"]) if isinstance(part, dict) else part for part in handle
    ]
    storage = torch.UntypedStorage._new_shared_cuda(*parts)
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
