import numpy as np
import pytest
from ptx_harness import MINE, MINE_IN_GRID, run

from nvfp4.emulator import errors

SHARED = ".shared .align 16 .b8 s[256];"


def test_lanes_that_add_to_one_word_each_see_a_different_old_value() -> None:
    old, total = np.zeros(96, np.uint32), np.zeros(1, np.uint32)
    run(
        f"{MINE_IN_GRID} atom.global.add.u32 %r5, [%q1], 2; st.global.u32 [%d0], %r5;",
        old,
        total,
        grid=3,
    )
    assert total[0] == 192
    assert sorted(old.tolist()) == list(range(0, 192, 2))


@pytest.mark.parametrize(
    ("op", "start", "expected"),
    [
        ("and.b32", 0xFFFFFFFF, 0),
        ("or.b32", 0, 31),
        ("xor.b32", 5, 5),
        ("min.s32", 7, 0),
        ("max.u32", 7, 31),
        ("exch.b32", 7, 31),
        ("inc.u32", 3, 3),
        ("dec.u32", 40, 18),
    ],
)
def test_integer_atomics(op: str, start: int, expected: int) -> None:
    """inc and dec get the bound 31 from every lane's number only in their own tests."""
    word = np.array([start], np.uint32)
    operand = {"inc.u32": "3", "dec.u32": "49"}.get(op, "%r0")
    run(f"red.global.{op} [%q0], {operand};", word)
    if op == "inc.u32":
        expected = (3 + 32) % 4
    if op == "dec.u32":
        expected = (40 - 32) % 50
    assert word[0] == expected


def test_compare_and_swap_lets_one_lane_win() -> None:
    word, won = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
    body = f"""{MINE} add.u32 %r6, %r0, 100; atom.global.cas.b32 %r5, [%q1], 0, %r6;
    setp.eq.u32 %p1, %r5, 0; selp.u32 %r7, 1, 0, %p1; st.global.u32 [%d0], %r7;"""
    run(body, won, word)
    assert won.sum() == 1
    assert word[0] == 100 + int(won.argmax())


@pytest.mark.corpus
def test_a_lock_by_compare_and_swap_is_taken_by_one_thread_at_a_time() -> None:
    lock, counter = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    body = """TRY: atom.acquire.gpu.global.cas.b32 %r5, [%q0], 0, 1; setp.ne.u32 %p1, %r5, 0;
    @%p1 bra TRY; ld.volatile.global.u32 %r6, [%q1]; add.u32 %r6, %r6, 1;
    st.volatile.global.u32 [%q1], %r6; atom.release.gpu.global.exch.b32 %r7, [%q0], 0;"""
    run(body, lock, counter, block=32)
    assert counter[0] == 32


def test_f32_addition_rounds_in_lane_order() -> None:
    total = np.array([2.0**24], np.float32)
    run("mov.f32 %r5, 0f3F800000; red.global.add.f32 [%q0], %r5;", total)
    assert total[0] == 2.0**24


def test_global_f32_addition_flushes_subnormals_and_shared_keeps_them() -> None:
    tiny = np.float32(1e-40)
    a, b = np.array([tiny, 0], np.float32), np.zeros(1, np.float32)
    body = """setp.eq.u32 %p1, %r0, 0; @!%p1 bra E; mov.u32 %r10, s; ld.global.b32 %r5, [%q0];
    st.shared.b32 [%r10], 0; red.global.add.f32 [%q0+4], %r5; red.shared.add.f32 [%r10], %r5;
    ld.shared.b32 %r6, [%r10]; st.global.b32 [%q1], %r6; E:"""
    run(body, a, b, before=SHARED)
    assert a[1] == 0
    assert b[0] == tiny


def test_f16x2_and_vector_additions() -> None:
    a, b = np.zeros(2, np.float16), np.zeros(4, np.float32)
    body = """mov.b32 %r5, 0x40003C00; red.global.add.noftz.f16x2 [%q0], %r5;
    mov.f32 %r6, 0f3F000000; red.global.v4.f32.add [%q1], {%r6, %r6, %r6, %r6};"""
    run(body, a, b[:4])
    assert a.tolist() == [32.0, 64.0]
    assert b.tolist() == [16.0] * 4


def test_shared_atomics_do_not_race_with_each_other() -> None:
    a = np.zeros(64, np.uint32)
    body = f"""mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r10], 0; bar.sync 0;
    atom.shared.add.u32 %r5, [%r10], 1; bar.sync 0; ld.shared.u32 %r6, [%r10];
    {MINE} st.global.u32 [%d0], %r6;"""
    run(body, a, block=64, before=SHARED)
    assert (a == 64).all()


def test_a_plain_read_races_with_an_atomic() -> None:
    body = f"""mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r10], 0; bar.sync 0;
    atom.shared.add.u32 %r5, [%r10], 1; ld.shared.u32 %r6, [%r10];
    {MINE} st.global.u32 [%d0], %r6;"""
    with pytest.raises(errors.SharedRace, match="depends on the order"):
        run(body, np.zeros(64, np.uint32), block=64, before=SHARED)


def test_an_atomic_on_unwritten_shared_memory_is_a_finding() -> None:
    body = "mov.u32 %r10, s; red.shared.add.u32 [%r10], 1;"
    (found,) = run(body, np.zeros(1, np.uint32), before=SHARED).findings
    assert (found.code, found.count) == ("unwritten_shared", 32)
    body += " ld.shared.u32 %r5, [%r10]; st.global.u32 [%q0], %r5;"
    with pytest.raises(errors.UninitialisedShared, match="atomic on shared address"):
        run(body, np.zeros(1, np.uint32), before=SHARED)


def test_an_exchange_initialises_shared_memory() -> None:
    body = """mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; @%p1 atom.shared.exch.b32 %r5, [%r10], 7;
    bar.sync 0; ld.shared.u32 %r6, [%r10]; st.global.u32 [%q0], %r6;"""
    out = np.zeros(1, np.uint32)
    assert run(body, out, before=SHARED).findings == []
    assert out[0] == 7


def test_an_atomic_out_of_bounds_is_caught() -> None:
    with pytest.raises(errors.OutOfBounds, match="past the end of a0"):
        run("red.global.add.u32 [%q0+4], 1;", np.zeros(1, np.uint32))


def test_generic_atomics_reach_both_spaces_in_one_instruction() -> None:
    a, word = np.zeros(32, np.uint32), np.zeros(1, np.uint32)
    body = f"""mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r10], 0; bar.sync 0;
    cvt.u64.u32 %d1, %r10; cvta.shared.u64 %d1, %d1; setp.lt.u32 %p2, %r0, 10;
    selp.b64 %d2, %d1, %q1, %p2; atom.add.u32 %r5, [%d2], 1; bar.sync 0;
    ld.u32 %r6, [%d1]; {MINE} st.global.u32 [%d0], %r6;"""
    run(body, a, word, before=SHARED)
    assert (a == 10).all()
    assert word[0] == 22


@pytest.mark.parametrize("atomic", ["atom.add.u32 %r5, [%d1], 1;", "red.add.u32 [%d1], 1;"])
def test_an_atomic_does_not_reach_local_memory(atomic: str) -> None:
    body = ".local .align 8 .b8 mine[8]; mov.u64 %d2, mine; cvta.local.u64 %d1, %d2;"
    body += "setp.ne.u32 %p1, %r0, 5; @%p1 mov.u64 %d1, %q0;"
    with pytest.raises(errors.OutOfBounds, match="in the thread's local memory") as caught:
        run(f"{body} {atomic}", np.zeros(1, np.uint32))
    assert caught.value.where is not None
    assert caught.value.where.thread == (5, 0, 0)
