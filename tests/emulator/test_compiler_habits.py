"""What LLVM and Triton do that ptxas understands: short addresses, replicated stores, undef."""

import struct

import numpy as np
from ptx_harness import HEADER, MINE, Array, run

from nvfp4 import emulator

SHARED = ".shared .align 16 .b8 s[256];"


def launch(text: str, params: list[bytes], *arrays: Array) -> None:
    buffers = [(f"a{i}", a.ctypes.data, a.nbytes) for i, a in enumerate(arrays)]
    emulator.run_ptx(HEADER + text, "k", (1,), (32,), params, buffers=buffers)


def test_addresses_of_parameters_and_constants_may_have_32_bits() -> None:
    text = """
    .const .align 8 .b32 table[4] = {5, 6, 7, 8};
    .visible .entry k(.param .u64 out, .param .align 64 .b8 many[128]) {
    .reg .b32 %r<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    mov.b32 %r1, many; cvt.u64.u32 %rd2, %r1; ld.param.b32 %r2, [%r1+4];
    cvta.param.u64 %rd3, %rd2; ld.b32 %r3, [%rd3+120];
    mov.b32 %r4, table; ld.const.b32 %r5, [%r4+8];
    st.global.v2.b32 [%rd1], {%r2, %r3}; st.global.b32 [%rd1+8], %r5; ret; }
    """
    out, many = np.zeros(3, np.uint32), np.arange(32, dtype=np.uint32) + 100
    launch(text, [struct.pack("<Q", out.ctypes.data), many.tobytes()], out)
    assert out.tolist() == [101, 130, 7]


def test_lanes_that_store_to_one_word_together_miss_no_synchronisation() -> None:
    a = np.zeros(32, np.uint32)
    together = "mov.u32 %r1, s; st.shared.u32 [%r1], %r0; bar.warp.sync 0xffffffff;"
    load = f"ld.shared.u32 %r2, [%r1]; {MINE} st.global.u32 [%d0], %r2;"
    assert not run(together + load, a, before=SHARED).findings
    assert len(set(a.tolist())) == 1
    apart = together.replace("st.shared", "setp.lt.u32 %p1, %r0, 8; @%p1 st.shared", 1)
    apart = apart.replace("bar.warp", "@!%p1 st.shared.u32 [%r1], %r0; bar.warp", 1)
    assert {f.code for f in run(apart + load, a, before=SHARED).findings} == {"warp_sync"}


def test_max_of_three() -> None:
    a = np.array([1.0, -2.0, 3.5, np.nan], np.float32).repeat(8)
    body = f"""{MINE} ld.global.f32 %r1, [%d0]; mov.b32 %r2, 0f40000000; mov.b32 %r3, 0fc0400000;
    max.f32 %r4, %r3, %r1, %r2; min.f32 %r5, %r1, %r2, %r3; add.f32 %r4, %r4, %r5;
    st.global.f32 [%d0], %r4;"""
    run(body, a)
    assert a[::8].tolist() == [-1.0, -1.0, 0.5, -1.0]


def test_bytes_and_halves_of_registers_that_nothing_sets_do_not_matter() -> None:
    a = np.arange(32, dtype=np.uint32)
    body = f"""{MINE} ld.global.b32 %r1, [%d0];
    prmt.b32 %r2, %r1, %r40, 0x3210; mov.b64 %d1, {{%r2, %r41}}; add.rn.f32x2 %d2, %d1, %d1;
    mov.b64 {{%r3, %r4}}, %d2; st.global.b32 [%d0], %r3;"""
    assert not run(body, a).findings
