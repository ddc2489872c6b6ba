"""Kernels of a PTX text, run on the memory of a test."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from nvfp4 import emulator
from nvfp4.emulator import LaunchReport
from nvfp4.records.launch import Buffer, Dim3, Launch, ListedMemory

Array = np.ndarray[Any, Any]


def run_ptx(
    ptx: str,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    params: Sequence[bytes],
    shared_bytes: int = 0,
    buffers: Sequence[Buffer | tuple[str, int, int]] = (),
    check: bool = True,
) -> LaunchReport:
    """Execute one kernel. grid, block: up to three extents. buffers: (name, address, nbytes) of all
    memory that it may touch."""
    memory = ListedMemory([each if isinstance(each, Buffer) else Buffer(*each) for each in buffers])
    dims = three(grid), three(block)
    return emulator.run(Launch(ptx, kernel, *dims, params, shared_bytes, memory=memory), check)


def launch_on(
    arrays: Sequence[Array],
    ptx: str,
    kernel: str = "k",
    grid: Any = 1,
    block: Any = 32,
    **more: Any,
) -> Launch:
    """A launch on NumPy arrays, which are also the only live buffers, named a0, a1, ..."""
    buffers = [Buffer(f"a{i}", a.ctypes.data, a.nbytes) for i, a in enumerate(arrays)]
    parameters = [struct.pack("<Q", each.address) for each in buffers]
    dims = three(grid), three(block)
    return Launch(ptx, kernel, *dims, parameters, memory=ListedMemory(buffers), **more)


def three(extents: int | Sequence[int]) -> Dim3:
    x, y, z = (extents, 1, 1) if isinstance(extents, int) else (*extents, 1, 1)[:3]
    return x, y, z
