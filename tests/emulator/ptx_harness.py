"""Small kernels from their bodies, for tests of the engine."""

from typing import Any

import numpy as np
from ptx_runs import Array, launch_on, three

from nvfp4 import emulator
from nvfp4.emulator import Launch, LaunchReport

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


def launch_of(
    body: str, *arrays: Array, before: str = "", directives: str = "", cluster: Any = 1, **more: Any
) -> Launch:
    """A launch of a body on NumPy arrays; see `launch_on`."""
    ptx = ptx_of(body, len(arrays), before, directives)
    return launch_on(arrays, ptx, cluster=three(cluster), **more)


def run(body: str, *arrays: Array, check: bool = True, **how: Any) -> LaunchReport:
    """Run a body on NumPy arrays; see `launch_of`."""
    return emulator.run(launch_of(body, *arrays, **how), check)


# Address of this thread's 4-byte element of q0 in %d0.
MINE = "mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %q0, %d0;"
# The same for a grid: CTA * ntid + tid.
MINE_IN_GRID = """
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mul.wide.u32 %d0, %r3, 4; add.u64 %d0, %q0, %d0;
"""
