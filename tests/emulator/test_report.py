"""Counters, sampling and text output of a launch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_harness import MINE_IN_GRID, Array, aligned, out, run

from nvfp4.emulator.execution import launch
from nvfp4.emulator.state.native import visit_shared


def words(n: int) -> Array:
    return aligned(out(n))


@given(st.lists(st.integers(0, 255), min_size=32, max_size=32))
def test_wavefronts_are_the_fullest_bank(slots: list[int]) -> None:
    address = np.array(slots, np.uint64) * np.uint64(4)
    lanes, out, spent = np.arange(32), np.zeros(32, np.uint64), np.zeros(1, np.int64)
    found = visit_shared(address, lanes, 32, 1, False, 0, 1024, 1024, 4, 4, out, spent)
    bad, requests, passes, ideal = found
    assert (bad, requests) == (-1, 1) and spent[0] == passes
    assert passes == max(sum(s % 32 == bank for s in set(slots)) for bank in range(32))
    assert ideal == 1


def test_batches_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""{MINE_IN_GRID} mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r10, %r10, %r11;
    st.shared.u32 [%r10], %r3; bar.sync 0; mov.u32 %r12, s; ld.shared.u32 %r5, [%r12];
    setp.lt.u32 %p1, %r0, 7; @%p1 add.u32 %r5, %r5, 5; st.global.u32 [%d0], %r5;"""
    results = []
    for lanes in (32, 96, 1 << 20):
        monkeypatch.setattr(launch, "LANES_PER_BATCH", lanes)
        a = words(7 * 48)
        report = run(body, a, grid=7, block=48, before=".shared .align 16 .b8 s[8192];")
        report.seconds = 0
        results.append((a.tolist(), report))
    assert results[0] == results[1] == results[2]


def test_clocks_run_forwards_at_the_same_rate_from_a_drawn_time() -> None:
    body = f"""mov.u64 %d5, %clock64; {MINE_IN_GRID} mov.u64 %d6, %clock64; sub.u64 %d6, %d6, %d5;
    cvt.u32.u64 %r5, %d6; cvt.u32.u64 %r6, %d5; and.b32 %r6, %r6, 15; mad.lo.u32 %r5, %r5, 16, %r6;
    st.global.u32 [%d0], %r5;"""
    found = [words(32) for _ in range(20)]
    for each in found:
        run(body, each)
    assert {(each // 16).tobytes() for each in found} == {(found[0] // 16).tobytes()}
    assert found[0].min() >= 16
    assert len({int(each[0]) % 16 for each in found}) > 1
