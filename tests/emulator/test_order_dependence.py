"""Results that depend on who comes first, though no two accesses race."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ptx_harness import MINE_IN_GRID
from test_worlds import cause_of, run, words

from nvfp4.emulator import Worlds, errors
from nvfp4.emulator.execution import experiment, launch, schedule
from nvfp4.emulator.state.order import Order
from nvfp4.records.launch import Buffer, View

# The CTA that draws ticket 0 stores 5 to the first word of q1; the others add 1.
FIRST_STORES = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
atom.global.add.u32 %r5, [%q0], 1; setp.eq.u32 %p2, %r5, 0; mov.u32 %r6, %ctaid.x;
@%p2 atom.global.exch.b32 %r7, [%q1], %r6; @!%p2 red.global.add.u32 [%q1], 16;
END:
"""
# Each CTA sets its flag behind a fence; the last one adds up those that it finds set.
FLAGS_OF_SOME = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 7;
mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d2, %q0; membar.gl; st.global.u32 [%d2], 1;
@%p1 bra END; mov.u32 %r4, 0; mov.u32 %r5, 0;
SUM: ld.acquire.gpu.global.u32 %r6, [%q0]; add.u32 %r5, %r5, %r6; add.u64 %q0, %q0, 4;
add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 8; @%p3 bra SUM; st.global.u32 [%q1], %r5;
END:
"""
# Every CTA adds the word of its ticket: the sum is the same whoever draws which.
EVERYBODY_ADDS = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
atom.global.add.u32 %r5, [%q0], 1; add.u32 %r5, %r5, 3; red.global.add.u32 [%q1], %r5;
END:
"""
# Sums of floats differ by their rounding.
FLOATS = """
cvt.rn.f32.u32 %r8, %r0; mov.u32 %r9, %ctaid.x; cvt.rn.f32.u32 %r9, %r9;
fma.rn.f32 %r8, %r8, 0f3DCCCCCD, %r9; red.global.add.f32 [%q1], %r8;
"""
# The CTAs of a cluster store their numbers where their tickets say.
TICKET_IN_CLUSTER = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END; atom.global.add.u32 %r5, [%q0], 1; mov.u32 %r6, %ctaid.x;
mul.wide.u32 %d1, %r5, 4; add.u64 %d1, %q1, %d1; st.global.u32 [%d1], %r6;
END:
"""
# The second CTA of a cluster sets a word that the first one looks at behind a barrier of its own.
SET_BY_SECOND = """
mov.u32 %r9, %ctaid.x; and.b32 %r6, %r9, 1; setp.eq.u32 %p1, %r6, 1; shr.u32 %r9, %r9, 1;
mul.wide.u32 %d1, %r9, 4; add.u64 %d2, %q0, %d1; add.u64 %d3, %q1, %d1;
@%p1 atom.global.exch.b32 %r5, [%d2], 1; @%p1 bra END; bar.sync 0;
ld.relaxed.gpu.global.u32 %r7, [%d2]; st.global.u32 [%d3], %r7;
END:
"""
# The second to last of the CTAs adds up what all have written.
ONE_IS_MISSING = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mov.u32 %r1, %ctaid.x; mul.wide.u32 %d2, %r1, 4;
add.u64 %d2, %d2, %q0; st.volatile.global.u32 [%d2+4], 5; membar.gl;
atom.global.add.u32 %r5, [%q0], 1; setp.ne.u32 %p2, %r5, 22; @%p2 bra END; membar.gl;
mov.u32 %r4, 0; mov.u32 %r7, 0; mov.u64 %d3, %q0;
SUM: ld.volatile.global.u32 %r8, [%d3+4]; add.u32 %r7, %r7, %r8; add.u64 %d3, %d3, 4;
add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 24; @%p3 bra SUM; st.global.u32 [%q1], %r7;
END:
"""
# A CTA adds 16 behind its ticket; the last one takes the sum behind a barrier.
LATE_ADDITION = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra MEET; red.global.add.u32 [%q1], 1; membar.gl;
atom.global.add.u32 %r5, [%q0], 1; red.global.add.u32 [%q1], 16; MEET: bar.sync 0; @%p1 bra END;
setp.ne.u32 %p2, %r5, 7; @%p2 bra END; atom.global.exch.b32 %r6, [%q1], 0;
st.global.u32 [%q1+4], %r6; END:
"""
# Of two CTAs, the one that counts second adds what it has got by exchange, maybe first.
EXCHANGED = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mov.u32 %r1, %ctaid.x; add.u32 %r1, %r1, 1;
atom.global.exch.b32 %r5, [%q0], %r1; atom.global.add.u32 %r6, [%q0+4], 1;
setp.ne.u32 %p2, %r6, 1; @%p2 bra END; add.u32 %r5, %r5, %r1; st.global.u32 [%q1], %r5;
END:
"""
# Each half of the warps meets at a named barrier, but both at the same one.
ONE_BARRIER = """
mov.u32 %r9, s; mad.lo.u32 %r8, %r0, 4, %r9; st.shared.u32 [%r8], %r0; shr.u32 %r5, %r0, 7;
bar.sync 1, 128; xor.b32 %r6, %r0, 64; mad.lo.u32 %r8, %r6, 4, %r9; ld.shared.u32 %r7, [%r8];
mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %q1, %d1; st.global.u32 [%d1], %r7;
"""
# One of five warps takes the others' words in their order, once as many of them have come.
COUNTED = """
mov.u32 %r9, s; mov.u32 %r10, 0; and.b32 %r8, %r0, 31; setp.ne.u32 %p1, %r8, 0; shr.u32 %r5, %r0, 5;
@!%p1 st.shared.u32 [%r9], 0; bar.sync 0; @%p1 bra END; setp.eq.u32 %p2, %r5, {0}; @%p2 bra NEXT;
mad.lo.u32 %r8, %r5, 4, %r9; st.shared.u32 [%r8+16], %r5; atom.shared.add.u32 %r6, [%r9], 1;
bra END;
NEXT: atom.shared.add.u32 %r6, [%r9], 0; setp.le.u32 %p3, %r6, %r10; @%p3 bra NEXT;
mad.lo.u32 %r8, %r10, 4, %r9; ld.shared.u32 %r7, [%r8+{1}]; mul.wide.u32 %d1, %r10, 4;
add.u64 %d1, %q1, %d1; st.global.u32 [%d1], %r7; add.u32 %r10, %r10, 1;
setp.lt.u32 %p3, %r10, 4; @%p3 bra NEXT;
END:
"""


@pytest.mark.parametrize(
    ("body", "cause", "how"),
    [
        (FIRST_STORES, "atom.global.add", {"grid": 8}),
        (FLAGS_OF_SOME, "ld.acquire", {"grid": 8}),
        (TICKET_IN_CLUSTER, "atom.global.add", {"grid": 2, "cluster": 2}),
        (SET_BY_SECOND, "atom.global.exch", {"grid": 16, "cluster": 2}),
        (ONE_BARRIER, "bar.sync 1", {"block": 256}),
        (ONE_IS_MISSING, "st.volatile", {"grid": 24}),
        (EXCHANGED, "atom.global.exch", {"grid": 2}),
        (LATE_ADDITION, "red.global.add", {"grid": 8, "block": 64}),
        (COUNTED.format(0, 20), "atom.shared.add", {"block": 160}),
        (COUNTED.format(4, 16), "atom.shared.add", {"block": 160}),
    ],
)
def test_who_comes_first_must_not_decide(body: str, cause: str, how: Any) -> None:
    for _ in range(2):  # once compiled, it is quick enough to run again
        worlds, tickets, out = Worlds(), words(32), words(256)
        run(worlds, body, tickets, out, before=".shared .align 4 .b8 s[1024];", **how)
    found = cause_of(worlds, out)
    assert isinstance(found, errors.OrderDependence) and cause in str(found)


def test_some_launches_are_tried_in_other_orders_again() -> None:
    found = []
    for _ in range(40):
        worlds, ticket, out = Worlds(), words(1), words(1)
        run(worlds, FIRST_STORES, ticket, out, grid=8, again=True)
        found.append(cause_of(worlds, out) is not None)
    assert any(found)
    assert not all(found)


@pytest.mark.parametrize(("body", "dtype"), [(EVERYBODY_ADDS, np.uint32), (FLOATS, np.float32)])
def test_a_sum_that_is_the_same_in_every_order_but_for_rounding_is_right(
    body: str, dtype: Any
) -> None:
    worlds, ticket, out = Worlds(), words(1), np.zeros(1, dtype)
    run(worlds, body, ticket, out, grid=8)
    assert out[0] == sum(range(3, 11)) if dtype is np.uint32 else out[0] > 0
    assert cause_of(worlds, out) is None


# A thread draws a ticket before the other warps of its CTA have written; the last one adds up.
TICKET_TOO_EARLY = """
mov.u32 %r9, %ctaid.x; shl.b32 %r10, %r9, 6; add.u32 %r10, %r10, %r0; mul.wide.u32 %d1, %r10, 4;
add.u64 %d1, %q1, %d1; add.u32 %r11, %r0, 1; st.volatile.global.u32 [%d1], %r11; membar.gl;
mov.u32 %r12, s; setp.ne.u32 %p1, %r0, 0; @%p1 bra MEET;
atom.global.inc.u32 %r5, [%q0], 19; st.shared.u32 [%r12], %r5;
MEET: bar.sync 0; ld.shared.u32 %r5, [%r12]; setp.ne.u32 %p2, %r5, 19; @%p2 bra END;
membar.gl; mov.u32 %r6, 0; mov.u32 %r7, 0;
NEXT: mad.lo.u32 %r8, %r7, 64, %r0; mul.wide.u32 %d2, %r8, 4; add.u64 %d2, %q1, %d2;
ld.volatile.global.u32 %r13, [%d2]; add.u32 %r6, %r6, %r13; add.u32 %r7, %r7, 1;
setp.lt.u32 %p3, %r7, 20; @%p3 bra NEXT;
mul.wide.u32 %d3, %r0, 4; add.u64 %d3, %q2, %d3; st.global.u32 [%d3], %r6;
END:
"""


ALL_MEET = """
mov.u32 %r14, met; setp.ne.u32 %p1, %r0, 0; @!%p1 mbarrier.init.shared.b64 [%r14], 64; bar.sync 0;
mbarrier.arrive.shared.b64 _, [%r14];
W: mbarrier.try_wait.parity.shared.b64 %p3, [%r14], 0; @!%p3 bra W;
"""


@pytest.mark.parametrize("earlier", ["", "bar.sync 0;", ALL_MEET])
@pytest.mark.parametrize("drawer", [0, 32])
@pytest.mark.parametrize("barrier", [True, False])
def test_a_ticket_is_drawn_behind_a_barrier(barrier: bool, drawer: int, earlier: str) -> None:
    worlds, out = Worlds(), words(64)
    body = earlier + TICKET_TOO_EARLY.replace("%p1, %r0, 0;", f"%p1, %r0, {drawer};")
    if barrier:
        body = body.replace("mov.u32 %r12, s;", "bar.sync 0; mov.u32 %r12, s;")
    shared = ".shared .align 4 .b8 s[4]; .shared .align 8 .b64 met;"
    run(worlds, body, words(1), words(20 * 64), out, grid=20, block=64, before=shared)
    assert (out == 20 * (1 + np.arange(64))).all()
    cause = cause_of(worlds, out)
    assert cause is None if barrier else isinstance(cause, errors.OrderDependence)


# One of two warps stores what both have written, which write anew before it has waited, or after.
STORED_TWICE = """
mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11; mov.u32 %r5, 1;
AGAIN: st.shared.u32 [%r12], %r5; fence.proxy.async; {}
setp.ne.u32 %p1, %r0, {}; @%p1 bra MEET;
cp.async.bulk.global.shared::cta.bulk_group [%q0], [%r10], 256; cp.async.bulk.commit_group;
add.u64 %q0, %q0, 256; {}
MEET: {} add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 3; @%p2 bra AGAIN;
@!%p1 cp.async.bulk.wait_group 0;
"""
WAIT, BARRIER = "cp.async.bulk.wait_group.read 0;", "bar.sync 0;"


@pytest.mark.parametrize("warp", [0, 1])
@pytest.mark.parametrize(
    ("first", "then", "last", "right"),
    [
        (BARRIER, WAIT, BARRIER, True),
        ("", WAIT, BARRIER, False),
        (BARRIER, WAIT, "", False),
        (BARRIER, "", BARRIER + WAIT, False),
        (BARRIER, WAIT.replace("0", "1"), BARRIER, False),
        (BARRIER, "", BARRIER, False),
    ],
)
def test_a_bulk_store_reads_between_what_it_waits_for_and_what_waits_for_it(
    warp: int, first: str, then: str, last: str, right: bool
) -> None:
    worlds, out = Worlds(), words(128)
    body = STORED_TWICE.format(first, 32 * warp, then, last)
    run(worlds, body, out, block=64, before=".shared .align 128 .b8 s[256];")
    assert (out == np.repeat([1, 2], 64)).all()
    cause = cause_of(worlds, out)
    assert cause is None if right else isinstance(cause, errors.SharedRace)


# The second half of the CTAs reads what the first half writes, behind flags of an earlier launch.
STALE_FLAG = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
mov.u32 %r9, %ctaid.x; and.b32 %r10, %r9, 7; mul.wide.u32 %d1, %r10, 4;
add.u64 %d2, %q0, %d1; add.u64 %d3, %q1, %d1; setp.gt.u32 %p2, %r9, 7; @%p2 bra READ;
st.global.u32 [%d3], 5; red.release.gpu.global.add.u32 [%d2], 1; bra END;
READ: atom.acquire.gpu.global.add.u32 %r5, [%d2], 0; setp.eq.u32 %p2, %r5, 0; @%p2 bra READ;
ld.global.u32 %r6, [%d3]; st.global.u32 [%d3 + 32], %r6;
END:
"""


@pytest.mark.parametrize("flag", [0, 1])
def test_a_half_of_the_ctas_that_does_not_wait_for_the_other_is_found(flag: int) -> None:
    worlds, flags, out = Worlds(), words(8), words(16)
    for _ in range(2):  # once compiled, it is quick enough to run again
        worlds, flags[:], out[:] = Worlds(), flag, 0
        run(worlds, STALE_FLAG, flags, out, grid=16, block=64)
    assert (out == 5).all()
    assert isinstance(cause_of(worlds, out), errors.OrderDependence) == flag


# Of two CTAs, the first stores its number and the second adds to it. The ticket was drawn before.
LOST_SUM = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
mov.u32 %r9, %ctaid.x; shr.u32 %r10, %r9, 1; mul.wide.u32 %d1, %r10, 4;
add.u64 %d2, %q0, %d1; add.u64 %d3, %q1, %d1; add.u32 %r11, %r9, 100;
atom.global.add.u32 %r5, [%d2], 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra ADD;
STORE; bra END;
ADD: red.global.add.u32 [%d3], %r11; atom.global.exch.b32 %r5, [%d2], 0;
END:
"""


@pytest.mark.parametrize(
    "store", ["atom.global.exch.b32 %r7, [%d3], %r11", "st.relaxed.gpu.global.u32 [%d3], %r11"]
)
def test_what_is_added_before_an_exchange_is_lost(store: str) -> None:
    worlds, tickets, out = Worlds(), words(4), words(4)
    for _ in range(2):  # once compiled, it is quick enough to run again
        worlds, tickets[:], out[:] = Worlds(), 0, 0
        run(worlds, LOST_SUM.replace("STORE", store), tickets, out, grid=8)
    assert out.tolist() == [201, 205, 209, 213]
    cause = cause_of(worlds, out)
    assert isinstance(cause, errors.OrderDependence)
    assert store in str(cause)


BY_ONE_THREAD = "setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mov.u32 %r9, %ctaid.x; "
ADDS_ONE = (
    "ld.volatile.global.u32 %r6, [%q1]; add.u32 %r6, %r6, 1; st.volatile.global.u32 [%q1], %r6;"
)
RIGHT = {
    "a lock that is taken by cas": f"""
TAKE: atom.global.cas.b32 %r5, [%q0], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra TAKE;
{ADDS_ONE} red.global.add.u32 [%q2], 1; membar.gl; atom.global.exch.b32 %r7, [%q0], 0;""",
    "a lock that is taken by exch and released by add": f"""
TAKE: atom.global.exch.b32 %r5, [%q0], 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra TAKE;
{ADDS_ONE} membar.gl; red.global.add.u32 [%q0], -1;""",
    "a lock that is taken by add and released by exch": f"""
TAKE: atom.global.add.u32 %r5, [%q0], 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra TAKE;
{ADDS_ONE} membar.gl; atom.global.exch.b32 %r7, [%q0], 0;""",
    "a lock of tickets": f"""
atom.global.add.u32 %r8, [%q0], 1;
TAKE: atom.global.add.u32 %r5, [%q2], 0; setp.ne.u32 %p2, %r5, %r8; @%p2 bra TAKE;
{ADDS_ONE} membar.gl; add.u32 %r8, %r8, 1; atom.global.exch.b32 %r7, [%q2], %r8;""",
    "an exchange that takes what was added": """
red.global.add.u32 [%q0], 1; atom.global.exch.b32 %r5, [%q0], 0; red.global.add.u32 [%q1], %r5;""",
    "the last one sets the counter back": """
red.global.add.u32 [%q1], 1; membar.gl; atom.global.add.u32 %r5, [%q0], 1;
setp.ne.u32 %p2, %r5, 7; @%p2 bra END; atom.global.exch.b32 %r7, [%q0], 0;""",
    "a flag that is read by adding nothing": """
setp.ne.u32 %p2, %r9, 0; @%p2 bra WAIT;
atom.global.exch.b32 %r7, [%q0], 1;
WAIT: atom.global.add.u32 %r5, [%q0], 0; setp.eq.u32 %p2, %r5, 0; @%p2 bra WAIT;
red.global.add.u32 [%q1], 1;""",
}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_exchanges_beside_additions_may_be_right(body: str) -> None:
    for _ in range(2):
        worlds, counter, out, other = Worlds(), words(1), words(1), words(1)
        run(worlds, f"{BY_ONE_THREAD} {body}\nEND:", counter, out, other, grid=8)
        assert out[0] == 8
        assert cause_of(worlds, out) is None


# Thread 0 writes 5 to shared memory and arrives; warp 1 waits for it in WAIT, then reads.
TOLD = """
mov.u32 %r9, s; setp.ne.u32 %p1, %r0, 0; @%p1 bra MET;
mbarrier.init.shared.b64 [%r9], 1; st.shared.u32 [%r9+8], 3;
MET: bar.sync 0; @%p1 bra REST;
st.shared.u32 [%r9+8], 5; mbarrier.arrive.shared.b64 _, [%r9]; bra END;
REST: setp.lt.u32 %p2, %r0, 32; @%p2 bra END; WAIT
ld.shared.u32 %r5, [%r9+8]; st.global.u32 [%q0], %r5;
END:
"""
TRY = "mbarrier.try_wait.parity.shared.b64 %p3, [%r9], 0;"


# Warp 1 takes what warp 0 hands over at one barrier, says so at the next, and warp 0 writes anew.
HANDED_OVER = f"""
mov.u32 %r9, s; setp.ne.u32 %p1, %r0, 0; mov.u32 %r6, 5; @!%p1 mbarrier.init.shared.b64 [%r9], 1;
@!%p1 mbarrier.init.shared.b64 [%r9+8], 1; bar.sync 0; setp.ge.u32 %p2, %r0, 32; @%p2 bra REST;
@%p1 bra END; FULL W: {TRY.replace("[%r9]", "[%r9+8]")} @!%p3 bra W; st.shared.u32 [%r9+16], 7;
bra END; REST: setp.ne.u32 %p2, %r0, 32; @%p2 bra END; V: {TRY} @!%p3 bra V;
FREE st.global.u32 [%q0], %r5; END:
"""
WRITE, TELL = "st.shared.u32 [%r9+16], %r6;", "mbarrier.arrive.shared.b64 _, [%r9];"
READ, FREE = "ld.shared.u32 %r5, [%r9+16];", "mbarrier.arrive.shared.b64 _, [%r9+8];"


@pytest.mark.parametrize(
    ("full", "free", "right"),
    [(WRITE + TELL, READ + FREE, True), (TELL + WRITE, READ + FREE, False),
     (WRITE + TELL, FREE + READ, False)],
)  # fmt: skip
def test_who_arrives_before_the_work_is_done_is_overtaken(
    full: str, free: str, right: bool
) -> None:
    worlds, out = Worlds(), words(1)
    text = HANDED_OVER.replace("FULL", full).replace("FREE", free)
    for _ in range(2):
        run(worlds, text, out, block=64, before=".shared .align 8 .b8 s[24];")
    assert (out[0] == 5 and cause_of(worlds, out) is None) == right


# CTA 0 writes a word and raises a flag, CTA 1 waits for that and reads.
FLAGGED = f"""
{BY_ONE_THREAD} mov.u32 %r1, %ctaid.x; setp.ne.u32 %p2, %r1, 0; @%p2 bra REST; WORK bra END;
REST: ld.acquire.gpu.global.u32 %r3, [%q0]; setp.eq.u32 %p3, %r3, 0; @%p3 bra REST;
ld.global.u32 %r5, [%q1]; st.global.u32 [%q2], %r5; END:
"""
WORD = "st.global.u32 [%q1], 5; membar.gl;"


@pytest.mark.parametrize(
    "flag", ["st.release.gpu", "st.volatile", "atom.exch", "red.release.gpu.add"]
)
def test_a_flag_that_is_raised_before_its_word_is_written_is_found_out(flag: str) -> None:
    raised = f"{flag}.global.u32 {'%r7, ' * (flag[:4] == 'atom')}[%q0], 1;"
    for work, right in ((WORD + raised, True), (raised + WORD, False)):
        worlds, counter, out = Worlds(), words(1), words(1)
        for _ in range(2):
            counter[:] = 0
            run(worlds, FLAGGED.replace("WORK", work), counter, words(1), out, grid=2)
        assert (cause_of(worlds, out) is None) == right


# All threads write and arrive, sleep until all have, and read what the next warp has written.
SLEEPING = f"""
mov.u32 %r9, s; setp.ne.u32 %p1, %r0, 0; @!%p1 mbarrier.init.shared.b64 [%r9], 256; bar.sync 0;
mad.lo.u32 %r8, %r0, 4, %r9; st.shared.u32 [%r8+16], %r0; mbarrier.arrive.shared.b64 _, [%r9];
W: mbarrier.test_wait.parity.shared.b64 %p3, [%r9], 0; @%p3 bra DONE; nanosleep.u32 20; bra W;
DONE: xor.b32 %r7, %r0, 32; mad.lo.u32 %r8, %r7, 4, %r9; ld.shared.u32 %r5, [%r8+16];
{MINE_IN_GRID} st.global.u32 [%d0], %r5;
"""


def test_warps_that_sleep_between_polls_let_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "QUIET_STEPS", 1024)
    worlds, out = Worlds(), words(2048)
    for _ in range(2):
        run(worlds, SLEEPING, out, block=256, grid=8, before=".shared .align 8 .b8 s[1040];")
    assert out[:2].tolist() == [32, 33] and cause_of(worlds, out) is None


def test_a_lane_may_wait_for_another_of_its_warp_by_any_load() -> None:
    text = """setp.eq.u32 %p1, %r0, 31; @%p1 bra TELL;
    W: ld.global.cg.u32 %r5, [%q0]; setp.eq.u32 %p2, %r5, 0; @%p2 bra W; bra END;
    TELL: st.global.u32 [%q0], 7; END:"""
    out = words(1)
    run(Worlds(), text, out, block=32)
    assert out[0] == 7


def test_tensor_cores_are_prompt_and_late_with_copies_of_either_kind() -> None:
    assert len({(each.shifts_copies, each.late_pipe) for each in map(Order, range(4))}) == 4


@pytest.mark.parametrize(
    ("wait", "right"),
    [(f"W: {TRY} @!%p3 bra W;", True), (f"{TRY} @%p3 bra W; W:", False),
     (f"{TRY} @%p3 bra W; {TRY} @%p3 bra W; mov.u32 %r6, 0; W:", False)],
)  # fmt: skip
def test_a_wait_that_may_time_out_is_repeated(wait: str, right: bool) -> None:
    worlds, out = Worlds(), words(1)
    for _ in range(2):
        run(worlds, TOLD.replace("WAIT", wait), out, block=64, before=".shared .align 8 .b8 s[16];")
    assert out[0] == 5
    assert (cause_of(worlds, out) is None) == right


# All CTAs wait, between barriers, for what one of them says.
WAITS_FOR_ONE = """
mov.u32 %r9, %ctaid.x; mov.u32 %r10, s; setp.ne.u32 %p1, %r0, 0;
setp.eq.u32 %p3, %r9, ONE; @%p3 st.release.gpu.global.u32 [%q0], 1;
WAIT: bar.sync 0; @!%p1 ld.acquire.gpu.global.u32 %r5, [%q0]; @!%p1 st.shared.u32 [%r10], %r5;
bar.sync 0; ld.shared.u32 %r6, [%r10]; setp.eq.u32 %p2, %r6, 0; @%p2 bra WAIT;
"""


@pytest.mark.parametrize("one", [0, 35])
def test_a_cta_may_wait_for_one_that_is_far_from_it(one: int) -> None:
    worlds, out = Worlds(), words(1)
    text, before = WAITS_FOR_ONE.replace("ONE", str(one)), ".shared .align 4 .b8 s[4];"
    run(worlds, text, out, grid=36, block=1024, before=before)
    assert not worlds.differences


# Each CTA but the first writes its word and waits until all have; then the first adds them up.
WAITS_FOR_ALL = """
setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p2, %r1, 0;
mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d2, %q1;
ld.global.u32 %r2, [%d2]; add.u32 %r2, %r2, 1;
st.global.u32 [%d2], %r2;
membar.gl; red.global.add.u32 [%q0], 1;
WAIT: ld.volatile.global.u32 %r3, [%q0]; setp.lt.u32 %p3, %r3, 8; @%p3 bra WAIT; membar.gl;
@!%p2 bra END; mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u64 %d3, %q1;
SUM: ld.global.u32 %r6, [%d3]; add.u32 %r5, %r5, %r6; add.u64 %d3, %d3, 4; add.u32 %r4, %r4, 1;
setp.lt.u32 %p3, %r4, 8; @%p3 bra SUM; st.global.u32 [%q2], %r5;
END:
"""


@pytest.mark.parametrize("sets_back", [True, False])
def test_a_grid_that_no_longer_waits_is_found_out_after_one_that_did(
    sets_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first launch takes too long in other orders, as where what it needs is compiled."""
    monkeypatch.setattr(launch, "_LEAST_SUSPECTED_S", 0.0)
    monkeypatch.setattr(launch, "_MOST_SUSPECTED", 0.0)
    worlds, counter, parts, out = Worlds(), words(1), words(8), words(1)
    for _ in range(4):
        if sets_back:
            counter[:] = 0
        run(worlds, WAITS_FOR_ALL, counter, parts, out, grid=8)
        monkeypatch.undo()
    assert (cause_of(worlds, out) is None) == sets_back


def test_a_barrier_of_a_grid_that_some_need_not_reach_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Warps that wait take few steps of those that others need, so that an order ends."""
    monkeypatch.setattr(schedule, "STEP_LIMIT", 3_000)
    monkeypatch.setattr(launch, "_LEAST_SUSPECTED_S", 60.0)
    before = "mov.u32 %r7, 0; mov.u32 %r8, s; M: bar.sync 0; st.shared.u32 [%r8], 1;"
    before += "add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 10; @%p4 bra M;"
    text = before + WAITS_FOR_ALL.replace("%r3, 8", "%r3, 14").replace("%r4, 8", "%r4, 16")
    worlds, arrays, room = Worlds(), (words(1), words(16), words(1)), ".shared .align 4 .b8 s[4];"
    for _ in range(2):
        arrays[0][:] = 0
        run(worlds, text, *arrays, grid=16, block=128, before=room)
    assert cause_of(worlds, arrays[2]) is not None


# A barrier of a grid, at which one thread polls by an atomic; then the first word to come is kept.
POLLS_BY_ATOMICS = """
mov.u32 %r9, %ctaid.x; mov.u32 %r10, s; setp.ne.u32 %p1, %r0, 0; @!%p1 red.global.add.u32 [%q0], 1;
WAIT: bar.sync 0; @!%p1 atom.acquire.gpu.global.add.u32 %r5, [%q0], 0;
@!%p1 st.shared.u32 [%r10], %r5; bar.sync 0;
ld.shared.u32 %r6, [%r10]; setp.lt.u32 %p2, %r6, 32; @%p2 bra WAIT;
@!%p1 atom.global.cas.b32 %r5, [%q1], 0, %r9;
"""


def test_polls_between_barriers_leave_other_orders_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "STEP_LIMIT", 3_000)
    monkeypatch.setattr(launch, "_LEAST_SUSPECTED_S", 60.0)
    again, faults = launch._Runs.again, []

    def noted(runs: Any, order: Order) -> Any:
        faults.append((state := again(runs, order)).fault)
        return state

    monkeypatch.setattr(launch._Runs, "again", noted)
    worlds, counter, out, room = Worlds(), words(1), words(1), ".shared .align 4 .b8 s[4];"
    run(worlds, POLLS_BY_ATOMICS, counter, out, grid=32, block=128, before=room)
    assert cause_of(worlds, out) is not None and faults and not any(faults)


PROGRAM = SimpleNamespace(code=[SimpleNamespace(opcode="cvt.rn.bf16x2.f32")])
STATE: Any = SimpleNamespace(rounds=False, program=PROGRAM)


def test_other_numbers_are_the_same_but_for_rounding() -> None:
    """Without atomics on floats, and whether or not their type is known."""
    for one, other, dtypes in (
        (np.int32(819_652_826), np.int32(815_807_708), ()),
        (np.float32(5236.25), np.float32(5238.5), ("",)),  # as pairs of halves
        (np.float32(5236.25), np.float32(5236.251), ("float32", "")),
    ):
        left, right = (np.full(2, number).view(np.uint8) for number in (one, other))
        for dtype in ("int32", "float32", ""):
            buffer = Buffer("", 0, 8, view=View((2,), (4,), dtype=dtype))
            assert experiment._rounded(left, right, STATE, buffer) == (dtype in dtypes)
