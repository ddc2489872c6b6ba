"""What one CTA writes and another reads: an atomic tells of it, and a fence has to come before."""

import numpy as np
import pytest
from ptx_harness import run

from nvfp4.emulator import LaunchReport, errors

CTAS, THREADS = 4, 64


def last_adds_up(
    after_write: str = "",
    ticket: str = "atom.global.add.u32 %r6, [%q1], 1;",
    before_ticket: str = "",
    write: str = "st.global.u32",
    read: str = "ld.global.u32",
) -> LaunchReport:
    """Every thread stores a number; the last CTA to draw a ticket reads all that its threads did.

    after_write: by every thread. before_ticket: by the one that draws it, after a barrier.
    """
    numbers, tickets = np.zeros(CTAS * THREADS, np.uint32), np.zeros(1, np.uint32)
    sums = np.zeros(THREADS, np.uint32)
    body = f"""mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, {THREADS}, %r0; mov.u32 %r20, last;
    mul.wide.u32 %d0, %r2, 4; add.u64 %d0, %q0, %d0; {write} [%d0], %r2; {after_write}
    bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra WAIT; {before_ticket} {ticket}
    st.shared.u32 [%r20], %r6; WAIT: bar.sync 0; ld.shared.u32 %r7, [%r20];
    setp.ne.u32 %p2, %r7, {CTAS - 1}; @%p2 bra E; mov.u32 %r8, 0; mov.u32 %r9, 0;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %q0, %d1;
    L: {read} %r10, [%d1]; add.u32 %r8, %r8, %r10; add.u64 %d1, %d1, {4 * THREADS};
    add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, {CTAS}; @%p3 bra L;
    mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %q2, %d2; st.global.u32 [%d2], %r8; E:"""
    shared = ".shared .align 4 .b8 last[4];"
    report = run(body, numbers, tickets, sums, grid=CTAS, block=THREADS, before=shared)
    expected = np.arange(CTAS * THREADS).reshape(CTAS, THREADS).sum(axis=0)
    assert (sums == expected).all()
    return report


def test_a_ticket_without_a_fence_may_be_seen_before_what_it_tells_of() -> None:
    (found,) = last_adds_up().findings
    assert found.code == errors.MissingFence.code
    assert "of CTA (0, 0, 0) has written" in found.message
    assert [each["message"] for each in found.related] == ["the same bytes are written here"]


@pytest.mark.parametrize("fence", ["membar.cta;", "fence.acq_rel.cta;", "fence.proxy.async;"])
def test_a_fence_for_the_own_cta_is_not_enough(fence: str) -> None:
    assert [each.code for each in last_adds_up(fence).findings] == ["missing_fence"]


@pytest.mark.parametrize(
    "fence", ["membar.gl;", "membar.sys;", "fence.acq_rel.gpu;", "fence.sc.gpu;"]
)
def test_a_fence_by_every_thread_or_by_the_one_with_the_ticket(fence: str) -> None:
    assert last_adds_up(after_write=fence).findings == []
    assert last_adds_up(before_ticket=fence).findings == []


@pytest.mark.parametrize("semantics", ["release", "acq_rel"])
def test_a_ticket_that_releases_needs_no_fence(semantics: str) -> None:
    ticket = f"atom.{semantics}.gpu.global.add.u32 %r6, [%q1], 1;"
    assert last_adds_up(ticket=ticket).findings == []


@pytest.mark.parametrize("semantics", ["relaxed.gpu", "release.cta", "acquire.gpu"])
def test_a_ticket_that_does_not_release_for_other_ctas(semantics: str) -> None:
    ticket = f"atom.{semantics}.global.add.u32 %r6, [%q1], 1;"
    assert [each.code for each in last_adds_up(ticket=ticket).findings] == ["missing_fence"]


def test_a_fence_before_the_write_publishes_nothing_of_it() -> None:
    late = "membar.gl; st.global.u32 [%d0], %r2;"
    assert [each.code for each in last_adds_up(late).findings] == ["missing_fence"]
    assert last_adds_up(f"{late} membar.gl;").findings == []


def test_what_is_added_atomically_is_in_place_when_the_ticket_is_drawn() -> None:
    assert last_adds_up(write="red.global.add.u32").findings == []


@pytest.mark.parametrize("fence", ["", "membar.gl;"])
@pytest.mark.parametrize("store", ["st.volatile.global.u32", "st.relaxed.gpu.global.u32"])
def test_a_flag_needs_a_fence_before_it(fence: str, store: str) -> None:
    """The second CTA waits until the first has raised a flag."""
    number, flag, out = (np.zeros(32, np.uint32) for _ in range(3))
    body = f"""mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; mul.wide.u32 %d0, %r0, 4;
    add.u64 %d1, %q0, %d0; add.u64 %d2, %q1, %d0; add.u64 %d3, %q2, %d0; @%p1 bra READ;
    st.global.u32 [%d1], %r0; {fence} {store} [%d2], 1; bra E;
    READ: ld.volatile.global.u32 %r2, [%d2]; setp.eq.u32 %p2, %r2, 0; @%p2 bra READ;
    ld.global.u32 %r3, [%d1]; st.global.u32 [%d3], %r3; E:"""
    report = run(body, number, flag, out, grid=2)
    assert (out == np.arange(32)).all()
    assert [each.code for each in report.findings] == ([] if fence else ["missing_fence"])


def test_a_flag_that_releases_needs_no_fence() -> None:
    number, flag, out = (np.zeros(32, np.uint32) for _ in range(3))
    body = """mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; mul.wide.u32 %d0, %r0, 4;
    add.u64 %d1, %q0, %d0; add.u64 %d2, %q1, %d0; add.u64 %d3, %q2, %d0; @%p1 bra READ;
    st.global.u32 [%d1], %r0; st.release.gpu.global.u32 [%d2], 1; bra E;
    READ: ld.acquire.gpu.global.u32 %r2, [%d2]; setp.eq.u32 %p2, %r2, 0; @%p2 bra READ;
    ld.global.u32 %r3, [%d1]; st.global.u32 [%d3], %r3; E:"""
    assert run(body, number, flag, out, grid=2).findings == []


def test_the_read_only_cache_may_hold_what_was_there_before() -> None:
    (found,) = last_adds_up(after_write="membar.gl;", read="ld.global.nc.u32").findings
    assert found.code == errors.ReadOnlyLoad.code
    assert [each["message"] for each in found.related] == ["the same bytes are written here"]


def test_what_no_launch_writes_may_be_read_through_the_read_only_cache() -> None:
    source, target = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    body = """mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %q0, %d0; add.u64 %d2, %q1, %d0;
    ld.global.nc.u32 %r1, [%d1]; st.global.u32 [%d2], %r1;"""
    assert run(body, source, target).findings == []
    assert (source == target).all()
