import numpy as np
import pytest
from ptx_harness import MINE, MINE_IN_GRID, run

from nvfp4.emulator import errors


def shuffled(mode: str, b: str, c: str) -> tuple[np.ndarray, np.ndarray]:
    """(value, predicate) that each lane gets from shfl of its own number."""
    value, valid = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    run(
        f"""{MINE} shfl.sync.{mode}.b32 %r5|%p1, %r0, {b}, {c}, -1; st.global.u32 [%d0], %r5;
        selp.u32 %r6, 1, 0, %p1; sub.u64 %d1, %d0, %q0; add.u64 %d1, %d1, %q1;
        st.global.u32 [%d1], %r6;""",
        value,
        valid,
    )
    return value, valid.astype(bool)


def ranges(*parts: tuple[int, int]) -> list[int]:
    """Consecutive lanes, from each first one up to the one before the last."""
    return [lane for first, last in parts for lane in range(first, last)]


# (mode, b, c) -> the lane that each lane reads, and the lanes whose source is out of range, which
# read their own. c has the clamp in bits 0-4 and the segment mask in bits 8-12.
SHUFFLES = [
    ("up", 1, 0, ranges((0, 1), (0, 31)), [0]),
    ("up", 31, 0, ranges((0, 31), (0, 1)), ranges((0, 31))),
    ("up", 4, 0x1800, ranges(*[(s, s + 4) for s in (0, 0, 8, 8, 16, 16, 24, 24)]),
     ranges((0, 4), (8, 12), (16, 20), (24, 28))),
    ("down", 1, 0x1F, ranges((1, 32), (31, 32)), [31]),
    ("down", 16, 0x1F, ranges((16, 32), (16, 32)), ranges((16, 32))),
    ("down", 4, 0x1807, ranges(*[(s, s + 4) for s in (4, 4, 12, 12, 20, 20, 28, 28)]),
     ranges((4, 8), (12, 16), (20, 24), (28, 32))),
    ("down", 2, 0x0F, ranges((2, 16), (14, 32)), ranges((14, 32))),
    ("bfly", 1, 0x1F, ranges(*[(s, s + 1) for pair in range(0, 32, 2) for s in (pair + 1, pair)]),
     []),
    ("bfly", 16, 0x1F, ranges((16, 32), (0, 16)), []),
    ("bfly", 16, 0x0F, ranges((0, 16), (0, 16)), ranges((0, 16))),
    ("bfly", 31, 0x1F, list(range(31, -1, -1)), []),
    ("idx", 0, 0x1F, [0] * 32, []),
    ("idx", 5, 0x1F, [5] * 32, []),
    ("idx", 9, 0x1807, [1] * 8 + [9] * 8 + [17] * 8 + [25] * 8, []),
    ("idx", 20, 0x0F, list(range(32)), list(range(32))),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "b", "c", "source", "outside"), SHUFFLES)
def test_shfl_reads_the_lane_the_manual_says(
    mode: str, b: int, c: int, source: list[int], outside: list[int]
) -> None:
    """Worked out by hand from the PTX ISA, shfl.sync."""
    got, valid = shuffled(mode, str(b), str(c))
    assert got.tolist() == source
    assert np.flatnonzero(~valid).tolist() == outside


def test_a_shuffle_by_a_different_amount_in_each_lane() -> None:
    got, _ = shuffled("idx", "%r0", "0x1f")
    assert got.tolist() == list(range(32))


@pytest.mark.parametrize(
    ("vote", "expected"),
    [
        ("vote.sync.ballot.b32 %r5, %p1, -1;", 0xFFFFFC00),
        ("vote.sync.any.pred %p2, %p1, -1; selp.u32 %r5, 1, 0, %p2;", 1),
        ("vote.sync.all.pred %p2, %p1, -1; selp.u32 %r5, 1, 0, %p2;", 0),
        ("vote.sync.uni.pred %p2, %p1, -1; selp.u32 %r5, 1, 0, %p2;", 0),
        ("vote.sync.all.pred %p2, !%p1, 0x3ff; selp.u32 %r5, 1, 0, %p2;", 1),
    ],
)
def test_votes(vote: str, expected: int) -> None:
    body = f"""setp.ge.u32 %p1, %r0, 10; mov.u32 %r5, 7;
    setp.lt.u32 %p3, %r0, 10; {"@%p3" if "0x3ff" in vote else ""} bra V; bra E;
    V: {vote} {MINE} st.global.u32 [%d0], %r5; E:"""
    if "0x3ff" not in vote:
        body = body.replace("bra V; bra E;", "")
    a = np.full(32, 9, np.uint32)
    run(body, a)
    assert (a[:10] == expected).all()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("add.u32", sum(range(32))),
        ("max.s32", 31),
        ("min.u32", 0),
        ("and.b32", 0),
        ("or.b32", 31),
        ("xor.b32", 0),
    ],
)
def test_redux_folds_the_warp(op: str, expected: int) -> None:
    a = np.zeros(32, np.uint32)
    run(f"{MINE} redux.sync.{op} %r5, %r0, -1; st.global.u32 [%d0], %r5;", a)
    assert (a == expected).all()


def test_redux_of_two_member_masks_in_one_warp() -> None:
    a = np.zeros(32, np.uint32)
    body = f"""{MINE} setp.lt.u32 %p1, %r0, 8; selp.u32 %r7, 0xff, 0xffffff00, %p1;
    redux.sync.add.u32 %r5, %r0, %r7; st.global.u32 [%d0], %r5;"""
    run(body, a)
    assert (a[:8] == sum(range(8))).all()
    assert (a[8:] == sum(range(8, 32))).all()


def test_elect_takes_the_lowest_member() -> None:
    a = np.zeros(32, np.uint32)
    body = f"""{MINE} setp.lt.u32 %p3, %r0, 4; @%p3 bra E;
    elect.sync %r5|%p1, 0xfffffff0; selp.u32 %r6, 100, 0, %p1; add.u32 %r6, %r6, %r5;
    st.global.u32 [%d0], %r6; E:"""
    run(body, a)
    assert a[:4].tolist() == [0] * 4
    assert a[4] == 104
    assert (a[5:] == 4).all()


def test_activemask_shows_who_is_here() -> None:
    a = np.zeros(32, np.uint32)
    body = f"""{MINE} setp.ge.u32 %p1, %r0, 5; @%p1 bra E; activemask.b32 %r5;
    st.global.u32 [%d0], %r5; E:"""
    run(body, a)
    assert (a[:5] == 31).all()
    assert (a[5:] == 0).all()


def test_a_shuffle_waits_for_threads_on_another_path() -> None:
    """Lanes reach the shuffle by two paths of different length, and meet there."""
    body = f"""{MINE} mov.u32 %r5, %r0; setp.lt.u32 %p1, %r0, 16; @%p1 bra LONG; bra MEET;
    LONG: mov.u32 %r6, 0; L: add.u32 %r6, %r6, 1; add.u32 %r5, %r5, 100;
    setp.lt.u32 %p2, %r6, 3; @%p2 bra L;
    MEET: shfl.sync.bfly.b32 %r7, %r5, 16, 31, -1; st.global.u32 [%d0], %r7;"""
    a = np.zeros(32, np.uint32)
    run(body, a)
    assert a.tolist() == [i + 16 for i in range(16)] + [i + 300 for i in range(16)]


def test_a_shuffle_waits_for_threads_that_jump_back_to_it() -> None:
    body = f"""{MINE} mov.u32 %r5, %r0; setp.lt.u32 %p1, %r0, 16; @%p1 bra LATER;
    MEET: shfl.sync.bfly.b32 %r7, %r5, 16, 31, -1; st.global.u32 [%d0], %r7; ret;
    LATER: setp.lt.u32 %p2, %r0, 8; @%p2 bra LATEST; add.u32 %r5, %r5, 100; bra MEET;
    LATEST: add.u32 %r5, %r5, 200; bra MEET;"""
    a = np.zeros(32, np.uint32)
    run(body, a)
    low = [i + 16 for i in range(16)]
    assert a.tolist() == low + [i + 200 for i in range(8)] + [i + 100 for i in range(8, 16)]


def test_half_a_warp_that_never_comes_is_a_deadlock() -> None:
    body = """setp.lt.u32 %p1, %r0, 16; @%p1 bra A; bar.sync 1, 32; bra E;
    A: shfl.sync.bfly.b32 %r7, %r0, 1, 31, -1; E:"""
    with pytest.raises(errors.Deadlock, match=r"shfl\.sync") as caught:
        run(body, np.zeros(1, np.uint32))
    assert "barrier 1" in str(caught.value)
    assert "threads 0-15" in str(caught.value)
    assert "threads 16-31" in str(caught.value)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("shfl.sync.bfly.b32 %r5, %r0, 16, 31, 0xffff;", [i ^ 16 for i in range(32)]),
        ("vote.sync.ballot.b32 %r5, %p1, 0xffff;", [0xFF000000] * 32),
        ("redux.sync.add.u32 %r5, %r0, 0xffff;", [496] * 32),
        ("elect.sync %r5|%p2, 0xfff0;", [0] * 32),
        ("bar.warp.sync 0xffff; mov.u32 %r5, 3;", [3] * 32),
    ],
)
def test_a_thread_outside_its_own_member_mask_takes_part_and_is_a_finding(
    instruction: str, expected: list[int]
) -> None:
    """All lanes of the warp execute it together, which every GPU gets right."""
    a = np.zeros(32, np.uint32)
    report = run(f"setp.ge.u32 %p1, %r0, 24; {instruction} {MINE} st.global.u32 [%d0], %r5;", a)
    assert a.tolist() == expected
    (finding,) = report.findings
    assert finding.code == "warp_sync"
    assert "not in its own member mask" in finding.message
    assert finding.count == (20 if "elect" in instruction else 16)
    assert finding.thread == (0 if "elect" in instruction else 16, 0, 0)


def test_threads_in_a_mask_that_never_come_are_a_deadlock() -> None:
    body = """setp.lt.u32 %p1, %r0, 16; @%p1 bra A; shfl.sync.bfly.b32 %r7, %r0, 1, 31, 0xffff;
    bra E; A: bar.sync 1, 32; E:"""
    with pytest.raises(errors.Deadlock, match=r"shfl\.sync"):
        run(body, np.zeros(1, np.uint32))


def test_exited_threads_are_not_waited_for() -> None:
    a = np.zeros(32, np.uint32)
    body = f"""setp.ge.u32 %p1, %r0, 16; @%p1 exit; {MINE}
    shfl.sync.bfly.b32 %r7, %r0, 1, 31, -1; st.global.u32 [%d0], %r7;"""
    run(body, a)
    assert a[:16].tolist() == [i ^ 1 for i in range(16)]


def test_a_warp_reduction_over_many_ctas_and_a_ragged_block() -> None:
    """48 threads a CTA: the second warp has 16 of them, of which the last 8 read lanes that are
    not there."""
    a = np.zeros(48 * 5, np.uint32)
    body = f"""{MINE_IN_GRID} mov.u32 %r5, %r3; setp.lt.u32 %p1, %r0, 40;
    shfl.sync.down.b32 %r6, %r5, 8, 31, -1; @%p1 add.u32 %r5, %r5, %r6; st.global.u32 [%d0], %r5;"""
    run(body, a, grid=5, block=48)
    thread = np.arange(240)
    lane = thread % 48 % 32
    limit = np.where(thread % 48 < 32, 32, 16)
    valid = lane + 8 < limit
    assert (a[valid] == (2 * thread + 8)[valid]).all()


# Lanes from 16 on exit or go another way; the others read the lane that %READ% says, of 0 to 31.
HALF_A_WARP = f"""{MINE} setp.ge.u32 %p1, %r0, 16; %LEAVE% %READ% %USE% st.global.u32 [%d0], %r7;
E:"""


@pytest.mark.parametrize("leave", ["@%p1 exit;", "@%p1 bra E;", ""])
@pytest.mark.parametrize(
    ("read", "lane"),
    [
        ("shfl.sync.bfly.b32 %r7, %r0, 16, 31, %MASK%;", 16),
        ("shfl.sync.down.b32 %r7, %r0, 1, 31, %MASK%;", 16),
        ("shfl.sync.idx.b32 %r7, %r0, 20, 31, %MASK%;", 20),
    ],
)
def test_what_a_shuffle_reads_of_a_lane_that_is_not_there_is_undefined(
    leave: str, read: str, lane: int
) -> None:
    body = HALF_A_WARP.replace("%LEAVE%", leave).replace("%USE%", "")
    if not leave:
        # Under a guard, a lane comes to the shuffle and does not execute it.
        body = body.replace("%READ%", f"mov.u32 %r7, 9; @!%p1 {read}")
    body = body.replace("%READ%", read)
    expected = f"from lane {lane} of the warp, which does not execute shfl.sync"
    with pytest.raises(errors.UninitialisedRegister, match=expected):
        run(body.replace("%MASK%", "0xffff"), np.zeros(32, np.uint32))


def test_it_is_no_finding_where_it_does_not_matter() -> None:
    a = np.zeros(32, np.uint32)
    read = "shfl.sync.down.b32 %r7, %r0, 8, 31, -1; setp.ge.u32 %p2, %r0, 8;"
    body = HALF_A_WARP.replace("%LEAVE%", "@%p1 exit;").replace("%READ%", read)
    report = run(body.replace("%USE%", "@%p2 mov.u32 %r7, 5;"), a)
    assert report.findings == []
    assert a.tolist() == [*range(8, 16)] + [5] * 8 + [0] * 16


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("shfl.sync.down.b32 %r7, %r0, 8, 15, -1;", [*range(8, 16), *range(8, 16)]),
        ("shfl.sync.up.b32 %r7, %r0, 8, 0, -1;", [*range(8), *range(8)]),
        ("shfl.sync.bfly.b32 %r7, %r0, 16, 15, -1;", [*range(16)]),
        ("shfl.sync.bfly.b32 %r7, %r0, 8, 31, -1;", [i ^ 8 for i in range(16)]),
    ],
)
def test_out_of_range_a_shuffle_reads_its_own_lane_whoever_has_exited(
    read: str, expected: list[int]
) -> None:
    a = np.zeros(32, np.uint32)
    body = HALF_A_WARP.replace("%LEAVE%", "@%p1 exit;").replace("%READ%", read)
    assert run(body.replace("%USE%", ""), a).findings == []
    assert a[:16].tolist() == expected
