"""Counters, sampling and text output of a launch."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_harness import MINE_IN_GRID, Array, aligned, out, run

from nvfp4.emulator.execution import launch
from nvfp4.emulator.state.native import visit_shared

SHARED = ".shared .align 16 .b8 s[8192];"


def words(n: int) -> Array:
    return aligned(out(n))


def test_a_coalesced_read_touches_four_sectors_a_warp() -> None:
    a = words(1024)
    report = run(f"{MINE_IN_GRID} ld.global.u32 %r5, [%d0];", a, grid=4, block=256)
    assert report.global_read_bytes == 4096
    assert report.global_requests == 32
    assert report.sectors_requested == 128
    assert report.sectors_distinct == report.sectors_read == 128
    assert report.sectors_written == 0


def test_a_strided_read_touches_a_sector_a_lane() -> None:
    a = words(32 * 32)
    report = run("mul.wide.u32 %d0, %r0, 128; add.u64 %d0, %d0, %q0; ld.global.u8 %h1, [%d0];", a)
    assert report.global_read_bytes == 32
    assert report.sectors_requested == 32


def test_an_address_shared_by_all_is_one_sector_a_warp_and_one_in_all() -> None:
    report = run("ld.global.u32 %r5, [%q0];", words(8), grid=3, block=64)
    assert report.sectors_requested == 6
    assert report.sectors_distinct == 1
    assert report.global_read_bytes == 4 * 64 * 3


def test_warp_instructions_are_counted_by_kind() -> None:
    body = f"""{MINE_IN_GRID} add.f32 %r5, %r0, %r0; setp.lt.u32 %p1, %r0, 32; @%p1 bra E;
    fma.rn.f32 %r5, %r5, %r5, %r5; st.global.b32 [%d0], %r5; E:"""
    report = run(body, words(128), grid=2, block=64)
    kinds = report.warp_instructions
    assert kinds["fp32"] == 4 + 2
    assert kinds["store"] == 2
    assert kinds["compare"] == 4
    assert report.divergent_branches == 0
    assert report.warp_instructions_total == sum(kinds.values())


def test_bank_conflicts_of_a_column_read() -> None:
    body = """mov.u32 %r10, s; mul.lo.u32 %r11, %r0, 128; add.u32 %r10, %r10, %r11;
    st.shared.u32 [%r10], %r0;"""
    report = run(body, words(1), before=SHARED)
    assert report.bank_conflicts == 31
    assert report.shared_bytes_written == 128
    free = run(body.replace("128", "132"), words(1), before=SHARED)
    assert free.bank_conflicts == 0


@given(st.lists(st.integers(0, 255), min_size=32, max_size=32))
def test_wavefronts_are_the_fullest_bank(slots: list[int]) -> None:
    address = np.array(slots, np.uint64) * np.uint64(4)
    lanes, out = np.arange(32), np.zeros(32, np.uint64)
    found = visit_shared(address, lanes, 32, 1, False, 0, 1024, 1024, 4, 4, out)
    bad, requests, passes, ideal = found
    assert (bad, requests) == (-1, 1)
    distinct = set(slots)
    assert passes == max(sum(s % 32 == bank for s in distinct) for bank in range(32))
    assert ideal == 1


def test_the_report_is_json() -> None:
    report = run("add.u32 %r5, %r0, 1;", words(1))
    loaded = json.loads(json.dumps(report.to_dict()))
    assert loaded["kernel"] == "k"
    assert loaded["grid"] == [1, 1, 1]
    assert loaded["warp_instructions_total"] == report.warp_instructions_total


def test_batches_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""{MINE_IN_GRID} mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r10, %r10, %r11;
    st.shared.u32 [%r10], %r3; bar.sync 0; mov.u32 %r12, s; ld.shared.u32 %r5, [%r12];
    setp.lt.u32 %p1, %r0, 7; @%p1 add.u32 %r5, %r5, 5; st.global.u32 [%d0], %r5;"""
    results = []
    for lanes in (32, 96, 1 << 20):
        monkeypatch.setattr(launch, "LANES_PER_BATCH", lanes)
        a = words(7 * 48)
        report = run(body, a, grid=7, block=48, before=SHARED)
        report.seconds = 0
        results.append((a.tolist(), report))
    assert results[0] == results[1] == results[2]


def test_printf_goes_to_the_report() -> None:
    before = """.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
    .global .align 1 .b8 fmt[24] = {37,100,32,37,46,50,102,32,37,115,32,37,108,108,117,37,37,10,0};
    .global .align 1 .b8 word[3] = {104,105,0};"""
    body = """.local .align 8 .b8 args[32]; mov.u64 %d1, args; cvta.local.u64 %d2, %d1;
    neg.s32 %r5, %r0; st.local.b32 [%d1], %r5; mov.b64 %d3, 0d3FF8000000000000;
    st.local.b64 [%d1+8], %d3; mov.u64 %d4, word; st.local.b64 [%d1+16], %d4;
    st.local.b64 [%d1+24], 5000000000; setp.gt.u32 %p1, %r0, 1; @%p1 bra E;
    { .param .b64 p0; .param .b64 p1; .param .b32 r; mov.u64 %d5, fmt; st.param.b64 [p0], %d5;
    st.param.b64 [p1], %d2; call.uni (r), vprintf, (p0, p1); ld.param.b32 %r6, [r]; } E:"""
    report = run(body, words(1), before=before)
    assert report.output == "0 1.50 hi 5000000000%\n-1 1.50 hi 5000000000%\n"


def test_clocks_run_forwards_and_are_the_same_every_time() -> None:
    body = f"""mov.u64 %d5, %clock64; {MINE_IN_GRID} mov.u64 %d6, %clock64; sub.u64 %d6, %d6, %d5;
    cvt.u32.u64 %r5, %d6; st.global.u32 [%d0], %r5;"""
    a, b = words(32), words(32)
    run(body, a)
    run(body, b)
    assert (a > 0).all()
    assert (a == b).all()


def test_a_multiway_branch_counts_the_warps_that_diverge() -> None:
    """Four warps: two go one way each, two are divided between both."""
    body = """T: .branchtargets A, B; shr.u32 %r5, %r0, 5; and.b32 %r6, %r0, 1;
    setp.lt.u32 %p1, %r5, 2; selp.u32 %r7, %r5, %r6, %p1; brx.idx %r7, T;
    A: add.u32 %r8, %r0, 1; B:"""
    assert run(body, words(1), block=128).divergent_branches == 2
