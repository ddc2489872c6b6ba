"""Cooperative launches: all blocks are there at once, and grid.sync() finds a word to count in."""

from __future__ import annotations

import ctypes
import functools
import math

from nvfp4.capture import graphs, host_access
from nvfp4.capture.cuda.calls import blocks_per_multiprocessor, dim3_at
from nvfp4.capture.cuda.codes import Code, CudaError
from nvfp4.capture.cuda.registry import entry
from nvfp4.capture.cuda.runtime import CudaRuntime

_workspace_bytes = 256
"""Its size and a barrier, as `cooperative_groups/details/driver_abi.h` has them; %envreg1 and
%envreg2 are the upper and the lower half of its address."""

_multiprocessors = 16
"""cudaDevAttrMultiProcessorCount"""


@functools.cache
def _workspace(runtime: CudaRuntime) -> int:
    """Its address, the same for all launches: it is part of the PTX that runs."""
    return runtime.allocate(_workspace_bytes, "a grid's barrier")


@entry()
def launch_cooperative(
    runtime: CudaRuntime,
    function: int,
    grid: int,
    block: int,
    arguments: int,
    shared_bytes: int,
    stream: int,
) -> None:
    runtime.refuse_destroyed(stream)
    blocks, threads = dim3_at(grid), dim3_at(block)
    each = blocks_per_multiprocessor(runtime, function, math.prod(threads), shared_bytes)
    most = each * runtime.device.attributes[_multiprocessors]
    if math.prod(blocks) > most:
        raise CudaError(
            Code.COOPERATIVE_LAUNCH_TOO_LARGE,
            f"{runtime.kernel(function).name}: {math.prod(blocks)} blocks, of which {most} fit on "
            f"{runtime.device.name} at once",
        )
    workspace = _workspace(runtime)

    def clear() -> None:
        ctypes.memset(workspace, 0, _workspace_bytes)
        ctypes.c_uint32.from_address(workspace).value = _workspace_bytes
        host_access.wrote(workspace, _workspace_bytes)

    graphs.do(clear)
    registers = {"%envreg1": workspace >> 32, "%envreg2": workspace & 0xFFFFFFFF}
    dims = blocks, threads, (1, 1, 1)
    runtime.launch(function, *dims, arguments, shared_bytes, stream, registers)
