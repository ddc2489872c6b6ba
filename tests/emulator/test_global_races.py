"""Races on global memory: what nothing orders is found, what atomics and barriers order is not."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_harness import MINE, MINE_IN_GRID, out, run

from nvfp4.emulator import errors

SHARED = ".shared .align 16 .b8 s[256];"
ELECT0 = "setp.eq.u32 %p1, %r0, 0;"
# This CTA's number in %r1, and its word of q0 in %d1.
CTA_WORD = "mov.u32 %r1, %ctaid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %q0, %d1;"


def codes(report: Any) -> list[str]:
    return [finding.code for finding in report.findings]


# Each CTA adds its part to every word of c: split-K.
SPLIT_K = f"""{MINE} mov.u32 %r1, %ctaid.x; add.u32 %r6, %r1, 1; mul.lo.u32 %r6, %r6, %r6; %ADD%"""
PLAIN = SPLIT_K.replace(
    "%ADD%", "ld.global.u32 %r5, [%d0]; add.u32 %r5, %r5, %r6; st.global.u32 [%d0], %r5;"
)


def test_split_k_without_atomics_loses_updates() -> None:
    with pytest.raises(errors.GlobalRace, match="result depends on the order") as caught:
        run(PLAIN, out(32), grid=4)
    text = str(caught.value)
    assert "byte 0 of a0 (128 bytes) races with thread (0, 0, 0) of CTA" in text
    assert "write of 4 bytes" in text


def test_split_k_without_atomics_is_found_across_batches() -> None:
    """1024 threads a CTA: 40 CTAs run in three batches."""
    with pytest.raises(errors.GlobalRace, match="result depends on the order"):
        run(PLAIN, out(1024), grid=40, block=1024)


def test_split_k_by_volatile_accesses_of_different_words_is_fine() -> None:
    body = f"{MINE_IN_GRID} ld.volatile.global.u32 %r5, [%d0]; st.volatile.global.u32 [%d0], %r5;"
    assert codes(run(body, out(128), grid=4)) == []


@pytest.mark.parametrize("add", ["red.global.add.u32 [%d0], %r6;", "atom.add.u32 %r5, [%d0], %r6;"])
def test_split_k_with_atomics_is_fine(add: str) -> None:
    c = out(32)
    report = run(SPLIT_K.replace("%ADD%", add), c, grid=40)
    assert codes(report) == []
    assert (c == sum(i * i for i in range(1, 41))).all()


def test_a_thread_may_add_to_its_own_word() -> None:
    body = f"""{MINE_IN_GRID} ld.global.u32 %r5, [%d0]; add.u32 %r5, %r5, 3;
    st.global.u32 [%d0], %r5;"""
    c = out(128)
    assert codes(run(body, c, grid=4)) == []
    assert (c == 3).all()


# Every CTA stores its part; the last one to arrive at a counter (q1) sums them up into q2.
LAST_CTA = f"""{CTA_WORD} {ELECT0} @!%p1 bra MEET; add.u32 %r6, %r1, 1; st.global.u32 [%d1], %r6;
%FENCE% atom.global.add.u32 %r7, [%q1], 1; mov.u32 %r10, s; st.shared.u32 [%r10], %r7;
MEET: bar.sync 0; mov.u32 %r10, s; ld.shared.u32 %r7, [%r10]; mov.u32 %r8, %nctaid.x;
sub.u32 %r8, %r8, 1; setp.ne.u32 %p2, %r7, %r8; @%p2 bra E;
setp.ge.u32 %p3, %r0, %nctaid.x; @%p3 bra E; {MINE} ld.global.u32 %r9, [%d0];
red.global.add.u32 [%q2], %r9; E:"""


@pytest.mark.parametrize("ctas", [2, 33, 300])
def test_the_last_cta_to_arrive_sums_the_partial_results(ctas: int) -> None:
    """300 CTAs of 320 threads run in several batches."""
    total = out(1)
    body = LAST_CTA.replace("%FENCE%", "membar.gl;")
    report = run(body, out(ctas), out(1), total, grid=ctas, block=320, before=SHARED)
    assert codes(report) == []
    assert total[0] == ctas * (ctas + 1) // 2


def test_a_partial_result_stored_after_the_counter_is_a_race() -> None:
    store = "st.global.u32 [%d1], %r6;"
    body = LAST_CTA.replace(store, "")
    body = body.replace("%FENCE%", "").replace("[%q1], 1;", f"[%q1], 1; {store}")
    report = run(body, out(8), out(1), out(1), grid=8, block=64, before=SHARED)
    assert "global_race" in codes(report)


def test_the_counter_must_be_reached_after_all_threads_have_stored() -> None:
    """All threads store, and thread 0 counts with no barrier before."""
    body = f"""{MINE_IN_GRID} st.global.u32 [%d0], %r3; %SYNC% {ELECT0} @!%p1 bra MEET;
    membar.gl; atom.global.add.u32 %r7, [%q1], 1; mov.u32 %r10, s; st.shared.u32 [%r10], %r7;
    MEET: bar.sync 0; mov.u32 %r10, s; ld.shared.u32 %r7, [%r10]; setp.ne.u32 %p2, %r7, 3;
    @%p2 bra E; mov.u32 %r8, 0; xor.b32 %r9, %r0, 32;
    L: mad.lo.u32 %r6, %r8, 64, %r9; mul.wide.u32 %d2, %r6, 4; add.u64 %d2, %q0, %d2;
    ld.global.u32 %r5, [%d2]; red.global.add.u32 [%q2], %r5; add.u32 %r8, %r8, 1;
    setp.lt.u32 %p3, %r8, 4; @%p3 bra L; E:"""
    total = out(1)
    good = run(body.replace("%SYNC%", "bar.sync 0;"), out(256), out(1), total, grid=4, block=64,
               before=SHARED)  # fmt: skip
    assert codes(good) == []
    assert total[0] == sum(range(256))
    with pytest.raises(errors.GlobalRace):
        run(body.replace("%SYNC%", ""), out(256), out(1), out(1), grid=4, block=64, before=SHARED)


@pytest.mark.parametrize(
    ("store", "load"),
    [
        ("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"),
        ("membar.gl; st.volatile.global.u32", "ld.volatile.global.u32"),
        ("fence.acq_rel.gpu; st.global.u32", "ld.relaxed.gpu.global.u32"),
        ("membar.gl; red.global.add.u32", "ld.acquire.sys.global.u32"),
    ],
)
def test_a_flag_hands_data_from_one_cta_to_another(store: str, load: str) -> None:
    data, flag, got = out(1), out(1), out(1)
    body = f"""mov.u32 %r1, %ctaid.x; {ELECT0} @!%p1 bra E; setp.ne.u32 %p2, %r1, 0; @%p2 bra TAKE;
    st.global.u32 [%q0], 77; {store} [%q1], 1; bra E;
    TAKE: {load} %r5, [%q1]; setp.eq.u32 %p3, %r5, 0; @%p3 bra TAKE; ld.global.u32 %r6, [%q0];
    st.global.u32 [%q2], %r6; E:"""
    assert codes(run(body, data, flag, got, grid=2)) == []
    assert got[0] == 77


def test_data_read_without_looking_at_the_flag_is_a_race() -> None:
    body = f"""{ELECT0} @!%p1 bra E; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p2, %r1, 0; @%p2 bra TAKE;
    st.global.u32 [%q0], 77; st.release.gpu.global.u32 [%q1], 1; bra E;
    TAKE: ld.global.u32 %r6, [%q0]; st.global.u32 [%q2], %r6; E:"""
    with pytest.raises(errors.GlobalRace, match="result depends on the order"):
        run(body, out(1), out(1), out(1), grid=2)


def test_two_ctas_that_store_two_values_race_and_one_value_does_not() -> None:
    body = f"""{ELECT0} mov.u32 %r1, %ctaid.x; %VALUE% @%p1 st.global.u32 [%q0], %r1;"""
    assert codes(run(body.replace("%VALUE%", "mov.u32 %r1, 5;"), out(1), grid=2)) == []
    with pytest.raises(errors.GlobalRace, match="result depends on the order"):
        run(body.replace("%VALUE%", ""), out(1), grid=2)


def test_a_race_that_changes_nothing_is_a_finding() -> None:
    """Two values are stored, then the launch's one reader of them overwrites the word."""
    body = f"""{ELECT0} @!%p1 bra E; mov.u32 %r1, %ctaid.x; st.global.u32 [%q0], %r1;
    st.global.u32 [%q0], 9; E:"""
    a = out(1)
    report = run(body, a, grid=3)
    assert codes(report)[0] == "global_race"
    assert a[0] == 9


@pytest.mark.parametrize("neighbour", [1, 4, 7])
def test_a_read_of_what_another_cta_writes_is_a_race(neighbour: int) -> None:
    body = f"""{ELECT0} @!%p1 bra E; {CTA_WORD} add.u32 %r6, %r1, 1; st.global.u32 [%d1], %r6;
    xor.b32 %r2, %r1, {neighbour}; mul.wide.u32 %d2, %r2, 4; add.u64 %d2, %q0, %d2;
    ld.global.u32 %r5, [%d2]; mul.wide.u32 %d3, %r1, 4; add.u64 %d3, %q1, %d3;
    st.global.u32 [%d3], %r5; E:"""
    with pytest.raises(errors.GlobalRace, match="result depends on the order"):
        run(body, out(64), out(64), grid=64)


def test_zeroing_by_one_cta_while_others_add_is_a_race() -> None:
    body = f"""{ELECT0} @!%p1 bra E; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p2, %r1, 0;
    @%p2 st.global.u32 [%q0], 0; red.global.add.u32 [%q0], 1; E:"""
    with pytest.raises(errors.GlobalRace, match="result depends on the order"):
        run(body, np.full(1, 5, np.uint32), grid=8)


def test_rounding_of_atomic_additions_is_not_taken_for_a_race() -> None:
    """The sums differ between orders in their last bits; the race elsewhere changes nothing."""
    body = f"""{ELECT0} @!%p1 bra E; mov.u32 %r1, %ctaid.x; cvt.rn.f32.u32 %r5, %r1;
    sqrt.rn.f32 %r5, %r5; red.global.add.f32 [%q0], %r5; st.global.u32 [%q1], %r1;
    st.global.u32 [%q1], 3; E:"""
    total = np.zeros(2, np.float32)
    assert "global_race" in codes(run(body, total, out(1), grid=64))
    assert total[0] == pytest.approx(np.sqrt(np.arange(64)).sum(), rel=1e-5)


# Within a CTA: each thread writes its word and reads that of another warp.
EXCHANGE = f"""{MINE} st.global.u32 [%d0], %r0; %SYNC% xor.b32 %r2, %r0, %OTHER%;
mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %q0, %d2; ld.global.u32 %r5, [%d3];
mul.wide.u32 %d4, %r0, 4; add.u64 %d4, %q1, %d4; st.global.u32 [%d4], %r5;"""


def exchange(sync: str, other: int) -> str:
    return EXCHANGE.replace("%SYNC%", sync).replace("%OTHER%", str(other))


@pytest.mark.parametrize("sync", ["bar.sync 0;", "barrier.sync 2, 64;"])
def test_a_barrier_orders_global_memory(sync: str) -> None:
    a, b = np.full(64, 99, np.uint32), out()
    assert codes(run(exchange(sync, 32), a, b, block=64)) == []
    assert b.tolist() == [i ^ 32 for i in range(64)]


def test_warps_without_a_barrier_race_on_global_memory() -> None:
    with pytest.raises(errors.GlobalRace, match="no barrier lies between"):
        run(exchange("", 32), np.full(64, 99, np.uint32), out(), block=64)
    with pytest.raises(errors.GlobalRace):
        run(exchange("bar.warp.sync -1;", 32), np.full(64, 99, np.uint32), out(), block=64)


def test_lanes_of_a_warp_need_a_warp_sync_and_run_together_without() -> None:
    a, b = np.full(64, 99, np.uint32), out()
    assert codes(run(exchange("", 1), a, b, block=64)) == ["warp_sync"]
    assert b.tolist() == [i ^ 1 for i in range(64)]
    assert codes(run(exchange("bar.warp.sync -1;", 1), a, b, block=64)) == []


def test_bytes_of_one_word_that_different_ctas_write_do_not_race() -> None:
    body = f"""{ELECT0} @!%p1 bra E; mov.u32 %r1, %ctaid.x; cvt.u64.u32 %d1, %r1;
    add.u64 %d1, %q0, %d1; cvt.u16.u32 %h1, %r1; st.global.u8 [%d1], %h1; E:"""
    a = np.zeros(64, np.uint8)
    assert codes(run(body, a, grid=64)) == []
    assert a.tolist() == list(range(64))


def test_a_bulk_store_races_with_another_cta_s() -> None:
    body = f"""{ELECT0} @!%p1 bra E; mov.u32 %r10, s; mov.u32 %r1, %ctaid.x;
    st.shared.v4.u32 [%r10], {{%r1, %r1, %r1, %r1}}; fence.proxy.async; %PLACE%
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r10], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:"""
    own = "mul.wide.u32 %d1, %r1, 16; add.u64 %d1, %q0, %d1;"
    block = np.zeros(64, np.uint32)
    a = block[-block.ctypes.data % 16 // 4 :][:32]
    assert codes(run(body.replace("%PLACE%", own), a, grid=8, before=SHARED)) == []
    assert a.tolist() == np.repeat(np.arange(8), 4).tolist()
    with pytest.raises(errors.GlobalRace, match="result depends on the order"):
        run(body.replace("%PLACE%", "mov.u64 %d1, %q0;"), a, grid=8, before=SHARED)


def test_a_launch_without_checks_looks_for_no_races() -> None:
    assert codes(run(PLAIN, out(32), grid=4, check=False)) == []


places = st.permutations(range(96))


@settings(max_examples=30)
@given(places, st.integers(0, 95), st.integers(0, 95))
def test_each_word_written_by_one_thread_is_fine_and_by_two_is_not(
    order: list[int], one: int, two: int
) -> None:
    """Threads of three CTAs store their numbers by a permutation, perhaps with one word shared."""
    where = np.array(order, np.uint32)
    body = """mov.u32 %r1, %ctaid.x; mad.lo.u32 %r3, %r1, 32, %r0; mul.wide.u32 %d1, %r3, 4;
    add.u64 %d2, %q1, %d1; ld.global.u32 %r4, [%d2]; mul.wide.u32 %d3, %r4, 4;
    add.u64 %d3, %q0, %d3; st.global.u32 [%d3], %r3;"""
    a = out(96)
    assert codes(run(body, a, where, grid=3)) == []
    assert a[where].tolist() == list(range(96))
    if one // 32 != two // 32:
        where[one] = where[two]
        with pytest.raises(errors.GlobalRace):
            run(body, out(96), where, grid=3)


# Thread 0 of CTA 0 clears a sum, and every thread adds to it.
CLEARED_SUM = """mov.u32 %r1, %ctaid.x; or.b32 %r2, %r0, %r1; setp.eq.u32 %p1, %r2, 0;
@%p1 st.global.u32 [%q0], 0; bar.warp.sync -1; %SYNC% red.global.add.u32 [%q0], 1;"""


@pytest.mark.parametrize(("grid", "block"), [(4, 32), (1, 64)])
def test_own_atomics_do_not_hide_that_a_thread_has_cleared_the_sum(grid: int, block: int) -> None:
    with pytest.raises(errors.GlobalRace, match="depends on the order"):
        run(CLEARED_SUM.replace("%SYNC%", ""), out(1), grid=grid, block=block)


def test_a_sum_that_is_cleared_before_a_barrier_of_its_cta_is_no_race() -> None:
    total = out(1)
    assert codes(run(CLEARED_SUM.replace("%SYNC%", "bar.sync 0;"), total, block=64)) == []
    assert total[0] == 64
