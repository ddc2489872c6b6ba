"""Kernels of a PTX text, run on the memory of a test."""

from collections.abc import Sequence

from nvfp4 import emulator
from nvfp4.emulator import Buffer, Launch, LaunchReport, ListedMemory


def run_ptx(
    ptx: str,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    params: Sequence[bytes],
    shared_bytes: int = 0,
    buffers: Sequence[Buffer | tuple[str, int, int]] = (),
    check: bool = True,
    cluster: Sequence[int] = (1,),
) -> LaunchReport:
    """Execute one kernel. grid, block, cluster: up to three extents. buffers: (name, address,
    nbytes) of all memory that it may touch."""
    (x, y, z), (a, b, c), (i, j, k) = ((*each, 1, 1)[:3] for each in (grid, block, cluster))
    memory = ListedMemory([each if isinstance(each, Buffer) else Buffer(*each) for each in buffers])
    sizes = shared_bytes, (i, j, k), memory
    return emulator.run(Launch(ptx, kernel, (x, y, z), (a, b, c), params, *sizes), check)
