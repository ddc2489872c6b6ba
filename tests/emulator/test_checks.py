"""Every check: a kernel that must be caught, and a like one that must not be."""

import subprocess
import sys

import numpy as np
import pytest
from ptx_harness import MINE, run

from nvfp4.emulator import errors

SHARED = ".shared .align 16 .b8 s[1024];"
# Byte offset of this thread's word in the shared array s, in %r10.
SLOT = "mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r10, %r10, %r11;"


# Store %r5 in this thread's word of q1.
TO_Q1 = "mul.wide.u32 %d9, %r0, 4; add.u64 %d9, %q1, %d9; st.global.u32 [%d9], %r5;"


def words(n: int = 64) -> np.ndarray:
    return np.arange(n, dtype=np.uint32)


def test_a_read_past_the_end_names_kernel_thread_line_and_tensor() -> None:
    a = words(40)
    with pytest.raises(errors.OutOfBounds) as caught:
        run(f"{MINE} ld.global.u32 %r5, [%d0+36];", a)
    text = str(caught.value)
    assert "kernel k, CTA (0, 0, 0), thread (31, 0, 0)" in text
    assert "0 bytes past the end of a0 (160 bytes)" in text
    assert "ld.global.u32 %r5, [%d0+36]" in text


def test_a_read_up_to_the_end_is_fine() -> None:
    a, out = words(40), np.zeros(32, np.uint32)
    run(f"{MINE} ld.global.u32 %r5, [%d0+32]; {TO_Q1}", a, out)
    assert out.tolist() == list(range(8, 40))


def test_a_write_before_the_start_is_caught() -> None:
    with pytest.raises(errors.OutOfBounds, match=r"write of 4 bytes.*4 bytes before a0"):
        run(f"{MINE} st.global.u32 [%d0+-4], %r0;", words())


def test_a_vector_that_hangs_over_the_end_is_caught() -> None:
    with pytest.raises(errors.OutOfBounds):
        run("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%q0];", np.zeros(17, np.uint64)[:1])


def test_bounds_hold_without_the_costly_checks_too() -> None:
    with pytest.raises(errors.OutOfBounds):
        run("mov.u64 %d1, 64; ld.global.u32 %r5, [%d1];", words(), check=False)


def test_a_masked_thread_may_hold_any_address() -> None:
    a = np.zeros(8, np.uint32)
    run(f"setp.lt.u32 %p1, %r0, 8; {MINE} @%p1 st.global.u32 [%d0], %r0;", a)
    assert a.tolist() == list(range(8))


def test_a_null_pointer_is_an_error_and_no_crash() -> None:
    with pytest.raises(errors.OutOfBounds, match="a null pointer"):
        run("mov.u64 %d1, 0; ld.u32 %r5, [%d1];", words())


def test_the_nearest_of_two_buffers_is_named() -> None:
    a, b = words(), words()
    with pytest.raises(errors.OutOfBounds, match="past the end of a1 "):
        run("ld.global.u32 %r5, [%q1+260];", a, b)


def test_parameters_and_constants_are_read_only() -> None:
    before = ".const .align 4 .u32 c[2] = {1, 2}; .global .u32 g, h[2];"
    run("mov.u64 %d1, h; st.global.u32 [%d1+4], %r0;", words(), before=before)
    for address in ("mov.u64 %d1, c;", "mov.u64 %d1, a0; cvta.param.u64 %d1, %d1;"):
        with pytest.raises(errors.ReadOnlyMemory, match="read-only memory"):
            run(f"{address} st.u32 [%d1], %r0;", words(), before=before)


def test_a_misaligned_access_is_caught() -> None:
    with pytest.raises(errors.Misaligned, match="multiple of 8"):
        run("ld.global.u64 %d1, [%q0+4];", words())


def test_an_aligned_access_is_fine() -> None:
    out = np.zeros(2, np.uint64)
    body = "ld.global.u64 %d1, [%q0+8]; ld.global.u32 %r5, [%q0+4]; cvt.u64.u32 %d2, %r5;"
    run(f"{body} st.global.u64 [%q1], %d1; st.global.u64 [%q1+8], %d2;", words(), out)
    assert out.tolist() == [2 | 3 << 32, 1]


def test_misaligned_shared_memory_is_caught() -> None:
    with pytest.raises(errors.Misaligned, match="shared address"):
        run("mov.u32 %r10, s; st.shared.u64 [%r10+4], %q0;", words(), before=SHARED)


def test_shared_memory_has_an_end() -> None:
    with pytest.raises(errors.OutOfBounds, match="1024 bytes"):
        run("mov.u32 %r10, s; st.shared.u32 [%r10+1024], %r0;", words(), before=SHARED)


def test_a_shared_store_to_the_end_is_fine() -> None:
    a = words()
    run(
        """mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r10+1020], 77;
        @%p1 ld.shared.u32 %r5, [%r10+1020]; @%p1 st.global.u32 [%q0], %r5;""",
        a,
        before=SHARED,
    )
    assert a[0] == 77


def test_an_unwritten_shared_word_is_caught_where_it_is_used() -> None:
    body = f"{SLOT} ld.shared.u32 %r5, [%r10]; {MINE} st.global.u32 [%d0], %r5;"
    with pytest.raises(errors.UninitialisedShared, match="nothing has written") as caught:
        run(body, words(), before=SHARED)
    assert "thread (0, 0, 0)" in str(caught.value)
    assert "st.global.u32 [%d0], %r5" in str(caught.value)


def test_half_a_written_word_is_not_enough() -> None:
    body = f"""{SLOT} mov.u16 %h1, 1; st.shared.u16 [%r10], %h1; ld.shared.u32 %r5, [%r10];
    {MINE} st.global.u32 [%d0], %r5;"""
    with pytest.raises(errors.UninitialisedShared, match="its bits 16-31 come from shared"):
        run(body, words(), before=SHARED)


def test_an_unwritten_shared_word_that_is_not_used_blames_nobody() -> None:
    report = run(f"{SLOT} ld.shared.u32 %r5, [%r10];", words(), before=SHARED)
    assert report.findings == []


def test_a_written_shared_word_is_fine() -> None:
    a = np.zeros(32, np.uint32)
    body = f"{SLOT} st.shared.u32 [%r10], %r0; ld.shared.u32 %r5, [%r10];"
    run(f"{body} {MINE} st.global.u32 [%d0], %r5;", a, before=SHARED)
    assert a.tolist() == list(range(32))


def test_no_check_lets_unwritten_shared_memory_pass() -> None:
    body = f"{SLOT} ld.shared.u32 %r5, [%r10]; {MINE} st.global.u32 [%d0], %r5;"
    report = run(body, words(), before=SHARED, check=False)
    assert report.findings == []


def test_no_check_notes_no_missing_warp_synchronisation() -> None:
    body = f"shfl.sync.idx.b32 %r5, %r0, 0, 31, 0xffff; {MINE} st.global.u32 [%d0], %r5;"
    assert [found.code for found in run(body, words()).findings] == ["warp_sync"]
    assert run(body, words(), check=False).findings == []


def test_an_unset_register_is_caught() -> None:
    body = f"setp.gt.u32 %p1, %r0, 5; @%p1 mov.u32 %r5, 7; {MINE} st.global.u32 [%d0], %r5;"
    with pytest.raises(errors.UninitialisedRegister, match=r"%r5") as caught:
        run(body, words())
    assert "thread (0, 0, 0)" in str(caught.value)


def test_a_register_set_under_the_same_guard_is_fine() -> None:
    body = f"""
    setp.gt.u32 %p1, %r0, 5; @%p1 mov.u32 %r5, 7; {MINE} @%p1 st.global.u32 [%d0], %r5;
    """
    a = words()
    run(body, a)
    assert a[5] == 5
    assert a[6] == 7


def test_a_register_set_on_both_sides_of_a_branch_is_fine() -> None:
    body = f"""
    setp.gt.u32 %p1, %r0, 5; @%p1 bra B; mov.u32 %r5, 1; bra C; B: mov.u32 %r5, 2;
    C: {MINE} st.global.u32 [%d0], %r5;
    """
    a = words()
    run(body, a)
    assert a[:8].tolist() == [1] * 6 + [2] * 2


def test_an_unset_register_on_one_side_of_a_branch_is_caught() -> None:
    body = f"""
    setp.gt.u32 %p1, %r0, 5; @%p1 bra C; mov.u32 %r5, 1;
    C: {MINE} st.global.u32 [%d0], %r5;
    """
    with pytest.raises(errors.UninitialisedRegister) as caught:
        run(body, words())
    assert "thread (6, 0, 0)" in str(caught.value)


def test_arithmetic_on_an_unset_register_is_caught_only_where_it_matters() -> None:
    """Compilers compute with values that nobody set where the result will not matter."""
    body = f"""mov.u32 %r6, %r5; mov.b64 %d3, {{%r6, %r0}}; mov.b64 {{%r7, %r8}}, %d3;
    add.u32 %r9, %r7, 1; setp.lt.u32 %p1, %r0, 9; selp.u32 %r10, %r0, %r9, %p1; {MINE} %USE%"""
    run(body.replace("%USE%", "@%p1 st.global.u32 [%d0], %r10;"), words())
    with pytest.raises(errors.UninitialisedRegister, match=r"%r10 .* from %r5") as caught:
        run(body.replace("%USE%", "st.global.u32 [%d0], %r10;"), words())
    assert "thread (9, 0, 0)" in str(caught.value)
    use = "setp.eq.u32 %p2, %r10, 3; @%p2 bra E; E:"
    (found,) = run(body.replace("%USE%", use), words()).findings
    assert "predicate %p2 is used as the condition of a branch" in found.message
    with pytest.raises(errors.UninitialisedRegister, match="%d4"):
        run(body.replace("%USE%", "cvt.u64.u32 %d4, %r9; ld.global.u32 %r1, [%d4];"), words())


# Each thread writes its word and reads that of the thread 32 further on (another warp).
EXCHANGE = f"""
{SLOT} st.shared.u32 [%r10], %r0; %SYNC%
add.u32 %r12, %r0, 32; and.b32 %r12, %r12, 63; shl.b32 %r12, %r12, 2; mov.u32 %r13, s;
add.u32 %r13, %r13, %r12; ld.shared.u32 %r5, [%r13]; {MINE} st.global.u32 [%d0], %r5;
"""
ACROSS_A_WARP = EXCHANGE.replace("%r0, 32", "%r0, 1").replace("%r12, 63", "%r12, 31")


def test_a_read_of_another_warp_s_word_without_a_barrier_is_a_race() -> None:
    with pytest.raises(errors.SharedRace, match="no barrier") as caught:
        run(EXCHANGE.replace("%SYNC%", ""), words(), block=64, before=SHARED)
    assert "races with thread" in str(caught.value)
    assert "CTA (0, 0, 0)" in str(caught.value)


@pytest.mark.parametrize("sync", ["bar.sync 0;", "barrier.sync 3, 64;", "bar.sync 1, 64;"])
def test_a_barrier_orders_the_warps(sync: str) -> None:
    a = words()
    run(EXCHANGE.replace("%SYNC%", sync), a, block=64, before=SHARED)
    assert a.tolist() == [(i + 32) % 64 for i in range(64)]


def test_a_warp_sync_does_not_order_other_warps() -> None:
    with pytest.raises(errors.SharedRace):
        run(EXCHANGE.replace("%SYNC%", "bar.warp.sync -1;"), words(), block=64, before=SHARED)


def test_threads_of_one_warp_need_a_warp_sync_and_run_together_without() -> None:
    a = words()
    (finding,) = run(ACROSS_A_WARP.replace("%SYNC%", ""), a, before=SHARED).findings
    assert finding.code == "warp_sync"
    assert "no __syncwarp lies between" in finding.message
    assert a[:32].tolist() == [(i + 1) % 32 for i in range(32)]


@pytest.mark.parametrize(
    "sync", ["bar.warp.sync -1;", "shfl.sync.idx.b32 %r20, %r0, 0, 31, -1;", "bar.sync 0;"]
)
def test_a_warp_sync_orders_the_warp(sync: str) -> None:
    a = words()
    run(ACROSS_A_WARP.replace("%SYNC%", sync), a, before=SHARED)
    assert a[:32].tolist() == [(i + 1) % 32 for i in range(32)]


def test_a_write_after_others_read_is_a_race() -> None:
    body = f"""
    {SLOT} st.shared.u32 [%r10], %r0; bar.sync 0;
    mov.u32 %r13, s; ld.shared.u32 %r5, [%r13]; %SYNC%
    setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r13], 99; {MINE} st.global.u32 [%d0], %r5;
    """
    assert (
        run(body.replace("%SYNC%", "bar.sync 0;"), words(), block=64, before=SHARED).findings == []
    )
    with pytest.raises(errors.SharedRace, match=r"write of 4 bytes.*depends on the order"):
        run(body.replace("%SYNC%", ""), words(), block=64, before=SHARED)


def test_two_values_to_one_word_race_and_one_value_does_not() -> None:
    body = f"""mov.u32 %r10, s; st.shared.u32 [%r10], %VALUE%; bar.sync 0;
    ld.shared.u32 %r5, [%r10]; {MINE} st.global.u32 [%d0], %r5;"""
    assert run(body.replace("%VALUE%", "5"), words(), block=64, before=SHARED).findings == []
    with pytest.raises(errors.SharedRace, match="depends on the order"):
        run(body.replace("%VALUE%", "%r0"), words(), block=64, before=SHARED)


def test_a_race_that_changes_nothing_is_a_finding() -> None:
    report = run("mov.u32 %r10, s; st.shared.u32 [%r10], %r0;", words(), block=64, before=SHARED)
    assert "shared_race" in {finding.code for finding in report.findings}


def test_neighbouring_bytes_of_a_word_do_not_race() -> None:
    body = (
        "mov.u32 %r10, s; add.u32 %r10, %r10, %r0; cvt.u16.u32 %h1, %r0; st.shared.u8 [%r10], %h1;"
    )
    a = np.zeros(16, np.uint32)
    read_back = """bar.sync 0; setp.gt.u32 %p1, %r0, 15; @%p1 exit; shl.b32 %r11, %r0, 2;
    mov.u32 %r12, s; add.u32 %r11, %r12, %r11; ld.shared.u32 %r5, [%r11];"""
    run(f"{body} {read_back} {MINE} st.global.u32 [%d0], %r5;", a, block=64, before=SHARED)
    assert a.view(np.uint8).tolist() == list(range(64))


def test_ctas_have_shared_memory_of_their_own() -> None:
    body = f"""
    {SLOT} mov.u32 %r1, %ctaid.x; st.shared.u32 [%r10], %r1; ld.shared.u32 %r5, [%r10];
    mad.lo.u32 %r3, %r1, 32, %r0; mul.wide.u32 %d0, %r3, 4; add.u64 %d0, %q0, %d0;
    st.global.u32 [%d0], %r5;
    """
    a = words(96)
    run(body, a, grid=3, before=SHARED)
    assert (a == np.repeat([0, 1, 2], 32)).all()


def test_a_local_access_outside_the_thread_s_memory_is_caught() -> None:
    body = ".local .align 4 .b8 mine[16]; mov.u64 %d1, mine; st.local.u32 [%d1+{}], %r0;"
    run(body.format(12), words())
    with pytest.raises(errors.OutOfBounds, match="16 bytes of local memory"):
        run(body.format(16), words())


def test_a_runaway_address_never_reaches_the_process() -> None:
    """In a process of its own: the emulator must survive any address a kernel makes up."""
    script = f"""
import sys; sys.path[:0] = {sys.path!r}
import numpy as np
from ptx_harness import run
from nvfp4.emulator.errors import EmulatorError
for bits in range(0, 64):
    for op in ("ld.global.u32 %r5, [%d5];", "st.u32 [%d5], %r0;", "red.global.add.u32 [%d5], %r0;"):
        try:
            run(f"mov.u64 %d5, {{1 << bits}}; {{op}}", np.zeros(4, np.uint32), check=False)
        except EmulatorError:
            continue
        raise SystemExit(f"no error at {{1 << bits:#x}}: {{op}}")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_special_register_that_is_not_emulated_is_named() -> None:
    with pytest.raises(errors.UnsupportedInstruction, match="special register %pm0 is not"):
        run("mov.u32 %r1, %pm0; st.global.u32 [%q0], %r1;", np.zeros(4, np.uint32))


def test_what_the_driver_sets_for_cooperative_launches_alone_is_zero() -> None:
    a = np.ones(4, np.uint32)
    run("mov.u32 %r1, %envreg2; st.global.u32 [%q0], %r1;", a)
    assert a[0] == 0
