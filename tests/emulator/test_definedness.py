"""Undefined values: harmless where no result depends on them, else an error with its cause.

%r40 to %r49, %h9 and %p9 are never set.
"""

import numpy as np
import pytest
from ptx_harness import MINE, ptx_of, run

from nvfp4.emulator import LaunchReport, errors

SHARED = ".shared .align 16 .b8 s[1024];"
STORE = "st.global.u32 [%d0], %r5;"
# %p1 holds, %p2 does not; %h1 is set.
GIVEN = "setp.ge.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 0; cvt.u16.u32 %h1, %r0;"
# 16 bytes of shared memory for each thread, from %r10.
SLOT = "mov.u32 %r10, s; shl.b32 %r11, %r0, 4; add.u32 %r10, %r10, %r11;"


def launch(body: str, block: int = 32) -> LaunchReport:
    return run(f"{GIVEN} {MINE}\n{body}", np.zeros(64, np.uint32), before=SHARED, block=block)


# What the result is made of, with the undefined part left out, and with some of it.
RULES = {
    "prmt takes other bytes": ("prmt.b32 %r5, %r0, %r40, {};", "0x3210", "0x3214"),
    "prmt repeats another byte's sign": ("prmt.b32 %r5, %r0, %r40, {};", "0xB210", "0xF210"),
    "mov packs, mov unpacks": (
        "mov.b32 %r6, {{%h1, %h9}}; mov.b32 {{%h2, %h3}}, %r6; cvt.u32.u16 %r5, {};",
        "%h2",
        "%h3",
    ),
    "f32x2 by lanes": (
        "mov.b64 %d1, {{%r0, %r40}}; add.rn.f32x2 %d2, %d1, %d1; mov.b64 {{%r6, %r7}}, %d2;"
        "mov.b32 %r5, {};",
        "%r6",
        "%r7",
    ),
    "f16x2 by lanes": (
        "mov.b32 %r6, {{%h1, %h9}}; fma.rn.f16x2 %r7, %r6, %r6, %r6;"
        "mov.b32 {{%h2, %h3}}, %r7; cvt.u32.u16 %r5, {};",
        "%h2",
        "%h3",
    ),
    "and of known zeros": ("and.b32 %r5, %r40, {};", "0", "4"),
    "xor with itself": ("xor.b32 %r5, %r40, {};", "%r40", "%r41"),
    "sub of itself": ("sub.u32 %r5, %r40, {};", "%r40", "%r41"),
    "or of known ones": ("or.b32 %r5, %r40, {};", "-1", "-2"),
    "xor and not keep the place": (
        "and.b32 %r6, %r40, 0xFF00; not.b32 %r7, %r6; xor.b32 %r8, %r7, %r0; and.b32 %r5, %r8, {};",
        "0xFFFF00FF",
        "0xFFFF01FF",
    ),
    "lop3 of a table that skips c": ("lop3.b32 %r5, %r0, %r0, %r40, {};", "0xC0", "0xEA"),
    "shl": ("shl.b32 %r6, %r40, 8; and.b32 %r5, %r6, {};", "0xFF", "0x1FF"),
    "shr": ("shr.u32 %r6, %r40, 8; and.b32 %r5, %r6, {};", "0xFF000000", "0xFF800000"),
    "shr of the sign": ("and.b32 %r6, %r40, {}; shr.s32 %r5, %r6, 31;", "0x7FFFFFFF", "-1"),
    "shf": ("shf.l.wrap.b32 %r5, %r40, %r0, {};", "0", "1"),
    "an amount of five bits": (
        "and.b32 %r6, %r40, {}; shf.l.wrap.b32 %r5, %r0, %r0, %r6;",
        "0xFFFFFFE0",
        "0xFFFFFFFF",
    ),
    "selp takes the other arm": ("selp.b32 %r5, %r0, %r40, {};", "%p1", "%p2"),
    "selp of equal arms": ("selp.b32 %r5, 7, {}, %p9;", "7", "8"),
    "a guard over equal values": ("mov.u32 %r5, 7; @%p9 mov.u32 %r5, {};", "7", "8"),
    "a guard that never holds": ("mov.u32 %r5, 1; @{} mov.u32 %r5, %r40;", "%p2", "%p1"),
    "bfe": ("and.b32 %r6, %r40, 0xFF00; bfe.u32 %r5, %r6, {}, 8;", "16", "12"),
    "bfe of the sign": (
        "and.b32 %r6, %r40, 0xFF; bfe.s32 %r5, %r6, 8, {};",
        "4",
        "0; mov.u32 %r5, %r40",
    ),
    "bfi over all of it": ("and.b32 %r6, %r40, 0xFF0; bfi.b32 %r5, %r0, %r6, 4, {};", "8", "7"),
    "cvt cuts": (
        "and.b32 %r6, %r40, {}; cvt.u16.u32 %h2, %r6; cvt.u32.u16 %r5, %h2;",
        "-65536",
        "-1",
    ),
    "cvt repeats the sign": (
        "and.b32 %r6, %r40, {}; cvt.s32.s8 %r7, %r6; and.b32 %r5, %r7, 0xFFFFFF00;",
        "0x7F",
        "0xFF",
    ),
    "add goes upwards": (
        "and.b32 %r6, %r40, 0xF00; add.u32 %r7, %r6, %r0; and.b32 %r5, %r7, {};",
        "0xFF",
        "0x1FF",
    ),
    "mul goes upwards": (
        "and.b32 %r6, %r40, 0xF00; mul.lo.u32 %r7, %r6, 3; and.b32 %r5, %r7, {};",
        "0xFF",
        "0x1FF",
    ),
    "mad goes upwards": (
        "and.b32 %r6, %r40, 0xF00; mad.lo.u32 %r7, %r6, 3, %r0; and.b32 %r5, %r7, {};",
        "0xFF",
        "0x1FF",
    ),
    "known bits that differ": (
        "and.b32 %r6, %r40, 6; or.b32 %r6, %r6, {}; setp.eq.u32 %p3, %r6, 0;"
        "selp.u32 %r5, 5, 6, %p3;",
        "1",
        "0",
    ),
    "setp with a predicate that decides": (
        "setp.lt.and.u32 %p3, %r40, 9, {}; selp.u32 %r5, 5, 6, %p3;",
        "%p2",
        "%p1",
    ),
    "cvt packs two floats": (
        "cvt.rn.f16x2.f32 %r6, %r40, %r0; mov.b32 {{%h2, %h3}}, %r6; cvt.u32.u16 %r5, {};",
        "%h2",
        "%h3",
    ),
    "cvt packs two bytes": (
        "cvt.rn.satfinite.e4m3x2.f32 %h2, %r40, %r0; cvt.u32.u16 %r6, %h2; and.b32 %r5, %r6, {};",
        "0xFF",
        "0x1FF",
    ),
    "cvt unpacks two bytes": (
        "cvt.u16.u32 %h2, %r40; and.b16 %h2, %h2, 0xFF00; cvt.rn.f16x2.e4m3x2 %r6, %h2;"
        "and.b32 %r5, %r6, {};",
        "0xFFFF",
        "-1",
    ),
    "shfl takes it along": (
        "selp.b32 %r6, %r0, %r40, %p1; setp.eq.u32 %p3, %r0, 3; @%p3 mov.u32 %r6, %r40;"
        "shfl.sync.idx.b32 %r5, %r6, {}, 31, -1;",
        "2",
        "3",
    ),
    "a ballot has a bit a lane": (
        "setp.eq.u32 %p3, %r0, 3; and.pred %p4, %p3, %p9; vote.sync.ballot.b32 %r6, %p4, -1;"
        "and.b32 %r5, %r6, {};",
        "0xFFFFFFF7",
        "0xF",
    ),
    "shared memory keeps the bits": (
        "and.b32 %r6, %r40, 0xFF; " + SLOT + "st.shared.u32 [%r10], %r6; ld.shared.u32 %r7, [%r10];"
        "and.b32 %r5, %r7, {};",
        "0xFFFFFF00",
        "0xFFFFFF80",
    ),
    "shared memory is set again": (
        SLOT + "st.shared.u32 [%r10], %r40; st.shared.u32 [%r10], {}; ld.shared.u32 %r5, [%r10];",
        "%r0",
        "%r41",
    ),
    "local memory keeps the bits": (
        ".local .align 8 .b8 mine[8]; mov.u64 %d5, mine; st.local.u32 [%d5], %r40;"
        "st.local.u32 [%d5+4], %r0; ld.local.u32 %r5, [%d5+{}];",
        "4",
        "0",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_an_undefined_part_that_is_left_out_is_no_finding(name: str) -> None:
    body, right, _ = RULES[name]
    assert launch(f"{body.format(right)}\n{STORE}").findings == []


@pytest.mark.parametrize("name", RULES)
def test_an_undefined_part_that_is_stored_is_an_error(name: str) -> None:
    body, _, wrong = RULES[name]
    with pytest.raises(errors.UninitialisedRegister) as caught:
        launch(f"{body.format(wrong)}\n{STORE}")
    text = str(caught.value)
    assert "register %r5 is stored to global memory, but" in text
    assert "the result depends on a value that nothing has set" in text
    assert f"{STORE}"[:-1] in text
    assert "a fragment that is only partly filled" in text


# --- where a value matters ------------------------------------------------------------------

USES = {
    "guard": (
        "@%p9 st.global.u32 [%d0], %r0;",
        "predicate %p9 is used as the guard of st.global.u32",
    ),
    "branch": (
        "@%p9 bra E; st.global.u32 [%d0], 1; E:",
        "predicate %p9 is used as the condition of a branch",
    ),
    "address": (
        "cvt.u64.u32 %d1, %r40; add.u64 %d2, %d0, %d1; ld.global.u32 %r5, [%d2];",
        "register %d2 is used as an address, but it comes from %r40, which nothing has set",
    ),
    "part of an address": (
        "and.b32 %r6, %r40, 4; cvt.u64.u32 %d1, %r6; or.b64 %d0, %q0, %d1;st.global.u32 [%d0], 7;",
        "register %d0 is used as an address, but its bit 2 comes from %r40",
    ),
    "stored bytes": (
        "mov.b32 %r5, {%h1, %h9}; st.global.u32 [%d0], %r5;",
        "register %r5 is stored to global memory, but its bits 16-31 come from %h9",
    ),
    "atomic": ("red.global.add.u32 [%d0], %r40;", "register %r40 is used by red.global.add.u32"),
    "barrier": ("bar.sync %r40;", "register %r40 is used by bar.sync, but nothing has set it"),
    "mbarrier": (
        "mov.u32 %r10, s; setp.eq.u32 %p3, %r0, 0; @%p3 mbarrier.init.shared.b64 [%r10], %r40;"
        "ld.shared.u32 %r5, [%r10]; st.global.u32 [%d0], %r5;",
        "register %r40 is used by mbarrier.init.shared.b64, but nothing has set it",
    ),
    "brx": (
        "T: .branchtargets A, B; and.b32 %r6, %r40, 1; brx.idx %r6, T;"
        "A: st.global.u32 [%d0], 1; B:",
        "register %r6 is used as a branch's index, but its bit 0 comes from %r40",
    ),
}


@pytest.mark.parametrize("name", USES)
def test_uses_that_matter(name: str) -> None:
    body, text = USES[name]
    with pytest.raises(errors.UninitialisedRegister) as caught:
        launch(body)
    assert text in str(caught.value)
    assert "the result depends on a value that nothing has set" in str(caught.value)


def test_what_the_output_does_not_depend_on_stays_a_finding() -> None:
    (found,) = launch("@%p9 bra E; E: st.global.u32 [%d0], %r0;").findings
    assert (found.code, found.count) == ("unset_register", 32)
    assert "predicate %p9 is used as the condition of a branch" in found.message


def test_only_the_stored_bytes_must_be_set() -> None:
    body = "mov.b32 %r6, {%h1, %h9}; st.global.u16 [%d0], %h1; cvt.u16.u32 %h2, %r6;"
    assert launch(f"{body} st.global.u16 [%d0+2], %h2;").findings == []


def test_only_the_lanes_that_take_part_count() -> None:
    body = "setp.lt.u32 %p3, %r0, 8; @%p3 mov.u32 %r41, 3; @{} st.global.u32 [%d0], %r41;"
    assert launch(body.format("%p3")).findings == []
    with pytest.raises(errors.UninitialisedRegister, match="nothing has set it") as caught:
        launch(body.format("%p1"))
    assert "thread (8, 0, 0)" in str(caught.value)


def test_a_fault_by_an_undefined_value_names_the_value() -> None:
    with pytest.raises(errors.UninitialisedRegister, match="outside every tensor") as caught:
        launch("cvt.u64.u32 %d1, %r40; ld.global.u32 %r5, [%d1];")
    assert "ld.global.u32 %r5, [%d1]" in str(caught.value)
    # This one has another reason.
    with pytest.raises(errors.OutOfBounds):
        launch("@%p9 bra E; E: ld.global.u32 %r5, [%d0+4096];")


@pytest.mark.parametrize("noise", range(8))
def test_one_undefined_bit_is_never_the_same_in_all_runs(noise: int) -> None:
    """Noise of a few bits agrees by chance half the time; its complement never does."""
    with pytest.raises(errors.UninitialisedRegister, match="its bit 0 comes from"):
        launch(f"and.b32 %r6, %r{40 + noise}, 1; st.global.u32 [%d0], %r6;")


def test_local_memory_is_undefined_until_it_is_written() -> None:
    body = """.local .align 8 .b8 mine[16]; mov.u64 %d5, mine; st.local.u32 [%d5+4], %r0;
    ld.local.v2.u32 {%r5, %r6}, [%d5];"""
    assert launch(body + "st.global.u32 [%d0], %r6;").findings == []
    with pytest.raises(errors.UninitialisedRegister, match="byte 0 of the thread's local memory"):
        launch(body + STORE)


# --- shared memory --------------------------------------------------------------------------


def test_a_vector_load_over_padding_blames_nobody() -> None:
    body = (
        SLOT
        + """st.shared.v2.u32 [%r10], {%r0, %r0};
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r10]; add.u32 %r9, %r7, %r8;
    """
    )
    assert launch(body + STORE).findings == []
    with pytest.raises(errors.UninitialisedShared) as caught:
        launch(body + "st.global.u32 [%d0], %r9;")
    text = str(caught.value)
    assert "register %r9 is stored to global memory, but it comes from shared address 0x408" in text
    assert "which nothing has written; the result depends on a value" in text
    assert "st.global.u32 [%d0], %r9" in text


def test_unwritten_shared_memory_as_an_address() -> None:
    body = SLOT + "ld.shared.u64 %d1, [%r10]; ld.global.u32 %r5, [%d1];"
    with pytest.raises(errors.UninitialisedShared, match="%d1 is used as an address, but it comes"):
        launch(body)


def test_unset_shared_memory_names_the_store() -> None:
    body = SLOT + "st.shared.u32 [%r10], %r40;\nbar.sync 0; ld.shared.u32 %r5, [%r10];"
    with pytest.raises(errors.UninitialisedRegister, match=r"where PTX line \d+ has stored what"):
        launch(body + STORE)


def test_a_generic_load_may_read_unwritten_shared_memory() -> None:
    body = "mov.u64 %d2, s; cvta.shared.u64 %d3, %d2; ld.v2.u32 {%r5, %r6}, [%d3];"
    assert launch(body + "st.global.u32 [%d0], 1;").findings == []
    with pytest.raises(errors.UninitialisedShared, match="shared address 0x400"):
        launch(body + STORE)


def test_a_generic_store_checks_what_goes_to_global_memory() -> None:
    to_shared = "mov.u64 %d2, s; cvta.shared.u64 %d3, %d2; selp.b64 %d4, %d3, %d0, {};"
    assert launch(to_shared.format("%p1") + "st.u32 [%d4], %r40;").findings == []
    with pytest.raises(errors.UninitialisedRegister, match="%r40 is stored to global memory"):
        launch(to_shared.format("%p2") + "st.u32 [%d4], %r40;")


def test_cp_async_and_atomics_set_shared_memory() -> None:
    body = (
        SLOT
        + """st.shared.u32 [%r10], %r40; cp.async.ca.shared.global [%r10], [%d0], 4;
    cp.async.wait_all; st.shared.u32 [%r10+4], %r40; atom.shared.exch.b32 %r7, [%r10+4], 3;
    ld.shared.v2.u32 {%r5, %r6}, [%r10]; add.u32 %r5, %r5, %r6;
    """
    )
    assert launch(body + STORE).findings == []


def test_no_shadow_is_kept_where_nothing_is_undefined() -> None:
    """The generated code of a clean kernel is the same with and without the check."""
    from nvfp4.emulator.compiler.codegen import compile_kernel
    from nvfp4.emulator.ptx.link import link
    from nvfp4.emulator.ptx.parser import parse

    text = ptx_of(f"{MINE} setp.lt.u32 %p1, %r0, 8; @%p1 st.global.u32 [%d0], %r0;", 1)
    program = link(parse(text), "k")
    assert compile_kernel(program, True).source == compile_kernel(program, False).source
