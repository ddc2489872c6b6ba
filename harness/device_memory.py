"""CUDA memory that another process opens by a descriptor: of torch's IPC handle."""

import os
import pickle
from collections.abc import Callable

import torch

Place = Callable[[int, int], torch.Tensor]
"""The flat uint8 tensor at an offset, of so many bytes."""


def allocate(nbytes: int, device: torch.device) -> tuple[int, Place]:
    """A new descriptor and its memory."""
    memory = torch.empty(nbytes, dtype=torch.uint8, device=device)
    fd = os.memfd_create("nvfp4")
    os.pwrite(fd, pickle.dumps(memory.untyped_storage()._share_cuda_()), 0)
    return fd, _place(memory)


def open_memory(fd: int, nbytes: int, device: torch.device) -> Place:
    """What another process has allocated; closes the descriptor."""
    torch.cuda.init()
    handle = pickle.loads(os.pread(fd, 4096, 0))
    os.close(fd)
    storage = torch.UntypedStorage._new_shared_cuda(*handle)
    return _place(torch.empty(0, dtype=torch.uint8, device=device).set_(storage))


def _place(memory: torch.Tensor) -> Place:
    return lambda offset, nbytes: memory[offset : offset + nbytes]
