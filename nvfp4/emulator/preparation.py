"""What every process that emulates compiles for itself, done while it has nothing else to do."""

from collections.abc import Iterator

import numpy as np

from nvfp4.emulator import run_ptx
from nvfp4.emulator.arithmetic import compiled

_sizes = ("b8", "b16", "b32", "b64")


def steps() -> Iterator[None]:
    """Compiles or loads the loops of the usual instructions, then every function with a name."""
    memory = np.zeros(4096, np.uint8)
    address = memory.ctypes.data
    parameters = [address.to_bytes(8, "little")]
    run_ptx(_ptx(), "prepare", (2, 1, 1), (64, 1, 1), parameters, 0, [("m", address, 4096)])
    yield
    yield from compiled.compile_all()


def _ptx() -> str:
    """Loads and stores of every size, in global and shared memory, and a barrier."""
    lines = []
    for size in _sizes:
        register = {"b8": "%h0", "b16": "%h0", "b32": "%r5", "b64": "%d4"}[size]
        lines += [f"ld.global.{size} {register}, [%d2];", f"st.shared.{size} [%r4], {register};"]
        lines += ["bar.sync 0;", f"ld.shared.{size} {register}, [%r4];"]
        lines += ["bar.sync 0;", f"st.global.{size} [%d2], {register};"]
    return """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry prepare(.param .u64 m)
{
    .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<8>;
    .shared .align 16 .b8 s[1024];
    ld.param.u64 %d0, [m];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mad.lo.s32 %r2, %r1, 64, %r0;
    mul.wide.s32 %d1, %r2, 16;
    add.s64 %d2, %d0, %d1;
    mov.u32 %r3, s;
    mad.lo.s32 %r4, %r0, 16, %r3;
    BODY
    ld.global.v4.b32 {%r1, %r2, %r5, %r6}, [%d2];
    st.global.v4.b32 [%d2], {%r1, %r2, %r5, %r6};
    ret;
}
""".replace("BODY", "\n    ".join(lines))
