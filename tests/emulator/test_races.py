"""The race check on random exchanges through shared memory: never wrong, never silent."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ptx_harness import MINE, run

from nvfp4.emulator.errors import SharedRace
from nvfp4.emulator.report import Finding

SHARED = ".shared .align 16 .b8 s[256]; .shared .align 8 .b64 bar;"
INIT = """mov.u32 %r20, bar; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r20], 64;
bar.sync 0;"""

Map = tuple[int, int]
maps = st.tuples(st.integers(0, 31).map(lambda x: 2 * x + 1), st.integers(0, 63))


def place(way: Map) -> str:
    """Thread t's word in %r10: (a t + b) mod 64, which is a permutation for odd a."""
    a, b = way
    return f"""mad.lo.u32 %r11, %r0, {a}, {b}; and.b32 %r11, %r11, 63; shl.b32 %r11, %r11, 2;
    mov.u32 %r10, s; add.u32 %r10, %r10, %r11;"""


def sync(kind: str, number: int) -> str:
    """Some way for all 64 threads to meet; `number` counts the meetings so far."""
    if kind == "mbarrier":
        wait = f"mbarrier.try_wait.parity.shared.b64 %p5, [%r20], {number % 2}; @!%p5 bra W;"
        return f"mbarrier.arrive.shared.b64 _, [%r20]; {{ W: {wait} }}"
    if kind == "halves":
        return """setp.lt.u32 %p6, %r0, 32; @%p6 bar.arrive 3, 64; @!%p6 bar.sync 3, 64;
        @!%p6 bar.arrive 4, 64; @%p6 bar.sync 4, 64;"""
    return {"all": "bar.sync 0;", "count": "barrier.sync 2, 64;"}[kind]


def exchange(steps: list[tuple[Map, Map, str]], without: int | None) -> str:
    """Write by one permutation, meet, read by another, meet; leave meeting `without` out."""
    body, met, meeting = INIT, 0, 0
    for write, read, kind in steps:
        for access in (
            f"{place(write)} add.u32 %r5, %r0, {meeting}; st.shared.u32 [%r10], %r5;",
            f"{place(read)} ld.shared.u32 %r6, [%r10];",
        ):
            body += access
            if meeting != without:
                body += sync(kind, met)
                met += kind == "mbarrier"
            meeting += 1
    return body + f"{MINE} st.global.u32 [%d0], %r6;"


steps = st.lists(
    st.tuples(maps, maps, st.sampled_from(["all", "count", "halves", "mbarrier"])),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40)
@given(steps)
def test_an_exchange_with_barriers_is_no_race(plan: list[tuple[Map, Map, str]]) -> None:
    a = np.zeros(64, np.uint32)
    run(exchange(plan, None), a, block=64, before=SHARED)
    thread = np.arange(64)
    (wa, wb), (ra, rb), _ = plan[-1]
    writer = np.empty(64, np.int64)
    writer[(thread * wa + wb) % 64] = thread
    assert a.tolist() == (writer[(thread * ra + rb) % 64] + 2 * (len(plan) - 1)).tolist()


@settings(max_examples=40)
@given(steps, st.data())
def test_an_exchange_without_one_of_them_is(
    plan: list[tuple[Map, Map, str]], data: st.DataObject
) -> None:
    """A failure where the result differs between orders, else a finding; never silent."""
    without = data.draw(st.integers(0, 2 * len(plan) - 2))
    ways = [way for write, read, _ in plan for way in (write, read)]
    assume(ways[without] != ways[without + 1])
    race = ""
    found: list[Finding] = []
    try:
        found = run(
            exchange(plan, without), np.zeros(64, np.uint32), block=64, before=SHARED
        ).findings
    except SharedRace as error:
        race = error.message
    assert "depends on the order" in race or {f.code for f in found} & {"shared_race", "warp_sync"}


def test_a_race_that_does_no_harm_names_both_places() -> None:
    """The second warp reads what the first one writes, and does nothing with it."""
    body = f"""mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r10], 7;
    ld.shared.u32 %r5, [%r10]; and.b32 %r5, %r5, 0; {MINE} st.global.u32 [%d0], %r5;"""
    a = np.ones(64, np.uint32)
    report = run(body, a, block=64, before=SHARED)
    assert not a.any()
    (found,) = [each for each in report.findings if each.code == "shared_race"]
    (other,) = found.related
    verbs = {"written": (0, 0, 0), "read": (32, 0, 0)}
    told = next(verb for verb in verbs if verb in other["message"])
    assert other["thread"] == verbs[told]
    assert found.thread == verbs[({*verbs} - {told}).pop()]
    assert other["ptx_line"] != found.ptx_line


# Thread 0 clears a sum, %SYNC%, every thread adds its number, and all read the sum after a barrier.
CLEARED_SUM = f"""mov.u32 %r10, s; setp.eq.u32 %p1, %r0, 0; %FIRST% %SYNC%
red.shared.add.u32 [%r10], %r0; bar.sync 0; ld.shared.u32 %r5, [%r10]; {MINE}
st.global.u32 [%d0], %r5;"""
CLEAR = "@%p1 st.shared.u32 [%r10], 0;"


def cleared_sum(first: str, sync: str, block: int = 64) -> list[Finding]:
    """The findings, once the sum is right; may raise SharedRace."""
    a = np.zeros(block, np.uint32)
    body = CLEARED_SUM.replace("%FIRST%", first).replace("%SYNC%", sync)
    report = run(body, a, block=block, before=SHARED)
    assert (a == sum(range(block))).all()
    return report.findings


@pytest.mark.parametrize(
    "sync",
    [
        "",
        "bar.warp.sync -1;",
        "shfl.sync.bfly.b32 %r6, %r0, 1, 31, -1; bar.warp.sync -1; bar.warp.sync -1;",
        "bar.warp.sync -1; @%p1 red.shared.add.u32 [%r10], 0; bar.warp.sync -1;",
    ],
)
def test_a_warp_s_own_atomics_do_not_hide_that_it_has_cleared_the_sum(sync: str) -> None:
    with pytest.raises(SharedRace, match="depends on the order"):
        cleared_sum(CLEAR, sync)


def test_the_race_with_a_store_that_atomics_have_followed_names_the_store() -> None:
    """The last lane of the first warp adds last; it is lane 3 that has stored."""
    first = "setp.eq.u32 %p2, %r0, 3; @%p2 st.shared.u32 [%r10], 0; setp.gt.u32 %p3, %r0, 31;"
    wait = "@%p3 bra ADD; bar.warp.sync -1; ADD:"
    with pytest.raises(SharedRace, match=r"races with thread \(3, 0, 0\)") as caught:
        cleared_sum(first, wait)
    (other,) = caught.value.related
    assert "st.shared.u32" in str(other.where.instruction)


@pytest.mark.parametrize(
    ("first", "sync"),
    [
        (CLEAR, "bar.sync 0;"),
        (CLEAR + "@%p1 red.shared.add.u32 [%r10], 0;", "bar.sync 0;"),
        (CLEAR + "bar.warp.sync -1; @%p1 red.shared.add.u32 [%r10], 0;", "bar.sync 0;"),
        (CLEAR + "bar.sync 0; red.shared.add.u32 [%r10], 0; bar.warp.sync -1;", ""),
        (CLEAR, "bar.sync 0; @%p1 st.shared.u32 [%r10], 0; bar.sync 0;"),
    ],
)
def test_a_sum_that_is_cleared_before_a_barrier_is_no_race(first: str, sync: str) -> None:
    assert cleared_sum(first, sync) == []


def test_a_sum_of_one_warp_needs_no_barrier_but_a_warp_s() -> None:
    assert cleared_sum(CLEAR, "bar.warp.sync -1;", block=32) == []
    (found,) = cleared_sum(CLEAR, "", block=32)
    assert found.code == "warp_sync"


def test_the_warp_that_draws_the_last_ticket_sees_what_the_others_wrote() -> None:
    body = """
    setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.u32 [s + 256], 0; bar.sync 0;
    and.b32 %r1, %r0, 31; setp.ne.u32 %p2, %r1, 0; @%p2 bra E;
    shr.u32 %r2, %r0, 5; shl.b32 %r3, %r2, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r3;
    add.u32 %r5, %r2, 1; st.shared.u32 [%r4], %r5; fence.acq_rel.cta;
    atom.shared.add.u32 %r6, [s + 256], 1; setp.ne.u32 %p3, %r6, 3; @%p3 bra E;
    ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [s];
    add.u32 %r7, %r7, %r8; add.u32 %r9, %r9, %r10; add.u32 %r7, %r7, %r9;
    st.global.u32 [%q0], %r7; E:"""
    out = np.zeros(1, np.uint32)
    report = run(body, out, block=128, before=".shared .align 16 .b8 s[512];")
    assert out.tolist() == [10]
    assert not report.findings


def test_a_read_after_ones_own_atomic_alone_is_a_race() -> None:
    body = """
    setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.u32 [s], 0; bar.sync 0;
    atom.shared.add.u32 %r6, [s], 1; @%p1 bra E;
    ld.shared.u32 %r7, [s]; st.global.u32 [%q0], %r7; E:"""
    with pytest.raises(SharedRace):
        run(body, np.zeros(1, np.uint32), block=128, before=".shared .align 16 .b8 s[512];")


@pytest.mark.parametrize("write", ["u8", "u16", "u32", "v2.u32"])
@pytest.mark.parametrize("read", ["u8", "u16", "u32", "v2.u32"])
@pytest.mark.parametrize("apart", [True, False])
def test_accesses_of_any_two_widths_race_where_they_overlap(
    write: str, read: str, apart: bool
) -> None:
    """Thread 0 writes bytes 8 to 15, part by part as wide as it stores; thread 32 reads there, or
    beside them, as wide as it loads, before a barrier, and all of them behind it."""
    registers = {"u8": "%h1", "u16": "%h1", "u32": "%r5", "v2.u32": "{%r5, %r6}"}
    nbytes = {"u8": 1, "u16": 2, "u32": 4, "v2.u32": 8}
    stores = "".join(
        f"@%p1 st.shared.{write} [s+{at}], {registers[write]};"
        for at in range(8, 16, nbytes[write])
    )
    load = f"ld.shared.{read} {registers[read]}, [s+%AT%];"
    body = f"""mov.u16 %h1, 7; mov.u32 %r5, 7; mov.u32 %r6, 7; setp.eq.u32 %p1, %r0, 0;
    setp.eq.u32 %p2, %r0, 32; @%p1 st.shared.v2.u32 [s], {{%r5, %r6}}; bar.sync 0; {stores}
    @%p2 {load.replace("%AT%", "0" if apart else str(16 - nbytes[read]))} bar.sync 0;
    {load.replace("%AT%", "8")} {MINE} st.global.u32 [%d0], %r0;"""
    report = run(body, np.zeros(64, np.uint32), block=64, before=SHARED)
    assert [each.code for each in report.findings] == ([] if apart else ["shared_race"])
