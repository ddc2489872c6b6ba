"""What a launch costs by line: requests, sectors, conflicts, divergence, live registers."""

from typing import Any

import numpy as np
import pytest
from ptx_harness import Array, aligned, launch_of, out
from test_kernels_in_ptx import KERNELS

from nvfp4 import emulator
from nvfp4.emulator.cost import KernelCost, merged
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.records.costs import AccessCost, LineCost

SHARED = ".shared .align 16 .b8 s[8192];"


def words(n: int) -> Array:
    return aligned(out(n))


def cost(body: str, *arrays: Array, most: int = 10**9, seed: int = 0, **how: Any) -> KernelCost:
    """Of a body on arrays; see `launch_of`."""
    return emulator.cost_of(launch_of(body, *arrays, **how), most, seed=seed)


def only_line(found: KernelCost) -> LineCost:
    """PTX without `.loc` comes from no line of source that is known."""
    (line,) = found.lines
    assert (line.file, line.line) == (None, None)
    return line


def access(found: KernelCost, opcode: str) -> AccessCost:
    (each,) = [each for each in only_line(found).accesses if each.opcode == opcode]
    return each


def test_a_strided_load_asks_for_more_sectors_than_its_bytes_need() -> None:
    body = "mul.wide.u32 %d0, %r0, 512; add.u64 %d0, %q0, %d0; ld.global.u32 %r1, [%d0];"
    found = access(cost(body, words(32 * 128)), "ld.global.u32")
    assert (found.requests, found.sectors, found.least_sectors) == (1, 32, 4)
    assert found.stride_bytes == 512
    assert found.nbytes == 4


def test_neighbouring_words_and_one_for_all_need_no_more_than_they_ask_for() -> None:
    body = """mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %q0, %d0; ld.global.u32 %r1, [%d0];
    ld.global.b32 %r2, [%q0];"""
    found = cost(body, words(64), block=64)
    assert access(found, "ld.global.u32").sectors == 8
    assert access(found, "ld.global.u32").least_sectors == 8
    broadcast = access(found, "ld.global.b32")
    assert (broadcast.requests, broadcast.sectors, broadcast.least_sectors) == (2, 2, 2)
    assert broadcast.stride_bytes is None


def test_bytes_that_every_cta_reads_are_requested_again_and_again() -> None:
    (read,) = only_line(cost("ld.global.u32 %r1, [%q0];", words(8), grid=5)).reads
    assert (read.buffer, read.requested_bytes, read.distinct_bytes) == ("a0", 20, 4)


def test_a_load_in_a_loop_repeats_an_address_or_moves_on() -> None:
    body = """mov.u32 %r1, 0; mov.u64 %d1, %q0;
    L: ld.global.u32 %r2, [%q0]; ld.global.b32 %r3, [%d1];
    add.u64 %d1, %d1, 4; add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 8; @%p0 bra L;"""
    found = cost(body, words(16), grid=3)
    invariant, moving = access(found, "ld.global.u32"), access(found, "ld.global.b32")
    assert (invariant.requests, invariant.repeats, invariant.moves) == (24, 21, 0)
    assert (moving.requests, moving.repeats, moving.moves) == (24, 0, 21)


@pytest.mark.parametrize(("shift", "ways"), [(2, 1), (3, 2), (5, 8), (7, 32)])
def test_a_bank_conflict_names_its_ways_bank_and_lanes(shift: int, ways: int) -> None:
    body = f"""mov.u32 %r1, s; shl.b32 %r2, %r0, {shift}; add.u32 %r1, %r1, %r2;
    st.shared.u32 [%r1], %r0;"""
    found = access(cost(body, before=SHARED), "st.shared.u32")
    assert (found.passes, found.least_passes) == (ways, 1)
    if ways == 1:
        assert found.conflict_ways is None
    else:
        assert (found.conflict_ways, found.conflict_bank) == (ways, 0)
        assert found.conflict_lanes == list(range(0, 32, 32 // ways))


@pytest.mark.parametrize(("shared", "passes"), [(0, 4), (1, 2), (5, 2)])
def test_lanes_that_share_wide_words_take_half_the_passes(shared: int, passes: int) -> None:
    body = f"""mov.u32 %r1, s; shr.b32 %r2, %r0, {shared}; mad.lo.u32 %r1, %r2, 16, %r1;
    ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, [%r1];"""
    assert access(cost(body, before=SHARED), "ld.shared.v4.u32").passes == passes


def test_lanes_that_wait_for_one_are_charged_to_the_branch_and_a_part_of_a_warp_to_none() -> None:
    body = """setp.ne.u32 %p0, %r0, 3; mov.u32 %r1, 0; @%p0 bra E;
    L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10; @%p1 bra L; E:"""
    line = only_line(cost(body, block=64, grid=2))
    assert line.divergences == 2  # one warp a CTA has a lane 3 and others
    assert line.idle == pytest.approx(2 * 30 * 31 / 32, rel=0.02)
    body = "mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10; @%p1 bra L;"
    line = only_line(cost(body, block=40))
    assert (line.divergences, line.idle) == (0, 0)


def test_a_sample_of_the_ctas_stands_for_all() -> None:
    body = """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
    mul.wide.u32 %d0, %r3, 4; add.u64 %d0, %q0, %d0; ld.global.u32 %r5, [%d0];"""
    data = words(1024 * 128)
    whole = cost(body, data, grid=1024, block=128)
    part = cost(body, data, grid=1024, block=128, most=1)
    assert whole.ctas_run == whole.ctas_total
    assert 0 < part.ctas_run < part.ctas_total == 1024
    assert part.instructions == whole.instructions
    assert access(part, "ld.global.u32") == access(whole, "ld.global.u32")
    assert only_line(part).reads == only_line(whole).reads


def test_a_seed_decides_which_ctas_are_sampled() -> None:
    body = """mov.u32 %r1, %ctaid.x; mul.wide.u32 %d0, %r1, 4; add.u64 %d0, %q0, %d0;
    mov.u32 %r2, 1; st.global.u32 [%d0], %r2;"""
    samples = []
    for seed in range(128):
        marks = words(1024)
        part = cost(body, marks, grid=1024, most=1, seed=seed)
        samples.append(tuple(np.flatnonzero(marks)))
        assert len(samples[-1]) == part.ctas_run
    assert len(set(samples)) == 64
    assert {each for sample in samples for each in sample} == set(range(1024))


def test_ctas_that_wait_for_each_other_are_not_sampled() -> None:
    # Each waits until the last one of the 256 CTAs before its own has left a mark.
    body = """mov.u32 %r1, %ctaid.x; mul.wide.u32 %d0, %r1, 4; add.u64 %d0, %q0, %d0;
    setp.ne.u32 %p0, %r0, 0; @%p0 bra E; setp.lt.u32 %p1, %r1, 256; @%p1 bra S; mov.u32 %r3, 0;
    and.b32 %r4, %r1, -256; mul.wide.u32 %d1, %r4, 4; add.u64 %d1, %q0, %d1;
    L: ld.acquire.gpu.global.u32 %r2, [%d1 + -4]; add.u32 %r3, %r3, 1;
    setp.gt.u32 %p3, %r3, 100; @%p3 trap; setp.eq.u32 %p2, %r2, 0; @%p2 bra L;
    S: st.release.gpu.global.u32 [%d0], 1; E:"""
    marks = words(2048)
    found = cost(body, marks, grid=2048, block=128, most=10_000)
    assert found.ctas_run == found.ctas_total
    assert marks.all()


def test_a_fault_is_raised() -> None:
    with pytest.raises(OutOfBounds):
        cost("ld.global.u32 %r1, [%q0 + 4096];", words(8))


def test_launches_of_a_kernel_are_added_up_and_others_are_not() -> None:
    one = cost("ld.global.u32 %r1, [%q0];", words(8))
    again = cost("ld.global.u32 %r1, [%q0];", words(8), grid=3)
    other = cost("ld.global.b32 %r1, [%q0];", words(8))
    both, alone = merged([one, other, again])
    assert (both.launches, both.ctas_total) == (2, 4)
    assert both.instructions == one.instructions + again.instructions
    assert access(both, "ld.global.u32").requests == 4
    assert only_line(both).reads[0].requested_bytes == 16
    assert alone == other


def test_the_work_of_cancelled_ctas_is_counted_once() -> None:
    title = "CTAs do all the work of those that they cancel"
    kernel = next(
        each for name, each in KERNELS.items() if name.startswith(f"launch_control: {title}")
    )
    found = cost(kernel.body, words(12), grid=12, before=kernel.of("before")[0])
    assert found.ctas_run == found.ctas_total
    assert found.lines[0].opcodes["st.global.u32"] == 12
