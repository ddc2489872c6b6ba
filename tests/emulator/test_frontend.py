import re
from pathlib import Path

import numpy as np
import pytest
from ptx_harness import HEADER, MINE, out, ptx_of, run

from nvfp4.emulator import run_ptx
from nvfp4.emulator.errors import PtxSyntaxError, UnsupportedInstruction
from nvfp4.emulator.instructions.action import BUILDERS
from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse


def test_nested_scopes_shadow_registers_and_repeat_labels() -> None:
    a = out(32)
    wait = """
    { .reg .b32 t; .reg .pred p; mov.u32 t, 0;
      LOOP: add.u32 t, t, 1; setp.lt.u32 p, t, 3; @p bra LOOP;
      add.u32 %r5, %r5, t; }
    """
    run(f"mov.u32 %r5, 10; {wait} {wait} {MINE} st.global.u32 [%d0], %r5;", a)
    assert (a == 16).all()


def test_a_function_call_passes_parameters_and_results() -> None:
    before = """
    .func (.param .b32 out) addmul(.param .b32 x, .param .align 4 .b8 pair[8])
    { .reg .b32 %r<5>;
      ld.param.b32 %r1, [x]; ld.param.b32 %r2, [pair]; ld.param.b32 %r3, [pair+4];
      mad.lo.u32 %r4, %r1, %r2, %r3; st.param.b32 [out], %r4; ret; }
    """
    body = f"""
    {{ .param .b32 p0; .param .align 4 .b8 p1[8]; .param .b32 r;
      st.param.b32 [p0], %r0; st.param.b32 [p1], 3; st.param.b32 [p1+4], 7;
      call.uni (r), addmul, (p0, p1);
      ld.param.b32 %r5, [r]; }}
    {MINE} st.global.u32 [%d0], %r5;
    """
    a = out(32)
    run(body, a, before=before)
    assert (a == np.arange(32) * 3 + 7).all()


def test_variables_have_their_initial_values_and_addresses() -> None:
    before = """
    .const .align 4 .u32 table[4] = {10, 20, 0x1E, 40};
    .global .align 8 .u64 link = table+8;
    .global .f32 half = 0f3F000000;
    """
    body = f"""
    ld.const.u32 %r5, [table+4];
    ld.global.u64 %d1, [link]; ld.u32 %r6, [%d1];
    mov.u64 %d2, half; ld.global.b32 %r7, [%d2];
    add.u32 %r5, %r5, %r6; {MINE} st.global.u32 [%d0], %r5;
    st.global.b32 [%q1], %r7;
    """
    a, b = out(32), out(1, np.float32)
    run(body, a, b, before=before)
    assert (a == 50).all()
    assert b[0] == 0.5


def test_comments_strings_and_debug_directives_are_read_over() -> None:
    body = f"""
    // a line; with a brace {{
    .loc 1 7 3, function_name $L__info, inlined_at 1 3 2
    .pragma "nounroll; // not a comment";
    /* two
       lines */ {MINE} st.global.u32 [%d0], 5;
    """
    before = '.file 1 "x.py"\n.section .debug_str { info: .b8 0 }\n'
    a = out(32)
    run(body, a, before=before)
    assert (a == 5).all()


def test_branch_targets_are_a_jump_table() -> None:
    body = f"""
    and.b32 %r5, %r0, 3; mov.u32 %r6, 0;
    T: .branchtargets A, B, C, D;
    brx.idx %r5, T;
    A: mov.u32 %r6, 11; bra E; B: mov.u32 %r6, 22; bra E;
    C: mov.u32 %r6, 33; bra E; D: mov.u32 %r6, 44;
    E: {MINE} st.global.u32 [%d0], %r6;
    """
    a = out(32)
    run(body, a)
    assert a[:4].tolist() == [11, 22, 33, 44]
    assert (a.reshape(-1, 4) == a[:4]).all()


def test_an_unknown_instruction_is_named_with_its_line_and_a_hint() -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        run("tex.2d.v4.f32.f32 %r1, %r2;", out(32))
    assert "tex" in str(caught.value)
    assert "PTX line 10: tex.2d" in str(caught.value)
    assert "hint" in str(caught.value)


def test_an_unknown_modifier_is_not_skipped() -> None:
    with pytest.raises(UnsupportedInstruction, match="frobnicate"):
        run(f"{MINE} ld.global.frobnicate.u32 %r5, [%d0];", out(32))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mov.u32 %r1 %r2;", "';'"),
        ("mov.u32 %r1, `;", "unexpected character"),
        ("mov.u32 nowhere, 1;", "nowhere is not declared"),
        ("@%r1 bra X; X:", "not a predicate"),
        ("add.u32 %r1, %r2;", "2 sources"),
        ("A: bra B; A: B:", "label A is defined twice"),
    ],
)
def test_a_syntax_error_names_its_line(text: str, words: str) -> None:
    with pytest.raises(PtxSyntaxError, match=words) as caught:
        run(text, out(32))
    assert "line" in str(caught.value)


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
    program = link(parse(text), "k")
    assert [(offset, size) for _, offset, size in program.parameters] == [
        (0, 1), (8, 8), (64, 128), (192, 4),
    ]  # fmt: skip


def test_recursion_is_refused() -> None:
    before = ".func f() { call f; ret; }"
    with pytest.raises(UnsupportedInstruction, match="recursion of f"):
        run("call f;", out(32), before=before)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("P: .callprototype _ (); call %d0, P;", "calls through pointers .* are not emulated"),
        ("call g;", "call of g, which has no body in this module"),
    ],
)
def test_calls_that_are_not_of_a_function_of_the_module_are_refused(call: str, words: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=words):
        run(call, out(32), before=".extern .func g();")


def test_the_manual_lists_every_instruction() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text()
    listed = set(re.findall(r"`([\w.:]+)`", manual.split("## Instructions")[1].split("\n## ")[0]))
    mbarrier = {f"mbarrier{name}" for name in listed if name.startswith(".")}
    internal = {name for name in BUILDERS if "outcome" in name}
    assert set(BUILDERS) - internal <= listed | mbarrier
