"""Small kernels from their bodies, for tests of the engine."""

import struct
from typing import Any

import numpy as np
from ptx_runs import run_ptx

from nvfp4.emulator import LaunchReport

Array = np.ndarray[Any, Any]

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
REGISTERS = """
.reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %d<64>; .reg .b64 %q<8>;
"""


def ptx_of(body: str, pointers: int, before: str = "", directives: str = "") -> str:
    """A module with one kernel `k`. %q0, %q1, ... hold the pointer parameters; %r0 = %tid.x."""
    params = ", ".join(f".param .u64 a{i}" for i in range(pointers))
    loads = "".join(f"ld.param.u64 %q{i}, [a{i}];\n" for i in range(pointers))
    return (
        f"{HEADER}{before}\n.visible .entry k({params}) {directives}\n{{{REGISTERS}{loads}"
        f"mov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )


def out(n: int = 64, dtype: type = np.uint32) -> Array:
    """What a kernel writes to."""
    return np.zeros(n, dtype)


def aligned(values: Array | bytes) -> Array:
    """The same at a multiple of 128 bytes, where tiles, sectors and bulk copies begin."""
    if isinstance(values, bytes):
        values = np.frombuffer(values, np.uint8)
    block = np.zeros(values.nbytes + 128, np.uint8)
    start = -block.ctypes.data % 128
    there = block[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    there[...] = values
    return there


def run(
    body: str,
    *arrays: Array,
    grid: Any = 1,
    block: Any = 32,
    before: str = "",
    shared_bytes: int = 0,
    check: bool = True,
    cluster: Any = 1,
    directives: str = "",
) -> LaunchReport:
    """Run a body on NumPy arrays, which are also the only live buffers, named a0, a1, ..."""
    three = [(x, 1, 1) if isinstance(x, int) else x for x in (grid, block, cluster)]
    return run_ptx(
        ptx_of(body, len(arrays), before, directives),
        "k",
        three[0],
        three[1],
        [struct.pack("<Q", a.ctypes.data) for a in arrays],
        shared_bytes=shared_bytes,
        buffers=[(f"a{i}", a.ctypes.data, a.nbytes) for i, a in enumerate(arrays)],
        check=check,
        cluster=three[2],
    )


# Address of this thread's 4-byte element of q0 in %d0.
MINE = "mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %q0, %d0;"
# The same for a grid: CTA * ntid + tid.
MINE_IN_GRID = """
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mul.wide.u32 %d0, %r3, 4; add.u64 %d0, %q0, %d0;
"""
