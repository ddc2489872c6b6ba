"""cp.async, mbarrier and bulk copies."""

from typing import Any

import numpy as np
import pytest
from ptx_harness import MINE, Array, aligned, out, run

from nvfp4.emulator import errors

SHARED = ".shared .align 1024 .b8 s[8192]; .shared .align 8 .b64 bar;"
SLOT16 = "mov.u32 %r10, s; shl.b32 %r11, %r0, 4; add.u32 %r10, %r10, %r11;"
SOURCE16 = "mul.wide.u32 %d3, %r0, 16; add.u64 %d3, %q1, %d3;"
ELECT0 = "setp.eq.u32 %p1, %r0, 0;"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p5, [%r20], 0; @!%p5 bra W;"


def words(n: int = 256) -> Array:
    return aligned(np.arange(n, dtype=np.uint32))


ASYNC = f"""{SLOT16} {SOURCE16}
cp.async.cg.shared.global.L2::128B [%r10], [%d3], 16; cp.async.commit_group; %WAIT%
bar.sync 0; ld.shared.u32 %r5, [%r10+4]; {MINE} st.global.u32 [%d0], %r5;"""


def test_cp_async_arrives_once_it_is_waited_for() -> None:
    a = out()
    run(ASYNC.replace("%WAIT%", "cp.async.wait_group 0;"), a, words(), block=64, before=SHARED)
    assert (a == np.arange(64) * 4 + 1).all()


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;"])
def test_a_forgotten_wait_finds_nothing(wait: str) -> None:
    with pytest.raises(errors.SharedRace, match=r"an asynchronous copy.*depends on the order"):
        run(ASYNC.replace("%WAIT%", wait), out(), words(), block=64, before=SHARED)


def test_groups_complete_in_order() -> None:
    """Two groups; waiting with one left under way delivers the first only."""
    body = f"""{SLOT16} {SOURCE16} st.shared.u32 [%r10+1028], 7; st.shared.u32 [%r10+4], 7;
    cp.async.ca.shared.global [%r10+4], [%d3], 4; cp.async.commit_group;
    cp.async.ca.shared.global [%r10+1028], [%d3+4], 4; cp.async.commit_group;
    cp.async.wait_group 1; ld.shared.u32 %r5, [%r10+4]; ld.shared.u32 %r6, [%r10+1028];
    mad.lo.u32 %r5, %r5, 1000, %r6; {MINE} st.global.u32 [%d0], %r5;"""
    a = out(32)
    run(body, a, words(), before=SHARED, check=False)
    assert (a == np.arange(32) * 4000 + 7).all()
    with pytest.raises(errors.SharedRace, match=r"an asynchronous copy.*depends on the order"):
        run(body, a, words(), before=SHARED)


def test_a_short_source_is_padded_with_zeros() -> None:
    body = f"""{SLOT16} {SOURCE16} setp.eq.u32 %p2, %r0, 1;
    cp.async.ca.shared.global [%r10], [%d3], 8, 4;
    cp.async.ca.shared.global [%r10+8], [%d3+8], 8, %p2;
    cp.async.wait_all; ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r10];
    mul.wide.u32 %d0, %r0, 16; add.u64 %d0, %q0, %d0;
    st.global.v4.u32 [%d0], {{%r1, %r2, %r3, %r4}};"""
    a = out(128)
    run(body, a, words(), before=SHARED)
    rows = a.reshape(32, 4)
    assert rows[0].tolist() == [0, 0, 2, 3]
    assert rows[1].tolist() == [4, 0, 0, 0]


def test_a_partial_source_may_have_any_length() -> None:
    body = f"""{SLOT16} {SOURCE16} and.b32 %r5, %r0, 15; st.shared.u32 [%r10], 9;
    cp.async.cg.shared.global [%r10], [%d3], 16, %r5; cp.async.wait_all;
    ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r10]; mul.wide.u32 %d0, %r0, 16;
    add.u64 %d0, %q0, %d0; st.global.v4.u32 [%d0], {{%r1, %r2, %r3, %r4}};"""
    a, source = out(128), words()
    source[:] = 0x01010101
    run(body, a, source, before=SHARED)
    assert a.view(np.uint8).reshape(32, 16).sum(axis=1).tolist() == [i % 16 for i in range(32)]


def test_cp_async_out_of_bounds_is_caught() -> None:
    with pytest.raises(errors.OutOfBounds, match="past the end of a1"):
        run(
            ASYNC.replace("%WAIT%", "cp.async.wait_all;"),
            out(),
            words(128),
            block=64,
            before=SHARED,
        )


def test_cp_async_signals_an_mbarrier() -> None:
    body = f"""mov.u32 %r20, bar; {ELECT0} @%p1 mbarrier.init.shared.b64 [%r20], 64; bar.sync 0;
    {SLOT16} {SOURCE16} cp.async.ca.shared.global [%r10], [%d3], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r20]; {WAIT}
    xor.b32 %r11, %r11, 512; mov.u32 %r10, s; add.u32 %r10, %r10, %r11; ld.shared.u32 %r5, [%r10];
    {MINE} st.global.u32 [%d0], %r5;"""
    a = out()
    run(body, a, words(), block=64, before=SHARED)
    assert (a == (np.arange(64) ^ 32) * 4).all()


# Two stages of 1 KiB: each thread copies 16 bytes of block i to its place in stage i % 2 while the
# CTA sums up what block i - 1 has brought for another warp's threads.
PIPELINE = f"""{SLOT16} {SOURCE16} xor.b32 %r12, %r11, 512; mov.u32 %r13, s;
add.u32 %r12, %r13, %r12;
mov.u32 %r5, 0; mov.u32 %r6, 0;
cp.async.cg.shared.global [%r10], [%d3], 16; cp.async.commit_group;
LOOP: add.u32 %r7, %r6, 1; and.b32 %r8, %r7, %STAGE%; shl.b32 %r8, %r8, 10; add.u32 %r9, %r10, %r8;
%LATE% setp.lt.u32 %p2, %r7, %BLOCKS%; mul.wide.u32 %d4, %r7, 1024; add.u64 %d4, %d3, %d4;
@%p2 cp.async.cg.shared.global [%r9], [%d4], 16; cp.async.commit_group;
cp.async.wait_group 1; bar.sync 0; and.b32 %r8, %r6, %STAGE%; shl.b32 %r8, %r8, 10;
add.u32 %r9, %r12, %r8; ld.shared.u32 %r14, [%r9]; add.u32 %r5, %r5, %r14; %AFTER%
mov.u32 %r6, %r7; setp.lt.u32 %p3, %r6, %BLOCKS%; @%p3 bra LOOP;
{MINE} st.global.u32 [%d0], %r5;"""


def pipeline(blocks: int, stage_mask: int = 1, after: str = "") -> str:
    body = PIPELINE.replace("%BLOCKS%", str(blocks)).replace("%STAGE%", str(stage_mask))
    return body.replace("%AFTER%", after).replace("%LATE%", "")


def test_a_pipeline_of_two_stages() -> None:
    a = out()
    report = run(pipeline(4, after="bar.sync 0;"), a, words(1024), block=64, before=SHARED)
    assert report.findings == []
    assert a.tolist() == [4 * 4 * (i ^ 32) + 256 * 6 for i in range(64)]


def test_a_stage_that_is_filled_again_too_early_is_a_race() -> None:
    """Without the barrier after the sum, a fast warp fills the stage that a slow one still reads.

    A loop that runs twice fills no stage twice: nothing is wrong with it.
    """
    assert run(pipeline(2), out(), words(1024), block=64, before=SHARED).findings == []
    for blocks in (3, 4):
        with pytest.raises(errors.SharedRace, match=r"write of 16 bytes.*depends on the order"):
            run(pipeline(blocks), out(), words(1024), block=64, before=SHARED)


def test_a_single_stage_is_a_race_as_soon_as_there_are_two_blocks() -> None:
    sync = "bar.sync 0;"
    body = pipeline(1, stage_mask=0, after=sync)
    assert run(body, out(), words(1024), block=64, before=SHARED).findings == []
    with pytest.raises(errors.SharedRace, match="depends on the order"):
        run(pipeline(2, 0, sync), out(), words(1024), block=64, before=SHARED)


# --- mbarrier ---------------------------------------------------------------------------------

HANDOVER = f"""mov.u32 %r20, bar; {ELECT0} @%p1 mbarrier.init.shared.b64 [%r20], %COUNT%;
bar.sync 0; setp.ge.u32 %p2, %r0, 32; @%p2 bra TAKE;
{SLOT16} st.shared.u32 [%r10], %r0; mbarrier.arrive.shared.b64 _, [%r20]; bra E;
TAKE: {WAIT} sub.u32 %r6, %r0, 32; shl.b32 %r6, %r6, 4; mov.u32 %r10, s; add.u32 %r10, %r10, %r6;
ld.shared.u32 %r5, [%r10]; {MINE} st.global.u32 [%d0], %r5; E:"""


def test_an_mbarrier_hands_data_over() -> None:
    a = out()
    run(HANDOVER.replace("%COUNT%", "32"), a, block=64, before=SHARED)
    assert a[32:].tolist() == list(range(32))


def test_an_mbarrier_that_expects_too_many_is_a_deadlock() -> None:
    with pytest.raises(errors.Deadlock, match="try_wait") as caught:
        run(HANDOVER.replace("%COUNT%", "33"), out(), block=64, before=SHARED)
    assert "threads 32-63" in str(caught.value)


def test_more_arrivals_than_a_phase_expects_are_an_error() -> None:
    body = f"""mov.u32 %r20, bar; {ELECT0} @!%p1 bra E; mbarrier.init.shared.b64 [%r20], 2;
    mbarrier.arrive.shared.b64 _, [%r20], 3; E:"""
    with pytest.raises(errors.BarrierMisuse, match="more arrivals"):
        run(body, out(), before=SHARED)


def test_skipping_the_wait_is_a_race() -> None:
    body = HANDOVER.replace("%COUNT%", "32").replace(WAIT, "")
    with pytest.raises((errors.SharedRace, errors.UninitialisedShared)):
        run(body, out(), block=64, before=SHARED)


def test_an_mbarrier_must_be_initialised() -> None:
    with pytest.raises(errors.BarrierMisuse, match="never initialised"):
        run("mov.u32 %r20, bar; mbarrier.arrive.shared.b64 %d1, [%r20];", out(), before=SHARED)


@pytest.mark.parametrize(("end", "codes"), [("", ["barrier_misuse"]), ("inval", [])])
def test_an_mbarrier_is_invalidated_before_it_is_initialised_again(
    end: str, codes: list[str]
) -> None:
    init = "mbarrier.init.shared.b64 [%r20], 1;"
    ended = f"mbarrier.{end}.shared.b64 [%r20];" if end else ""
    report = run(
        f"mov.u32 %r20, bar; {ELECT0} @!%p1 bra E; {init} {ended} {init} E:", out(), before=SHARED
    )
    assert [found.code for found in report.findings] == codes


def test_states_and_parities_tell_the_phases_apart() -> None:
    body = f"""mov.u32 %r20, bar; {ELECT0} @%p1 mbarrier.init.shared.b64 [%r20], 32; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r20], 1; selp.u32 %r5, 1, 0, %p2;
    bar.sync 0; mbarrier.arrive.release.cta.shared::cta.b64 %d1, [%r20];
    L: mbarrier.test_wait.shared.b64 %p3, [%r20], %d1; @!%p3 bra L;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r20], 0; selp.u32 %r6, 2, 0, %p2;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r20], 1; selp.u32 %r7, 4, 0, %p2;
    add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7; {MINE} st.global.u32 [%d0], %r5;"""
    a = out(32)
    run(body, a, before=SHARED)
    assert (a == 3).all()


def test_pending_count_and_drop() -> None:
    body = f"""mov.u32 %r20, bar; {ELECT0} @!%p1 bra E; mbarrier.init.shared.b64 [%r20], 5;
    mbarrier.arrive.shared.b64 %d1, [%r20], 2; mbarrier.pending_count.b64 %r5, %d1;
    mbarrier.arrive_drop.shared.b64 %d1, [%r20]; mbarrier.pending_count.b64 %r6, %d1;
    mbarrier.arrive.shared.b64 %d1, [%r20], 2; mbarrier.arrive.shared.b64 %d2, [%r20];
    mbarrier.pending_count.b64 %r7, %d2; st.global.u32 [%q0], %r5; st.global.u32 [%q0+4], %r6;
    st.global.u32 [%q0+8], %r7; E:"""
    a = out(3)
    run(body, a, before=SHARED)
    assert a.tolist() == [5, 3, 4]


# --- bulk -------------------------------------------------------------------------------------

BULK = f"""mov.u32 %r20, bar; mov.u32 %r10, s; {ELECT0} @!%p1 bra GO;
mbarrier.init.shared.b64 [%r20], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%q1], 256, [%r20];
GO: bar.sync 0; %WAIT% shl.b32 %r11, %r0, 2; add.u32 %r10, %r10, %r11; ld.shared.u32 %r5, [%r10];
{MINE} st.global.u32 [%d0], %r5;"""


def test_a_bulk_copy_completes_its_mbarrier() -> None:
    a = out()
    report = run(BULK.replace("%WAIT%", WAIT), a, words(), block=64, before=SHARED)
    assert (a == np.arange(64)).all()
    assert report.global_read_bytes == 256


def test_reading_before_the_mbarrier_is_a_race_with_the_copy() -> None:
    with pytest.raises(errors.SharedRace, match=r"asynchronous copy.*depends on the order"):
        run(BULK.replace("%WAIT%", ""), out(), words(), block=64, before=SHARED)


def test_expecting_more_bytes_than_come_is_a_deadlock() -> None:
    body = BULK.replace("%WAIT%", WAIT).replace("_, [%r20], 256", "_, [%r20], 272")
    with pytest.raises(errors.Deadlock):
        run(body, out(), words(), block=64, before=SHARED)


TWO_COPIES = f"""mov.u32 %r20, bar; mov.u32 %r10, s; {ELECT0} @!%p1 bra GO;
mbarrier.init.shared.b64 [%r20], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r20], %BYTES%;
add.u32 %r12, %r10, 128; add.u64 %d4, %q1, 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%q1], 128, [%r20];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%d4], 128, [%r20];
GO: bar.sync 0; {WAIT} shl.b32 %r11, %r0, 2; add.u32 %r10, %r10, %r11; ld.shared.u32 %r5, [%r10];
{MINE} st.global.u32 [%d0], %r5;"""


def test_a_phase_that_expects_one_copy_of_two_does_not_wait_for_the_other() -> None:
    a = out()
    report = run(TWO_COPIES.replace("%BYTES%", "256"), a, words(), block=64, before=SHARED)
    assert (a == np.arange(64)).all()
    assert report.findings == []
    with pytest.raises(errors.SharedRace, match=r"asynchronous copy.*depends on the order"):
        run(TWO_COPIES.replace("%BYTES%", "128"), out(), words(), block=64, before=SHARED)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("[%q1], 256", "[%q1], 250"), errors.Misaligned),
        (("[%q1], 256", "[%q1+4], 256"), errors.Misaligned),
        (("[%q1], 256", "[%q1+800], 256"), errors.OutOfBounds),
        (("[%r10], [%q1]", "[%r10+8000], [%q1]"), errors.OutOfBounds),
    ],
)
def test_a_bulk_copy_against_the_rules(change: tuple[str, str], kind: Any) -> None:
    with pytest.raises(kind):
        run(BULK.replace("%WAIT%", WAIT).replace(*change), out(), words(), block=64, before=SHARED)


# Bulk copies fill one stage of 256 bytes again and again; each wait is for the copy's own phase.
REFILL = f"""mov.u32 %r20, bar; mov.u32 %r10, s; {ELECT0} @%p1 mbarrier.init.shared.b64 [%r20], 1;
bar.sync 0; mov.u32 %r5, 0; mov.u32 %r6, 0; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
LOOP: @!%p1 bra TAKE; mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;
mul.wide.u32 %d1, %r6, 256; add.u64 %d1, %q1, %d1;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d1], 256, [%r20];
TAKE: and.b32 %r7, %r6, 1;
W: mbarrier.try_wait.parity.shared.b64 %p5, [%r20], %r7; @!%p5 bra W;
ld.shared.u32 %r8, [%r12]; mad.lo.u32 %r5, %r5, 3, %r8; %AFTER%
add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, %BLOCKS%; @%p3 bra LOOP;
{MINE} st.global.u32 [%d0], %r5;"""


def refill(blocks: int, after: str) -> str:
    return REFILL.replace("%BLOCKS%", str(blocks)).replace("%AFTER%", after)


def test_a_bulk_copy_into_a_stage_that_others_still_read_is_a_race() -> None:
    a = out()
    assert run(refill(1, ""), a, words(), block=64, before=SHARED).findings == []
    report = run(refill(3, "bar.sync 0;"), a, words(), block=64, before=SHARED)
    assert report.findings == []
    assert a.tolist() == [9 * i + 3 * (i + 64) + i + 128 for i in range(64)]
    with pytest.raises(errors.SharedRace, match=r"asynchronous write.*depends on the order"):
        run(refill(2, ""), a, words(), block=64, before=SHARED)


STORE = f"""mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
st.shared.u32 [%r12], %r0; fence.proxy.async.shared::cta; %SYNC% {ELECT0} @!%p1 bra E;
cp.async.bulk.global.shared::cta.bulk_group [%q1], [%r10], 256; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0; E:"""


def test_a_bulk_store_writes_global_memory() -> None:
    target = words()
    run(STORE.replace("%SYNC%", "bar.sync 0;"), out(), target, block=64, before=SHARED)
    assert (target[:64] == np.arange(64)).all()
    assert target[64] == 64


def test_a_bulk_store_before_the_barrier_races() -> None:
    with pytest.raises((errors.SharedRace, errors.UninitialisedShared)):
        run(STORE.replace("%SYNC%", ""), out(), words(), block=64, before=SHARED)
