"""Kernels that a model which looks at samples or at code alone takes for fast, or cannot sample."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from model_kernels import MISSING, count
from twins import HEADER, kernel, loop, of_warps

from nvfp4.model import machine, prediction
from nvfp4.model.assembly import assembled
from nvfp4.model.atomics import atomics_ns
from nvfp4.model.gpu import NoPrediction
from nvfp4.model.multiprocessor import simulate
from nvfp4.model.prediction import GPUS, Counted, Host, predict

pytestmark = pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")

CTAS, THREADS, TURNS = 296, 64, 200

TURN = """
    mad.lo.u32 %r10, %r99, 4096, %r9;
    and.b32 %r10, %r10, 4194300;
    cvt.u64.u32 %d2, %r10;
    add.u64 %d3, %d0, %d2;
    ld.global.u32 %r11, [%d3];
    mad.lo.u32 %r100, %r100, %r11, %r99;
    mad.lo.u32 %r100, %r100, %r100, %r11;
"""
BEGIN = "mul.lo.u32 %r9, %r3, 4;\nmov.u32 %r100, 1;\n"
WORK = BEGIN + loop(TURNS, TURN)


@cache
def honest() -> Counted:
    """The work of every kernel here."""
    return count(kernel(WORK), CTAS, THREADS)


@cache
def read_again(ctas: int) -> float:
    """The time of so many thread blocks that read the same MiB four times."""
    text = LINES + READS.replace("128;", "512;").replace("%r12;", f"{MASK};")
    return us(count(kernel(text), ctas, 512))


def us(*launches: Counted) -> float:
    return predict(GPUS["B200"], list(launches), clean=True).us


CALLED = (
    HEADER
    + f"""
.func (.param .b32 result) work(.param .b64 data, .param .b32 thread)
{{
.reg .pred %p<8>; .reg .b32 %r<128>; .reg .b64 %d<8>;
ld.param.u64 %d0, [data];
ld.param.u32 %r3, [thread];
{WORK}
st.param.b32 [result], %r100;
ret;
}}
"""
)
CALL = """
{
.param .b64 data; .param .b32 thread; .param .b32 result;
st.param.b64 [data], %d0;
st.param.b32 [thread], %r3;
call (result), work, (data, thread);
ld.param.b32 %r100, [result];
}
"""

DEAD_PRODUCT = f"""
{WORK}
setp.eq.u32 %p1, %r100, 77;
setp.ne.u32 %p2, %r2, {THREADS};
@!%p2 bra SKIPPED;
cvt.u64.u32 %d4, %r100;
tcgen05.mma.cta_group::1.kind::f16 [%r100], %d4, %d4, %r100, %p1;
SKIPPED:
"""

DRAW = """
setp.ne.u32 %p1, %r0, 0;
@%p1 bra WAIT;
atom.global.add.u32 %r7, [counter], 1;
st.shared.u32 [ticket], %r7;
WAIT:
bar.sync 0;
ld.shared.u32 %r7, [ticket];
"""
TICKETS = f"""
{DRAW}
mov.u32 %r100, 0;
setp.lt.u32 %p2, %r7, 4;
@%p2 bra END;
{WORK}
END:
"""
TICKET = ".global .u32 counter;\n.shared .align 4 .u32 ticket;"

LINES = "mul.lo.u32 %r9, %r0, 16;\nmov.u32 %r100, 1;\nmov.u32 %r12, 1048560;\n"
READS = loop(
    128,
    """
    mad.lo.u32 %r10, %r99, 8192, %r9;
    and.b32 %r10, %r10, %r12;
    cvt.u64.u32 %d2, %r10;
    add.u64 %d3, %d0, %d2;
    ld.global.v4.u32 {%r11, %r13, %r14, %r15}, [%d3];
    add.u32 %r11, %r11, %r13;
    add.u32 %r14, %r14, %r15;
    add.u32 %r11, %r11, %r14;
    add.u32 %r100, %r100, %r11;
    """,
)
"""Every CTA reads the same MiB."""
MASK = (1 << 20) - 16

IDLE = f"""
shr.u32 %r8, %r0, 5;
mov.u32 %r100, 0;
setp.ne.u32 %p1, %r8, 0;
@%p1 bra END;
mad.lo.u32 %r9, %r1, 32, %r0;
mul.lo.u32 %r9, %r9, 4;
mov.u32 %r100, 1;
{loop(16 * TURNS, TURN)}
END:
"""

COPIED = """
mad.lo.u32 %r10, %r99, 303104, %r9;
and.b32 %r10, %r10, 4194288;
cvt.u64.u32 %d2, %r10;
add.u64 %d3, %d0, %d2;
cp.async.cg.shared.global [%r8], [%d3], 16;
cp.async.commit_group;
cp.async.wait_group 0;
ld.shared.u32 %r11, [%r8];
add.u32 %r100, %r100, %r11;
"""
COPIES = f"""
mov.u32 %r8, buffer;
mad.lo.u32 %r8, %r0, 16, %r8;
mul.lo.u32 %r9, %r3, 16;
mov.u32 %r100, 0;
{loop(13, COPIED)}
"""

WAITING = f"""
setp.ne.u32 %p1, %r1, 0;
mov.u64 %d40, flag;
@!%p1 bra FIRST;
POLL:
ld.acquire.gpu.u32 %r8, [%d40];
setp.eq.u32 %p2, %r8, 0;
@%p2 bra POLL;
FIRST:
{WORK.replace("ld.global", "ld")}
st.release.gpu.u32 [%d40], 1;
"""

TIMES_OUT = """
mov.u32 %r8, ticket; setp.ne.u32 %p1, %r0, 0; @!%p1 mbarrier.init.shared.b64 [%r8], 1; bar.sync 0;
mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0, 1000000; mov.u32 %r100, 1;
"""

RING = f"""
shr.u32 %r8, %r0, 5; setp.ne.u32 %p1, %r0, 0; @!%p1 st.volatile.shared.u32 [ticket], 0; bar.sync 0;
POLL: ld.volatile.shared.u32 %r7, [ticket]; setp.ne.u32 %p2, %r7, %r8; @%p2 bra POLL;
{WORK}
add.u32 %r8, %r8, 1; st.volatile.shared.u32 [ticket], %r8;
"""

EXCHANGE = kernel(
    """
    mov.u32 %r8, room; mul.wide.u32 %d2, %r3, 4; add.u64 %d3, %d0, %d2; ld.global.u32 %r9, [%d3];
    st.shared.u32 [%r8], %r9; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
    mapa.shared::cluster.u32 %r11, %r8, %r10; ld.shared::cluster.u32 %r100, [%r11];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    """,
    directives=".reqnctapercluster 2, 1, 1",
    before=".shared .align 4 .b8 room[4];",
)


HIDDEN = {
    "in a function that is called": CALLED + kernel(CALL).removeprefix(HEADER),
    "in one line of PTX, as inline assembly often is": kernel(" ".join(WORK.split("\n"))),
    "in front of a product that is never executed": kernel(DEAD_PRODUCT),
}


@pytest.mark.parametrize("where", HIDDEN)
def test_work_takes_as_long_wherever_it_stands(where: str) -> None:
    assert us(count(HIDDEN[where], CTAS, THREADS)) > 0.9 * us(honest())


def test_thread_blocks_whose_ticket_frees_them_of_work_are_no_sample() -> None:
    """Few CTAs alone would draw the first tickets, which the launch as a whole hands to others."""
    assert us(count(kernel(TICKETS, before=TICKET), CTAS, THREADS)) > 0.9 * us(honest())


def test_loads_that_the_first_tickets_find_in_l1_take_as_long_as_those_of_the_rest() -> None:
    begin, first = DRAW + LINES, "setp.lt.u32 %p2, %r7, 4;\n@%p2 mov.u32 %r12, 1008;\n"
    texts = begin + READS, begin + first + READS, begin + READS.replace("%r12;", "1008;")
    # Else several of the first tickets are drawn, once in thirty times.
    with patch("nvfp4.emulator.work.secrets.SystemRandom", lambda: Random(1)):
        of_all, of_most, of_none = (us(count(kernel(t, before=TICKET), 296, 512)) for t in texts)
    assert of_most > 0.9 * of_all > 1.5 * of_none


def test_what_l1_cannot_hold_comes_from_l2_each_time() -> None:
    """1 MiB that every thread block reads four times, also by loads that pass L1."""
    past = READS.replace("128;", "512;").replace("%r12;", f"{MASK};")
    past = past.replace("ld.global", "ld.global.cg")
    assert read_again(148) > 0.9 * us(count(kernel(LINES + past), 148, 512))


def test_what_a_fence_drops_from_l1_comes_from_l2_again() -> None:
    reads = READS.replace("%r12;", "8176;")
    by_l2 = us(count(kernel(LINES + reads.replace("ld.global", "ld.global.cg")), 148, 512))
    for fence in ("fence.acq_rel.gpu;", "barrier.cluster.arrive; barrier.cluster.wait;"):
        behind = reads.replace("add.u32 %r10", f"{fence} add.u32 %r10", 1)
        assert us(count(kernel(LINES + behind), 148, 512)) > 0.9 * by_l2


@pytest.mark.parametrize("every", [8, 296])
def test_there_is_no_time_where_few_blocks_read_what_the_others_find_in_l1(every: int) -> None:
    lone = f"rem.u32 %r8, %r1, {every};\nsetp.ne.u32 %p1, %r8, 5;\n@%p1 mov.u32 %r12, 1008;\n"
    with pytest.raises(NoPrediction, match="what the others find in L1"):
        us(count(kernel(LINES + lone + READS), 296, 512))


def test_a_warp_that_works_alone_takes_as_long_beside_idle_ones() -> None:
    alone = count(kernel(BEGIN + loop(16 * TURNS, TURN)), 148, 32)
    assert us(count(kernel(IDLE), 148, 1024)) > 0.9 * us(alone)


def test_memory_delivers_two_sectors_for_one_and_takes_longer_for_lone_pairs() -> None:
    begin = "cvt.u64.u32 %d2, %r3; mad.lo.u64 %d3, %d2, {}, %d0; ld.global.u32 %r100, [%d3];"
    steps = {32: 1.0, 64: 2.0, 256: 2.9}
    runs = [count(kernel(begin.format(step)), 64, 256) for step in steps]
    found = [(9 * each.work.spread - 1) / 8 for each in runs]  # what is stored lies together
    assert found == pytest.approx([*steps.values()], rel=0.05)


def test_memory_takes_as_long_for_what_is_stored_as_measured() -> None:
    """8 MiB after the contest's flush on an H100, 2026-11-28; a quarter is stored again here."""
    place = "mul.wide.u32 %d2, %r3, 16; add.u64 %d3, %d1, %d2;"
    run = count(
        kernel(f"{place} st.global.v4.u32 [%d3], {{%r0, %r1, %r2, %r3}};"), 2048, 256, words=4
    )
    assert predict(GPUS["H100"], [run]).us == pytest.approx(5.6 + 0.5, rel=0.15)


def test_lanes_of_a_whole_warp_add_theirs_up_before_an_atomic_that_returns() -> None:
    """Six shuffles one after the other, behind a branch that the PTX does not have."""
    room, begin = ".shared .align 4 .b8 s[512];", "add.u32 %r100, %r0, 1;\nmov.u32 %r9, s;\n"
    turn = loop(100, "atom.shared.add.u32 %r11, [%r9], %r100;\nadd.u32 %r100, %r11, 1;")
    texts = (begin + own + turn for own in ("", "mad.lo.u32 %r9, %r0, 4, %r9;\n"))
    of_all, own = (us(count(kernel(text, before=room), 148, 128)) for text in texts)
    assert of_all > 2 * own


def test_comments_do_not_hide_work_from_the_assembler() -> None:
    """Lines of debugging information are taken out, of which a comment may hold one half."""
    more = 40 * "mad.lo.u32 %r100, %r100, %r11, %r99;\n"
    hidden = (
        f"{TURN}// .section a\n {{ }} {{\n add.u32 %r9, %r9, 0; /* .section a {{ */ }} {more}/**/"
    )
    texts = (kernel(BEGIN + loop(TURNS, turn)) for turn in (TURN + more, hidden))
    honest, other = (us(count(text, CTAS, THREADS)) for text in texts)
    assert other > 0.9 * honest


def test_memory_that_several_launches_read_takes_as_long_as_that_of_one() -> None:
    reads = honest().read_bytes
    split = [honest()] * 4
    least_us = 4 * reads / max(gbps for _, gbps in GPUS["B200"].clean) / 1e3
    assert us(*split) > max(least_us, 3 * (us(honest()) - GPUS["B200"].launch_us))


def test_copies_that_host_code_asks_for_take_time_beside_the_kernels() -> None:
    gpu, nbytes = GPUS["B200"], 64 << 20
    least_us = 2 * nbytes / max(gbps for _, gbps in gpu.clean) / 1e3 + gpu.kernel_gap_us
    assert predict(gpu, [honest()], True, Host([nbytes])).us > us(honest()) + 0.99 * least_us


def test_copies_into_shared_memory_fetch_what_was_counted() -> None:
    """ptxas puts loads of shared memory that are never executed in front of such copies."""
    launch = count(
        kernel(COPIES, before=f".shared .align 16 .b8 buffer[{16 * THREADS}];"), CTAS, THREADS
    )
    code = assembled(launch.ptx, launch.kernel, "sm_100a")
    assert any(each.text.startswith("@!PT LDS") for each in code.instructions)
    found: list[Any] = []

    def simulated(*given: Any) -> Any:
        found.append(simulate(*given))
        return found[-1]

    with patch.object(prediction, "simulate", simulated):
        us(launch)
    assert found[0][3] == pytest.approx(launch.read_bytes / 148, rel=0.03)


def test_a_kernel_of_clusters_has_a_time_and_what_it_reads() -> None:
    counted = count(EXCHANGE, 296, 32)
    assert any(asked.fresh for asked in counted.work.asked.values())
    assert 3.5 < predict(GPUS["B200"], [counted]).us < 10


NUMBERS = ", ".join(str(7 * number % 1021) for number in range(128))
TABLE = f".const .align 4 .b32 table[128] = {{{NUMBERS}}};"
LOOKED_UP = loop(
    TURNS,
    """
    and.b32 %r10, %r9, 127; mul.wide.u32 %d2, %r10, 4; add.u64 %d3, %d5, %d2;
    ld.const.u32 %r11, [%d3]; add.u32 %r9, %r9, 77; add.u32 %r100, %r100, %r11;
    """,
)


WHERE = {
    "const": (HEADER, HEADER + TABLE),
    "param": ("64 c)", "64 c, .param .align 4 .b8 table[4096])"),
    "local": ("mov.u64 %d5", ".local .align 4 .b8 table[512]; mov.u64 %d5"),
}


@pytest.mark.parametrize("space", WHERE)
def test_what_each_thread_reads_elsewhere_comes_one_after_the_other(space: str) -> None:
    def taken(first: str) -> float:
        text = kernel(f"mov.u64 %d5, table; mov.u32 %r9, {first};{LOOKED_UP}")
        text = text.replace("ld.const", f"ld.{space}").replace(*WHERE[space])
        return us(count(text, CTAS, 4 * THREADS, *[bytes(4096)] * (space == "param")))

    assert taken("%r3") > 1.3 * taken("%r1")


OWN = "mul.wide.u32 %d2, %r3, 16; add.u64 %d3, %d1, %d2; mov.u32 %r100, 1; mul.lo.u32 %r9, %r0, 16;"
AROUND = """
and.b32 %r10, %r99, 7; mad.lo.u32 %r10, %r10, 8192, %r9; cvt.u64.u32 %d2, %r10;
add.u64 %d3, %d0, %d2; LOAD {%r11, %r12, %r13, %r14}, [%d3]; add.u32 %r11, %r11, %r12;
add.u32 %r13, %r13, %r14; add.u32 %r100, %r100, %r11; add.u32 %r100, %r100, %r13;
"""
PAST_L1 = [f"ld.{how}.v4.u32" for how in ("global.cg", "volatile.global", "global.L1::no_allocate")]
ROOM = ".shared .align 128 .b8 room[8192];"
BULK = """
mov.u32 %r20, room; mad.lo.u32 %r21, %r0, 16, %r20; st.shared.u32 [%r21], %r0;
fence.proxy.async; bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra END; and.b32 %r8, %r1, 1;
mul.lo.u32 %r8, %r8, 8192; cvt.u64.u32 %d4, %r8; add.u64 %d3, %d1, %d4; mov.u32 %r100, 1;
"""
COPY_OUT = (
    "cp.async.bulk.global.shared::cta.bulk_group [%d3], [%r20], 8192;"
    "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
)


@pytest.mark.parametrize(
    "body",
    [
        OWN + loop(250, "st.global.v4.u32 [%d3], {%r99, %r99, %r99, %r99};"),
        *(OWN + loop(250, AROUND.replace("LOAD", load)) for load in PAST_L1),
        BULK + loop(250, COPY_OUT) + "END:",
    ],
    ids=["stores", *PAST_L1, "bulk stores"],
)
def test_what_does_not_stay_in_l1_goes_to_l2_each_time(body: str) -> None:
    """An SM moves 8 KiB 250 times."""
    gpu, launch = GPUS["B200"], count(kernel(body, before=ROOM), 148, 512, words=4)
    assert us(launch) > 148 * 250 * 8192 / gpu.l2_gbps / 1e3


def test_thread_blocks_of_an_sm_fetch_for_themselves_what_l1_has_lost() -> None:
    assert read_again(4 * 148) > 1.7 * read_again(148)


def test_a_kernel_that_reads_a_clock_in_a_barrier_of_libcu_has_a_time() -> None:
    polled = """mov.u64 %d5, %globaltimer; mbarrier.init.shared.b64 [bar], 1;
mbarrier.arrive.shared.b64 %d6, [bar]; mbarrier.test_wait.shared.b64 %p1, [bar], %d6;
mov.u32 %r100, 1;"""
    assert us(count(kernel(polled, before=".shared .align 8 .b64 bar;"), 1, 1)) > 0


CHAIN = """
and.b32 %r10, %r9, 4194300; cvt.u64.u32 %d2, %r10; add.u64 %d3, %d0, %d2;
ld.global.cg.u32 %r11, [%d3]; mad.lo.u32 %r9, %r11, 77, %r9; add.u32 %r9, %r9, 4096;
"""
CHAINS = f"mul.lo.u32 %r9, %r1, 128; {loop(300, CHAIN)} mov.u32 %r100, %r9;"
ADDING = f"""
and.b32 %r8, %r1, 15; mov.u32 %r100, 1; setp.ne.u32 %p1, %r8, 1; @%p1 bra END;
{loop(1000, 4 * "mad.lo.u32 %r100, %r100, %r100, %r3;").replace("AGAIN", "ADD")}
END: @!%p1 bra STORE; {CHAINS} STORE:
"""
STRIDED = f"""
mov.u32 %r8, room; mad.lo.u32 %r8, %r0, 128, %r8; mov.u32 %r100, 1;
{loop(300, "cp.async.ca.shared.global [%r8], [%d0], 4; cp.async.commit_group;")}
cp.async.wait_all;
"""
CLUSTER_S = "red.shared::cluster.add.u32 [%r8], 1"
ARRIVALS = f"""
mov.u32 %r8, room; mad.lo.u32 %r8, %r0, 128, %r8; mov.u32 %r100, 1;
mbarrier.init.shared.b64 [%r8], 1; {loop(300, "mbarrier.arrive.shared.b64 _, [%r8];")}
"""


def test_thread_blocks_of_few_instructions_that_wait_take_as_long_beside_those_of_many() -> None:
    alone, beside = (us(count(kernel(body), 148, 32)) for body in (CHAINS, ADDING))
    assert beside > 0.9 * alone


MEETING = f"""
mov.f32 %f1, 0f3f800000; mov.u32 %r8, room; st.shared.f32 [%r8], %f1; bar.sync 0;
{loop(100, "red.shared.add.f32 [%r8], %f1;")} mov.u32 %r100, 1;
"""


MAXIMA = f"""
and.b32 %r8, %r0, 1; mov.u32 %r9, room; mad.lo.u32 %r8, %r8, 4, %r9; mov.u32 %r100, 1;
{loop(300, "atom.shared.max.u32 %r9, [%r8], %r1; add.u32 %r1, %r1, 77;")}
"""


WAITED = """
V: and.b32 %r12, %r99, 1; W: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], %r12; @!%p2 bra W;
ld.shared.u32 %r11, [%r9]; add.u32 %r100, %r100, %r11; bar.sync 0;
"""
COPYING = """
mov.u32 %r8, room; mad.lo.u32 %r9, %r0, 16, %r8; add.u32 %r9, %r9, 128; setp.ne.u32 %p1, %r0, 0;
mov.u32 %r100, 1; @!%p1 mbarrier.init.shared.b64 [%r8], COUNT; fence.proxy.async; bar.sync 0;
"""
PLACE = """
mad.lo.u32 %r10, %r99, 148, %r1; shl.b32 %r10, %r10, 10; mad.lo.u32 %r10, %r0, 16, %r10;
add.u32 %r10, %r10, %r100; and.b32 %r10, %r10, 4194288; cvt.u64.u32 %d2, %r10;
add.u64 %d3, %d0, %d2;
"""
ARRIVE = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];"
BY_THREADS = f"cp.async.cg.shared.global [%r9], [%d3], 16; {ARRIVE} {WAITED}"
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%d3], 512, [%r8];"
BY_ENGINE = f"""
@%p1 bra V; mbarrier.arrive.expect_tx.shared.b64 %d4, [%r8], 1024; add.u32 %r13, %r9, 512;
{COPY} {COPY.replace("%r9", "%r13")} {WAITED}
"""
MORE = """setp.ne.u32 %p3, %r0, 32; @%p3 bra WORK;
MORE: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 1; @!%p2 bra MORE; WORK:
"""
STORING = "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r9], 16;"
STORING += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
CHAINED = {
    "copies by threads": COPYING.replace("COUNT", "64") + loop(30, PLACE + BY_THREADS),
    "bulk stores": f"{COPYING.replace('COUNT', '1')} @%p1 bra END; {loop(30 * 9, STORING)} END:",
    "bulk copies": COPYING.replace("COUNT", "1") + loop(30, PLACE + BY_ENGINE),
}
CHAINED["polled"] = CHAINED["bulk copies"].replace("try_wait", "test_wait")
WAITED_AGAIN = CHAINED["bulk copies"].replace("bar.sync 0;", f"bar.sync 0; {MORE}", 1)


@pytest.mark.parametrize(
    ("body", "warps", "cycles"),
    [
        *((each, 2, 30 * 700) for each in CHAINED.values()),
        (STRIDED, 2, 300 * 64),
        (ARRIVALS, 2, 300 * 64),
        (ARRIVALS.replace("mbarrier.arrive.shared.b64 _, [%r8]", CLUSTER_S), 2, 300 * 64),
        (MEETING, 1, 100 * 32 * 46),
        (MAXIMA, 2, 300 * 2 * 16),
    ],
    ids=[
        *CHAINED,
        "copies to one bank",
        "mbarriers in one bank",
        "a cluster's",
        "a float",
        "two words",
    ],
)
def test_what_comes_one_after_the_other_takes_so_long(body: str, warps: int, cycles: int) -> None:
    launch = count(kernel(body, before=ROOM), 148, 32 * warps)
    assert us(launch) > cycles / GPUS["B200"].cycles_per_ns / 1e3


WIDE = "min.u64 %d20, %d20, %d21; xor.b64 %d20, %d20, 77; max.u64 %d21, %d21, %d20;"
FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
ON_REGISTERS = (
    f"{FP8} {{%f1, %f2, %f3, %f4}}, {{%r3, %r3, %r3, %r3}}, {{%r3, %r3}}, {{%f1, %f2, %f3, %f4}};"
)


@pytest.mark.parametrize("turn", [WIDE, ON_REGISTERS], ids=["64 bits", "FP8"])
def test_a_loop_takes_as_long_whatever_it_counts_by(turn: str) -> None:
    """There is nothing else in it that a compiler keeps, or adds up where it unrolls it."""
    counts = "ld.global.u32 %r20, [%d0]; add.u32 %r21, %r20, 1; mov.u32 %r22, 0;"
    begin = "cvt.u64.u32 %d20, %r3; add.u64 %d21, %d20, 5; cvt.rn.f32.u32 %f1, %r22;"
    again = f'AGAIN: .pragma "nounroll"; {turn} add.u32 %r22, %r22, STEP;'
    end = "setp.lt.u32 %p3, %r22, 600; @%p3 bra AGAIN; cvt.rzi.u32.f32 %r23, %f1;"
    sums = "cvt.u32.u64 %r100, %d20; add.u32 %r100, %r100, %r23; add.u32 %r100, %r100, %r21;"
    text = "\n".join((counts, begin, again, end, sums))
    known, unknown = (us(count(kernel(text.replace("STEP", by)), 148, 512)) for by in ("1", "%r21"))
    assert unknown == pytest.approx(known, rel=0.15)


BY_FOUR = f"""
{"".join(f"mov.u32 %r{31 + i}, {i};" for i in range(4))}
AGAIN: mul.lo.u32 %r40, %r100, %r3; add.u32 %r41, %r31, %r40;
{"".join(f"mad.lo.u32 %r{42 + i}, %r3, %r{41 + i}, %r{32 + i};" for i in range(3))}
mov.u32 %r100, %r44; {"".join(f"add.u32 %r{i}, %r{i}, 4;" for i in range(31, 35))}"""
IN_ONE = """mov.u32 %r31, 50334826; mov.u32 %r32, 392898758;
AGAIN: mul.lo.u32 %r40, %r100, 158984081; add.u32 %r100, %r32, %r40;
add.u32 %r31, %r31, 443233584; add.u32 %r32, %r32, 443233584;"""


@pytest.mark.parametrize("turn", [BY_FOUR, IN_ONE], ids=["one by one", "in one"])
def test_a_loop_of_unknown_length_takes_its_turns_once(turn: str) -> None:
    """nvcc has unrolled four turns of s = s * x + i, of which ptxas unrolls four more."""
    begin = "ld.global.u32 %r20, [%d0]; sub.u32 %r20, %r20, 2000; mov.u32 %r100, %r3;"
    again = "add.u32 %r20, %r20, 4; setp.ne.u32 %p3, %r20, 0; @%p3 bra AGAIN;"
    text = "\n".join((begin, turn, again, "add.u32 %r100, %r100, %r31;"))
    launch = predict(GPUS["B200"], [count(kernel(text), 148, 512)], clean=True).kernels[0]
    least, most = (1, 6) if turn is IN_ONE else (4, 16)
    assert least < launch.instructions / (148 * 16 * 500) < most


def test_lanes_whose_code_stands_behind_the_rest_meet_the_others_where_they_come_back() -> None:
    begin = "and.b32 %r9, %r0, 31; setp.lt.u32 %p1, %r9, 16; mov.u32 %r100, %r3;"
    few = loop(100, "mad.lo.u32 %r100, %r100, %r3, %r99;").replace("AGAIN", "FEW")
    rest, end = loop(100, "mad.lo.u32 %r100, %r3, %r100, %r0;"), "xor.b32 %r100, %r100, %r0;"
    near = f"{begin} @!%p1 bra HERE; {few} HERE: {rest} {end}"
    far = f"{begin} @%p1 bra FAR; HERE: {rest} bra.uni DONE; FAR: {few} bra HERE; DONE: {end}"
    assert us(count(kernel(far), 148, 256)) == pytest.approx(
        us(count(kernel(near), 148, 256)), 0.02
    )


FEWER = "and.b32 %r9, %r0, 31; setp.eq.u32 %p1, %r9, 0; mov.u32 %r100, 1; @%p1 bra END;"
GOT = "atom.global.add.u32 %r10, [%d3], %r0; add.u32 %r100, %r100, %r10;"


@pytest.mark.parametrize(
    ("where", "op", "ns"),
    [
        ("and.b32 %r8, %r0, 0;", "red.global.add.u32 [%d3], %r99;", 0.73),
        (f"{FEWER} and.b32 %r8, %r0, 0;", GOT, 31 * 0.73),
        ("and.b32 %r8, %r0, 0;", GOT, 0.73),
        ("and.b32 %r8, %r0, 1;", "atom.global.exch.b32 %r100, [%d3], %r99;", 16 * 0.73),
        ("and.b32 %r8, %r0, 0;", "red.global.add.f32 [%d3], %f1;", 32 * 1.76),
        ("and.b32 %r8, %r0, 31;", "red.global.add.f32 [%d3], %f1;", 4 * 0.59),
        ("and.b32 %r8, %r3, 511;", "red.global.add.f32 [%d3], %f1;", 0.59),
        ("mov.u32 %r8, %r3;", "red.global.add.f32 [%d3], %f1;", 4 * 0.018),
    ],
    ids=["voted", "31 lanes", "32 lanes", "two words", "a float", "a line", "lines", "own lines"],
)
def test_atomics_take_turns_as_measured(where: str, op: str, ns: float) -> None:
    """ns: for each warp of the GPU, on an H100 (`Gpu.atomic_ns` and its neighbours)."""
    body = f"{where} mul.wide.u32 %d2, %r8, 4; add.u64 %d3, %d0, %d2; mov.f32 %f1, 0f3f800000;"
    launch = count(kernel(f"{body} mov.u32 %r100, 1; {loop(5, op)} END:"), 64, 128)
    code = assembled(launch.ptx, launch.kernel, "sm_90a")
    taken = [atomics_ns(GPUS["H100"], code, launch.work, ctas) for ctas in (64, 128)]
    assert taken == pytest.approx([1280 * ns, 2560 * ns], rel=0.01)


@pytest.mark.parametrize(
    ("there", "elsewhere", "op"),
    [
        (128, 4, "st.shared.u32 [%r8], %r99;"),
        (128, 4, "@%p1 st.shared.u32 [%r8], %r99;"),
        (0, 4, "red.shared.add.f32 [%r8], %f1;"),
        (
            128,
            4,
            "ld.global.cg.u32 %r11, [%d3]; add.u64 %d3, %d3, 128; add.u32 %r100, %r100, %r11;",
        ),
        (4, 0, "st.local.u32 [%d5], %r99;"),
        (4096, 16, "cp.async.bulk.global.shared::cta.bulk_group [%d1], [room], %r6;"),
    ],
    ids=["banks", "a predicate", "a word", "lines", "local memory", "bulk copies"],
)
def test_there_is_no_time_where_one_block_s_accesses_take_longer(
    there: int, elsewhere: int, op: str
) -> None:
    """There, and elsewhere, so many bytes lie between neighbours' addresses."""
    body = f"""setp.eq.u32 %p1, %r1, 3; selp.u32 %r6, {there}, {elsewhere}, %p1;
    and.b32 %r5, %r0, 31; mul.lo.u32 %r7, %r5, %r6; mov.u32 %r8, room; add.u32 %r8, %r8, %r7;
    .local .align 4 .b8 own[512]; mov.u64 %d5, own; cvt.u64.u32 %d2, %r7; add.u64 %d3, %d0, %d2;
    add.u64 %d5, %d5, %d2; mov.f32 %f1, 0f3f800000; mov.u32 %r100, 1; {loop(20, op)}"""
    with pytest.raises(NoPrediction, match="few thread blocks take longer"):
        us(count(kernel(body, before=ROOM), 37, 64))


def test_there_is_no_time_where_the_accesses_of_half_of_the_blocks_take_longer() -> None:
    body = f"""and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 1; selp.u32 %r6, 128, 4, %p1;
    and.b32 %r5, %r0, 31; mul.lo.u32 %r7, %r5, %r6; mov.u32 %r8, room; add.u32 %r8, %r8, %r7;
    mov.u32 %r100, 1; {loop(200, "st.shared.u32 [%r8], %r99;")}"""
    with pytest.raises(NoPrediction, match="few thread blocks take longer"):
        us(count(kernel(body, before=ROOM), 37, 64))


SHORT = BEGIN + loop(40, TURN)
DONE = f"""
mov.u64 %d40, flag; mov.u32 %r100, 1; ld.volatile.global.u32 %r8, [%d40];
setp.ne.u32 %p1, %r8, 0; @%p1 bra END;
{SHORT} st.volatile.global.u32 [%d40], 1; END: min.u32 %r100, %r100, 1;
"""
TAKEN = f"""
mov.u32 %r20, room; mov.u32 %r22, 0; setp.eq.u32 %p1, %r0, 0; .reg .b128 %w;
@%p1 mbarrier.init.shared.b64 [%r20], 1; MORE: {SHORT}
@%p1 mbarrier.arrive.expect_tx.shared.b64 %d9, [%r20], 16;
@%p1 clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%r20+16], [%r20];
ASK: mbarrier.try_wait.parity.shared.b64 %p2, [%r20], %r22; @!%p2 bra ASK; xor.b32 %r22, %r22, 1;
ld.shared.b128 %w, [%r20+16]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %w;
@%p2 bra MORE;
"""


def test_thread_blocks_of_a_wave_do_not_find_their_work_done() -> None:
    flags = (kernel(DONE, before=f".global .u32 flag; // {ctas}") for ctas in (296, 592))
    one, two = (count(text, ctas, 1024) for text, ctas in zip(flags, (296, 592), strict=True))
    assert us(one) > 0.9 * us(count(kernel(SHORT), 296, 1024))
    weak = kernel(DONE.replace("volatile.", ""), before=".global .u32 flag;")
    for each in (two, count(weak, 592, 1024, check=True)):
        with pytest.raises(NoPrediction, match="others' work"):
            us(each)


def test_thread_blocks_that_take_over_others_take_as_long_as_these_would() -> None:
    taken, each = (us(count(kernel(text, before=ROOM), 4440, 32)) for text in (TAKEN, SHORT))
    assert 0.8 < taken / each < 2


def in_turn(wait: str) -> str:
    """Eight warps that work one after the other. wait: in front of the turn of a warp {n}."""
    turn = "{wait} setp.ne.u32 %p1, %r8, {n}; @%p1 bra S{n}; {work} S{n}:"
    works = (SHORT.replace("AGAIN", f"AGAIN{n}") for n in range(8))
    turns = (turn.format(wait=wait.format(n=n) * (n > 0), n=n, work=w) for n, w in enumerate(works))
    return f"shr.u32 %r8, %r0, 5; mov.u32 %r100, 1; {' '.join(turns)}"


def test_warps_take_turns_at_barriers_of_two_as_at_those_of_all() -> None:
    met = "sub.u32 %r7, {n}, %r8; setp.gt.u32 %p1, %r7, 1; @%p1 bra M{n}; bar.sync {n}, 64; M{n}:"
    by_all, by_two = (us(count(kernel(in_turn(w)), 8, 256)) for w in ("bar.sync 0;", met))
    assert by_two > 0.9 * by_all > 2 * us(count(kernel(SHORT), 8, 256))


MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
GENERIC = MEETING.replace("red.shared.add.f32 [%r8]", "atom.add.f32 %f2, [%d3]").replace(
    "bar.sync 0;", "cvt.u64.u32 %d2, %r8; cvta.shared.u64 %d3, %d2; bar.sync 0;"
)
ROLLED = f"""shr.u32 %r8, %r0, 5; mov.u32 %r100, 1; mov.u32 %r98, 0;
NEXT: .pragma "nounroll"; setp.ne.u32 %p1, %r8, %r98; @%p1 bra MEET; {SHORT}
MEET: bar.sync 0; add.u32 %r98, %r98, 1; setp.lt.u32 %p2, %r98, 8; @%p2 bra NEXT;
"""
CHAIN = """mad.lo.u32 %r10, {}, 4096, %r11; add.u32 %r10, %r10, 2097152; and.b32 %r10, %r10, %r7;
cvt.u64.u32 %d2, %r10;
add.u64 %d3, %d0, %d2; ld.global.u32 %r11, [%d3];
"""
MUCH = 300 * "mad.lo.u32 %r100, %r100, %r98, 7;\n"
DILUTED = f"""setp.eq.u32 %p1, %r1, 3; selp.u32 %r7, 4190208, 0, %p1; mov.u32 %r11, 0; {WORK}
{loop(400, CHAIN.format("%r99")).replace("AGAIN", "MORE")} add.u32 %r100, %r100, %r11;
"""
ENTERED = "".join(f"setp.eq.u32 %p1, %r8, {n}; @%p1 bra C{n}; " for n in range(1, 16))
CASES = " ".join(
    f"C{n}: xor.b32 %r100, %r100, {n * n}; mul.lo.u32 %r100, %r100, 3;" for n in range(15)
)
FALLING = f"""and.b32 %r8, %r0, 15; mov.u32 %r100, %r3; {ENTERED} {CASES}
C15: {SHORT.removeprefix(BEGIN).join(("mul.lo.u32 %r9, %r3, 4; ", ""))}
"""
LOCKS = "atom.global.cas.b32 %r9, [%d2], 0, 1", "atom.global.exch.b32 %r9, [%d2], 1"
LOCKED = """mov.u32 %r100, 1; setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mov.u64 %d2, flag;
POLL: {}; setp.ne.u32 %p2, %r9, 0; @%p2 bra POLL; atom.global.exch.b32 %r9, [%d2], 0; END:
"""
HANDED = f"""and.b32 %r13, %r99, 1;
W: mbarrier.try_wait.parity.shared.b64 %p3, [%r10], %r13; @!%p3 bra W;
{MUCH} mbarrier.arrive.shared.b64 _, [%r11];
"""


def body(name: str) -> str:
    """The statements of a file."""
    return Path(__file__).parent.joinpath("bodies", f"{name}.ptx").read_text()


FEW = "few thread blocks read from memory what the others find in L1"
UNTIMED = {
    "wait for each other by flags": [
        kernel(WAITING, before=".global .u32 flag;"),
        kernel(RING, before=".shared .align 4 .u32 ticket;"),
        kernel(TIMES_OUT, before=".shared .align 8 .b64 ticket;"),
        *(kernel(LOCKED.format(each), before=".global .u32 flag;") for each in LOCKS),
    ],
    "sleeps": [kernel(f"setp.eq.u32 %p1, %r3, %r3;\n{WORK}\n@ %p1 nanosleep.u32 1000000;")],
    "blocks of a cluster": [
        kernel(
            in_turn(MEET).replace("shr.u32 %r8, %r0, 5", "mov.u32 %r8, %cluster_ctarank"),
            ".reqnctapercluster 8, 1, 1",
        )
    ],
    "async": [kernel(body("st_async"), ".reqnctapercluster 2, 1, 1", ROOM)],
    "between shared": [kernel(body("between_shared"), ".reqnctapercluster 2, 1, 1", ROOM)],
    "generic": [kernel(each, before=ROOM) for each in (GENERIC, body("mixed"))],
    "reads a clock": [kernel(body("spinning"))],
    "turns at barriers": [
        kernel(ROLLED),
        kernel(ROLLED.replace("bar.sync 0;", "bar.sync 1, 256;")),
        kernel(ROLLED.replace("bar.sync 0;", MEET)),
        *(kernel(body("handed_on").format(loop(turns, HANDED)), before=ROOM) for turns in (4, 1)),
    ],
    "how the warps of a thread block wait": [kernel(WAITED_AGAIN, before=ROOM)],
    "turns to wait for memory": [
        kernel(body("in_turn").format(8 * each, MUCH))
        for each in (CHAIN.format("%r98"), "fence.acq_rel.gpu;\n", "membar.gl;\n")
    ],
    FEW: [kernel(DILUTED)],
    "one by one": [kernel(FALLING)],
}


@pytest.mark.parametrize(("why", "text"), [(why, each) for why in UNTIMED for each in UNTIMED[why]])
def test_there_is_no_time_for_what_cannot_be_foreseen(why: str, text: str) -> None:
    with pytest.raises(NoPrediction, match=why):
        us(count(text, 8, {"async": 1, "between shared": 1, FEW: 32}.get(why, 256)))


def test_there_is_no_time_where_loads_of_one_block_wait_in_many_statements() -> None:
    """Each statement has a line of its own, which the other thread blocks fetch once."""
    chain = "".join(CHAIN.format("%r99").replace("%d3]", f"%d3+{128 * n}]") for n in range(16))
    begin = "setp.eq.u32 %p1, %r1, 77; selp.u32 %r7, 4190208, 0, %p1; mov.u32 %r11, 0;"
    with pytest.raises(NoPrediction, match=FEW):
        us(count(kernel(f"{begin} {loop(25, chain)} mov.u32 %r100, %r11;"), 148, 32))


@pytest.mark.parametrize(
    ("waited", "host", "more_us"),
    [(3, Host(), 32.4), (0, Host(last_waits=1), 8.1), (0, Host(operators=4), 10)],
)
def test_what_the_host_does_at_either_end_takes_time(
    waited: int, host: Host, more_us: float
) -> None:
    found = predict(GPUS["B200"], [replace(honest(), waited=waited)], clean=True, host=host).us
    assert found - us(honest()) == pytest.approx(more_us, rel=0.1)


def test_ptxas_gets_the_submission_s_options() -> None:
    text = kernel(SHORT)
    slow, limited = (
        us(count(f"{text}\n// ptxas: {each}\n", 296, 64)) for each in ("-O0", "-maxrregcount=24 -v")
    )
    assert slow > 1.2 * us(count(text, 296, 64)) and limited > 0
    with pytest.raises(NoPrediction, match="with --anything is not known"):
        us(count(f"{text}\n// ptxas: --anything\n", 8, 32))


def test_there_is_no_time_where_launches_run_beside_others_or_the_gpu_sleeps() -> None:
    with pytest.raises(NoPrediction, match="k may run beside a launch in another stream"):
        us(honest(), replace(honest(), alongside=True))
    with pytest.raises(NoPrediction, match="_sleep is called"):
        predict(GPUS["B200"], [], host=Host(operators=None))


def test_what_compares_a_warp_s_lanes_takes_as_long_as_a_sum() -> None:
    compared = "{} %r100, %r100, -1; add.u32 %r100, %r100, %r0;"
    ops = ("redux.sync.add.u32", "redux.sync.max.s32", "match.any.sync.b32")
    added, *others = (us(count(of_warps(compared.format(op)), 148, 1024)) for op in ops)
    assert min(others) > 0.9 * added


@pytest.mark.parametrize(
    ("opcode", "words"), [("LDTM.x32", 32), ("STTM.16dp256bit.x2", 8), ("UTCCP.T.S", 32)]
)
def test_tensor_memory_moves_32_words_a_cycle(opcode: str, words: int) -> None:
    some = assembled(honest().ptx, "k", "sm_100a").instructions[0]
    assert machine._pipe(GPUS["B200"], replace(some, opcode=opcode))[1] == words
