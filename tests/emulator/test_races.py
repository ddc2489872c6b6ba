"""The race check on random exchanges through memory: never wrong, never silent."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ptx_harness import MINE, run

from nvfp4.emulator.errors import GlobalRace, SharedRace
from nvfp4.records.failures import Finding

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
        text, words = exchange(plan, without), np.zeros(64, np.uint32)
        found = run(text, words, block=64, before=SHARED).findings
    except SharedRace as error:
        race = error.message
    assert "depends on the order" in race or {f.code for f in found} & {"shared_race", "warp_sync"}


@pytest.mark.parametrize("write", ["u8", "u16", "u32", "v2.u32", "v4.u32"])
@pytest.mark.parametrize("read", ["u8", "u16", "u32", "v2.u32", "v4.u32"])
@pytest.mark.parametrize("apart", [True, False])
def test_accesses_of_any_two_widths_race_where_they_overlap(
    write: str, read: str, apart: bool
) -> None:
    """Thread 0 writes bytes 16 to 31, part by part as wide as it stores; thread 32 reads there, or
    beside them, as wide as it loads, before a barrier, and all of them behind it."""
    four = "{%r5, %r6, %r7, %r8}"
    nbytes = {"u8": 1, "u16": 2, "u32": 4, "v2.u32": 8, "v4.u32": 16}
    registers = dict(zip(nbytes, ("%h1", "%h1", "%r5", "{%r5, %r6}", four), strict=True))
    stores = "".join(
        f"@%p1 st.shared.{write} [s+{at}], {registers[write]};"
        for at in range(16, 32, nbytes[write])
    )
    load = f"ld.shared.{read} {registers[read]}, [s+%AT%];"
    body = f"""mov.u16 %h1, 7; mov.u32 %r5, 7; mov.u32 %r6, 7; mov.u32 %r7, 7; mov.u32 %r8, 7;
    setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 32;
    @%p1 st.shared.v4.u32 [s], {four}; bar.sync 0; {stores}
    @%p2 {load.replace("%AT%", "0" if apart else str(32 - nbytes[read]))} bar.sync 0;
    {load.replace("%AT%", "16")} {MINE} st.global.u32 [%d0], %r0;"""
    report = run(body, np.zeros(64, np.uint32), block=64, before=SHARED)
    assert [each.code for each in report.findings] == ([] if apart else ["shared_race"])


@settings(max_examples=30)
@given(st.permutations(range(96)), st.integers(0, 95), st.integers(0, 95))
def test_each_word_written_by_one_thread_is_fine_and_by_two_is_not(
    order: list[int], one: int, two: int
) -> None:
    """Threads of three CTAs store their numbers by a permutation, perhaps with one word shared."""
    where = np.array(order, np.uint32)
    body = """mov.u32 %r1, %ctaid.x; mad.lo.u32 %r3, %r1, 32, %r0; mul.wide.u32 %d1, %r3, 4;
    add.u64 %d2, %q1, %d1; ld.global.u32 %r4, [%d2]; mul.wide.u32 %d3, %r4, 4;
    add.u64 %d3, %q0, %d3; st.global.u32 [%d3], %r3;"""
    a = np.zeros(96, np.uint32)
    assert not run(body, a, where, grid=3).findings
    assert a[where].tolist() == list(range(96))
    if one // 32 != two // 32:
        where[one] = where[two]
        with pytest.raises(GlobalRace):
            run(body, np.zeros(96, np.uint32), where, grid=3)


WARPS = """shr.u32 %r1, %r0, 5; ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [s]; setp.eq.u32 %p1, %r1, 5;
@!%p1 bar.sync 1, 224; setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.u32 [s], 9;"""
BLOCKS = """mov.u32 %r1, %ctaid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %q0, %d1;
ld.global.u32 %r2, [%d1]; setp.ne.u32 %p1, %r1, 5; setp.ne.u32 %p2, %r1, 0;
@%p1 atom.acq_rel.gpu.global.add.u32 %r3, [%q1], 1; @%p2 ret;
POLL: ld.acquire.gpu.global.u32 %r4, [%q1]; setp.ne.u32 %p3, %r4, 224; @%p3 bra POLL;
st.global.u32 [%d1], 9;"""


@pytest.mark.parametrize(("body", "grid", "block"), [(WARPS, 1, 256), (BLOCKS, 8, 32)])
def test_a_reader_among_many_that_a_writer_does_not_wait_for_is_told(
    body: str, grid: int, block: int
) -> None:
    """Two readers of a word are remembered, and which cannot be foreseen: the one that matters
    is in one of eight launches."""
    assert any(
        run(body, *np.zeros((2, 64), np.uint32), grid=grid, block=block, before=SHARED).findings
        for _ in range(150)
    )


SWAP = """setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [s+4], 0; bar.sync 0; mov.u32 %r2, s;
add.u64 %d1, %q0, 4; ld.{}.u32 %r3, [{}+4]; FIRST
AGAIN: add.u32 %r4, %r3, 1; atom.{}.cas.b32 %r5, [{}], %r3, %r4; setp.ne.u32 %p2, %r3, %r5;
mov.u32 %r3, %r5; @%p2 bra AGAIN; LAST"""


@pytest.mark.parametrize(
    "spaces", [("global", "%q0", "global", "%d1"), ("shared", "%r2", "shared", "%r2+4")]
)
@pytest.mark.parametrize(
    ("first", "last", "races"),
    [
        ("", "", False),
        ("setp.eq.u32 %p3, %r3, 99; @%p3 ret;", "", True),
        ("mov.u32 %r6, %r3;", "setp.eq.u32 %p3, %r6, 99; @%p3 st.global.u32 [%q1], 1;", True),
        ("", "@%p1 st.{}.u32 [{}+4], 0;", True),
        ("atom.{}.cas.b32 %r6, [{}+4], 99, %r3;", "", True),
    ],
)
def test_a_plain_load_that_nothing_but_a_swap_depends_on_is_no_race(
    spaces: tuple[str, ...], first: str, last: str, races: bool
) -> None:
    body = SWAP.format(*spaces).replace("FIRST", first.format(*spaces))
    body, arrays = body.replace("LAST", last.format(*spaces)), np.zeros((2, 64), np.uint32)
    try:
        found = bool(run(body, *arrays, grid=2, block=64, before=SHARED).findings)
    except (GlobalRace, SharedRace):
        found = True
    assert found == races


def test_a_flag_that_others_do_not_announce_orders_nothing_wherever_it_lies() -> None:
    """Locations share channels, but not the same ones in every launch."""
    body = """mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r0, 0; @%p1 ret; setp.ne.u32 %p2, %r1, 0;
    @!%p2 st.global.u32 [%q0], 5; mul.wide.u32 %d1, %r1, AT; add.u64 %d1, %q1, %d1;
    atom.add.acq_rel.gpu.global.u32 %r2, [%d1], 1; @%p2 ld.global.u32 %r3, [%q0];
    @%p2 st.global.u32 [%d1+128], %r3;"""
    for at in range(4, 64, 4):
        flags = np.zeros(64, np.uint32)
        own = body.replace("AT", str(at))
        with pytest.raises(GlobalRace):
            any(run(own, np.zeros(4, np.uint32), flags, grid=2).findings for _ in range(40))
