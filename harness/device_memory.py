"""CUDA memory that another process opens by a descriptor: of torch's IPC handle."""

import base64
import json
import os
from collections.abc import Callable

import torch

Place = Callable[[int, int], torch.Tensor]
"""The flat uint8 tensor at an offset, of so many bytes."""


def allocate(nbytes: int, device: torch.device) -> tuple[int, Place]:
    """A new descriptor and its memory."""
    memory = torch.empty(nbytes, dtype=torch.uint8, device=device)
    handle = [
        [base64.b64encode(part).decode()] if isinstance(part, bytes) else part
        for part in memory.untyped_storage()._share_cuda_()
    ]
    fd = os.memfd_create("nvfp4")
    os.pwrite(fd, json.dumps(handle).encode(), 0)
    return fd, _place(memory)


def open_memory(fd: int, nbytes: int, device: torch.device) -> Place:
    """What another process has allocated; closes the descriptor."""
    torch.cuda.init()
    handle = json.loads(os.pread(fd, 4096, 0))
    os.close(fd)
    parts = [base64.b64decode(part[0]) if isinstance(part, list) else part for part in handle]
    storage = torch.UntypedStorage._new_shared_cuda(*parts)
    return _place(torch.empty(0, dtype=torch.uint8, device=device).set_(storage))


def _place(memory: torch.Tensor) -> Place:
    return lambda offset, nbytes: memory[offset : offset + nbytes]
