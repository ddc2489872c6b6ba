"""What the front end makes of a text."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from ptx_harness import HEADER, ptx_of
from ptx_runs import run_ptx

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.instructions.action import BUILDERS
from nvfp4.emulator.ptx import flow
from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse


def test_a_missing_kernel_lists_those_that_exist() -> None:
    with pytest.raises(PtxSyntaxError, match="hint: its kernels are k"):
        run_ptx(ptx_of("", 0), "other", (1,), (32,), [])


def test_dynamic_shared_memory_starts_behind_the_static() -> None:
    before = ".extern .shared .align 128 .b8 dyn[];\n.shared .align 4 .b8 fixed[12];"
    program = link(parse(ptx_of("mov.u32 %r1, dyn; mov.u32 %r2, fixed;", 0, before)), "k")
    assert program.shared_end == 1024 + 12
    assert program.dynamic_shared == 1024 + 128


def test_parameters_lie_at_their_aligned_offsets() -> None:
    text = f"""{HEADER}
    .visible .entry k(.param .u8 a, .param .u64 b, .param .align 64 .b8 c[128], .param .f32 d)
    {{ ret; }}"""
    assert [(offset, size) for _, offset, size in link(parse(text), "k").parameters] == [
        (0, 1), (8, 8), (64, 128), (192, 4),
    ]  # fmt: skip


def test_the_manual_lists_every_instruction() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text()
    listed = set(re.findall(r"`([\w.:]+)`", manual.split("## Instructions")[1].split("\n## ")[0]))
    mbarrier = {f"mbarrier{name}" for name in listed if name.startswith(".")}
    assert set(BUILDERS) - {name for name in BUILDERS if "outcome" in name} <= listed | mbarrier


def test_addresses_of_parameters_and_constants_may_have_32_bits() -> None:
    """As LLVM and Triton write them."""
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
    params = [struct.pack("<Q", out.ctypes.data), many.tobytes()]
    run_ptx(HEADER + text, "k", (1,), (32,), params, buffers=[("a", out.ctypes.data, out.nbytes)])
    assert out.tolist() == [101, 130, 7]


def test_blocks_of_a_loop_stand_before_what_follows_it() -> None:
    # 1 begins the loop, 2 leaves it
    assert flow._order({0: [1], 1: [3, 2], 2: [4], 3: [1], 4: []}, 0) == [0, 1, 3, 2, 4]
