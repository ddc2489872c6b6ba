"""Threads and the copy engine on the same shared memory: a barrier alone does not order the two."""

import numpy as np
import pytest
from ptx_harness import MINE, aligned, out, run

from nvfp4.emulator import LaunchReport, errors

SHARED = ".shared .align 1024 .b8 s[8192]; .shared .align 8 .b64 bar;"
FENCE = "fence.proxy.async.shared::cta;"


COMMIT = "cp.async.bulk.commit_group;"


def store(
    before: str, after: str, wait: str = "cp.async.bulk.wait_group.read 0;", commit: str = COMMIT
) -> LaunchReport:
    """Every thread sets a word; the first copies all to global memory. before, after: the barrier
    between the two."""
    target = aligned(out())
    body = f"""mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
    st.shared.u32 [%r12], %r0; {before} bar.sync 0; setp.eq.u32 %p1, %r0, 0; @!%p1 bra E; {after}
    cp.async.bulk.global.shared::cta.bulk_group [%q0], [%r10], 256; {commit}
    {wait} E:"""
    report = run(body, target, block=64, before=SHARED)
    assert (target == np.arange(64)).all()
    return report


def refill(taken: str, after: str, first: str = "") -> LaunchReport:
    """Bulk copies fill one stage three times; all threads take words of it in between. taken: how,
    from [%r12], and what becomes of the value. after: what comes before it is filled again. first:
    what threads do with the stage before."""
    sums, words = out(), aligned(np.arange(192, dtype=np.uint32))
    body = f"""mov.u32 %r20, bar; mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r20], 1; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11; {first}
    bar.sync 0; mov.u32 %r5, 0; mov.u32 %r6, 0;
    LOOP: @!%p1 bra TAKE; mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;
    mul.wide.u32 %d1, %r6, 256; add.u64 %d1, %q1, %d1;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d1], 256, [%r20];
    TAKE: and.b32 %r7, %r6, 1;
    W: mbarrier.try_wait.parity.shared.b64 %p5, [%r20], %r7; @!%p5 bra W;
    {taken.replace("%AFTER%", after)}
    add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 3; @%p3 bra LOOP; {MINE} st.global.u32 [%d0], %r5;"""
    report = run(body, sums, words, block=64, before=SHARED)
    assert sums.tolist() == [3 * i + 192 for i in range(64)]
    return report


USED_FIRST = "ld.shared.u32 %r8, [%r12]; add.u32 %r5, %r5, %r8; %AFTER%"
USED_LATER = "ld.shared.u32 %r8, [%r12]; %AFTER% add.u32 %r5, %r5, %r8;"
ONLY_MOVED = "ld.shared.u32 %r8, [%r12]; mov.b32 %r9, %r8; %AFTER% add.u32 %r5, %r5, %r9;"
BARRIER = "bar.sync 0;"


@pytest.mark.parametrize(
    ("before", "after"), [(FENCE, ""), ("", FENCE), ("", "fence.proxy.async;")]
)
def test_a_proxy_fence_on_either_side_of_the_barrier_is_enough(before: str, after: str) -> None:
    assert store(before, after).findings == []


@pytest.mark.parametrize("before", ["", "membar.cta;", "fence.proxy.async.global;"])
def test_a_bulk_store_of_what_threads_have_written_needs_a_proxy_fence(before: str) -> None:
    (found,) = store(before, "").findings
    assert found.code == errors.MissingProxyFence.code
    assert "which thread (0, 0, 0) has written" in found.message
    assert [each["message"] for each in found.related] == ["the same bytes are written here"]


def test_a_fence_before_the_write_covers_nothing() -> None:
    written = "st.shared.u32 [%r12], %r0;"
    for fence in (f"{FENCE} bar.sync 0;", f"bar.sync 0; {FENCE}"):
        (found,) = store(f"{fence} {written}", "").findings
        assert found.code == "proxy_fence"
        assert store(f"{fence} {written} {FENCE}", "").findings == []


@pytest.mark.parametrize("wait", ["", "cp.async.bulk.wait_group.read 1;"])
def test_a_bulk_store_has_to_be_waited_for_before_the_thread_ends(wait: str) -> None:
    (found,) = store(FENCE, "", wait).findings
    assert found.code == "unwaited_store"
    assert store(FENCE, "", "cp.async.bulk.wait_group 0;").findings == []


@pytest.mark.parametrize(("left", "codes"), [(0, []), (1, []), (2, ["shared_race"])])
def test_a_wait_is_for_all_groups_but_the_latest(left: int, codes: list[str]) -> None:
    """Two stages are stored from in turn: before a third value comes into the first stage, one
    group may be under way."""
    targets = aligned(out(192))
    body = f"""mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; mov.u32 %r6, 0;
    LOOP: and.b32 %r7, %r6, 1; shl.b32 %r7, %r7, 8; add.u32 %r11, %r10, %r7;
    shl.b32 %r12, %r0, 2; add.u32 %r12, %r12, %r11; add.u32 %r13, %r6, %r0;
    st.shared.u32 [%r12], %r13; {FENCE} bar.sync 0; @!%p1 bra NEXT;
    mul.wide.u32 %d1, %r6, 256; add.u64 %d1, %q0, %d1;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r11], 256; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read LEFT; NEXT: bar.sync 0;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 3; @%p3 bra LOOP;
    @%p1 cp.async.bulk.wait_group.read 0;"""
    report = run(body.replace("LEFT", str(left)), targets, block=64, before=SHARED)
    assert [found.code for found in report.findings] == codes
    assert targets.tolist() == [i + stage for stage in range(3) for i in range(64)]


def test_a_copy_that_is_in_no_group_is_waited_for_by_nobody() -> None:
    (found,) = store(FENCE, "", "cp.async.bulk.wait_group 0;", commit="").findings
    assert found.code == "unwaited_store"


def test_a_value_that_was_used_has_arrived_before_the_next_copy() -> None:
    assert refill(USED_FIRST, BARRIER).findings == []


@pytest.mark.parametrize("taken", [USED_LATER, ONLY_MOVED])
def test_a_copy_may_overtake_a_load_whose_value_is_used_after_the_barrier(taken: str) -> None:
    (found,) = refill(taken, BARRIER).findings
    assert found.code == "proxy_fence"
    assert "may overtake a read by thread" in found.message
    assert refill(taken, f"{FENCE} {BARRIER}").findings == []
    assert refill(taken, f"{BARRIER} {FENCE}").findings == []


def test_a_copy_over_what_threads_have_cleared_needs_a_proxy_fence() -> None:
    cleared = "st.shared.u32 [%r12], 0;"
    (found,) = refill(USED_FIRST, BARRIER, cleared).findings
    assert found.code == "proxy_fence"
    assert refill(USED_FIRST, BARRIER, cleared + FENCE).findings == []


def test_copies_among_themselves_need_no_proxy_fence() -> None:
    """What one copy has brought, another stores: both are in the same proxy."""
    out, words = np.zeros(128, np.uint32), np.zeros(128, np.uint32)
    into, source = (each[-each.ctypes.data % 128 // 4 :][:64] for each in (out, words))
    source[:] = np.arange(64)
    body = """mov.u32 %r20, bar; mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; @!%p1 bra E;
    mbarrier.init.shared.b64 [%r20], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%q1], 256, [%r20];
    W: mbarrier.try_wait.parity.shared.b64 %p5, [%r20], 0; @!%p5 bra W;
    cp.async.bulk.global.shared::cta.bulk_group [%q0], [%r10], 256; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0; E:"""
    assert run(body, into, source, before=SHARED).findings == []
    assert (into == np.arange(64)).all()


def copied(count: int, nbytes: int) -> tuple[list[int], LaunchReport]:
    """A thread copies so many bytes of 64 in a, in two phases of an mbarrier that expects `count`
    arrivals and gets none."""
    sums, words = out(1), aligned(np.arange(16, dtype=np.uint32))
    body = f"""mov.u32 %r20, bar; mov.u32 %r10, s; mov.u32 %r5, 0; mov.u32 %r6, 0;
    mbarrier.init.shared.b64 [%r20], {count};
    LOOP: mbarrier.expect_tx.shared.b64 [%r20], {nbytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r10], [%q1], {nbytes}, [%r20];
    W: mbarrier.try_wait.parity.shared.b64 %p5, [%r20], %r6; @!%p5 bra W;
    ld.shared.u32 %r8, [%r10 + 4]; add.u32 %r5, %r5, %r8; {FENCE}
    add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 2; @%p3 bra LOOP; st.global.u32 [%q0], %r5;"""
    report = run(body, sums, words, block=1, before=SHARED)
    return sums.tolist(), report


def test_bytes_alone_end_the_phases_of_an_mbarrier_that_expects_no_arrivals() -> None:
    """A B200 takes the count, which the manual forbids."""
    sums, report = copied(count=0, nbytes=64)
    assert sums == [2]
    assert [each.code for each in report.findings] == ["no_arrivals"]
    assert report.findings[0].message == "an mbarrier cannot expect 0 arrivals"
    with pytest.raises(errors.BarrierMisuse, match="cannot expect 1048576 arrivals"):
        copied(count=1 << 20, nbytes=64)


def test_a_copy_past_the_end_names_each_place_once() -> None:
    with pytest.raises(errors.OutOfBounds) as raised:
        copied(count=0, nbytes=80)
    assert raised.value.message == (
        "copy of 80 bytes at byte 0 of a1 (64 bytes) reaches 16 bytes past its end, outside every "
        "tensor"
    )
