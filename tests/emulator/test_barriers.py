import numpy as np
import pytest
from ptx_harness import MINE, MINE_IN_GRID, out, run

from nvfp4.emulator import errors
from nvfp4.emulator.execution import schedule

SHARED = ".shared .align 16 .b8 s[4096];"


def test_divergent_branches_meet_again() -> None:
    body = f"""{MINE} and.b32 %r5, %r0, 3; mov.u32 %r6, 0;
    LOOP: setp.ge.u32 %p1, %r6, %r5; @%p1 bra DONE; add.u32 %r6, %r6, 1; bra LOOP;
    DONE: activemask.b32 %r7; st.global.u32 [%d0], %r7;"""
    a = out(32)
    report = run(body, a)
    assert (a == 0xFFFFFFFF).all()
    assert report.divergent_branches == 3


def test_each_thread_leaves_a_loop_in_its_own_time() -> None:
    body = f"""{MINE_IN_GRID} mov.u32 %r6, 0; mov.u32 %r7, 0;
    LOOP: setp.ge.u32 %p1, %r6, %r3; @%p1 bra DONE; add.u32 %r6, %r6, 1; add.u32 %r7, %r7, %r6;
    bra LOOP; DONE: st.global.u32 [%d0], %r7;"""
    a = out(96)
    run(body, a, grid=3)
    i = np.arange(96)
    assert (a == i * (i + 1) // 2).all()


def test_a_deadlock_names_the_barrier_and_the_threads() -> None:
    body = "setp.lt.u32 %p1, %r0, 40; @%p1 bar.sync 0; @%p1 bra E; W: bar.sync 1, 128; E:"
    with pytest.raises(errors.Deadlock) as caught:
        run(body, out(128), block=64)
    text = str(caught.value)
    assert "barrier 0 (40 of" in text
    assert "threads 0-39" in text
    assert "barrier 1 (24 of 128 threads)" in text
    assert "threads 40-63" in text


def test_a_barrier_in_divergent_code_that_all_reach_is_fine() -> None:
    body = f"""{MINE} setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; bra E; A: bar.sync 0;
    E: st.global.u32 [%d0], 5;"""
    a = out(64)
    run(body, a, block=64)
    assert (a == 5).all()


def test_a_barrier_does_not_wait_for_exited_threads() -> None:
    body = f"setp.ge.u32 %p1, %r0, 32; @%p1 exit; bar.sync 0; {MINE} st.global.u32 [%d0], 5;"
    a = out(64)
    run(body, a, block=64)
    assert a[:32].tolist() == [5] * 32


def test_threads_that_exit_late_open_the_barrier() -> None:
    body = f"""setp.ge.u32 %p1, %r0, 32; @%p1 bra LATE; bar.sync 0; {MINE} st.global.u32 [%d0], 5;
    ret; LATE: nanosleep.u32 100;"""
    a = out(64)
    run(body, a, block=64)
    assert a[:32].tolist() == [5] * 32


PRODUCER_CONSUMER = f"""
mov.u32 %r10, s; shl.b32 %r11, %r0, 2; setp.ge.u32 %p1, %r0, 32; @%p1 bra READ;
add.u32 %r12, %r10, %r11; st.shared.u32 [%r12], %r0; %ARRIVE% bra E;
READ: %WAIT% sub.u32 %r11, %r11, 128; add.u32 %r12, %r10, %r11; ld.shared.u32 %r5, [%r12];
{MINE} st.global.u32 [%d0], %r5; E:
"""


def test_arrive_and_sync_of_a_named_barrier() -> None:
    a = out(64)
    body = PRODUCER_CONSUMER.replace("%ARRIVE%", "bar.arrive 2, 64;")
    run(body.replace("%WAIT%", "bar.sync 2, 64;"), a, block=64, before=SHARED)
    assert a[32:].tolist() == list(range(32))


def test_a_consumer_that_only_arrives_races() -> None:
    body = PRODUCER_CONSUMER.replace("%ARRIVE%", "bar.arrive 2, 64;")
    with pytest.raises((errors.SharedRace, errors.UninitialisedShared)):
        run(body.replace("%WAIT%", "bar.arrive 2, 64;"), out(64), block=64, before=SHARED)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("bar.red.popc.u32 %r5, 0, %p1;", 7),
        ("barrier.cta.red.popc.aligned.u32 %r5, 0, 64, !%p1;", 57),
        ("bar.red.and.pred %p2, 0, %p1; selp.u32 %r5, 1, 0, %p2;", 0),
        ("bar.red.or.pred %p2, 0, %p1; selp.u32 %r5, 1, 0, %p2;", 1),
        ("bar.red.and.pred %p2, 0, %p3; selp.u32 %r5, 1, 0, %p2;", 1),
    ],
)
def test_a_reduction_barrier_tells_everybody_the_outcome(instruction: str, expected: int) -> None:
    a = out(64)
    body = f"""setp.lt.u32 %p1, %r0, 7; setp.lt.u32 %p3, %r0, 1000; {instruction}
    {MINE} st.global.u32 [%d0], %r5;"""
    run(body, a, block=64)
    assert (a == expected).all()


def test_two_counts_for_one_barrier_are_an_error() -> None:
    body = """setp.lt.u32 %p1, %r0, 32; selp.u32 %r5, 64, 96, %p1; @%p1 bar.sync 1, %r5;
    @!%p1 bar.sync 1, %r5;"""
    with pytest.raises(errors.BarrierMisuse, match="barrier 1 is given a count of 96"):
        run(body, out(128), block=64)


def test_a_barrier_count_is_a_multiple_of_32_and_there_are_16_barriers() -> None:
    with pytest.raises(errors.BarrierMisuse, match="multiple of 32"):
        run("bar.sync 1, 48;", out(128), block=96)
    with pytest.raises(errors.BarrierMisuse, match="0 to 15"):
        run("mov.u32 %r5, 16; bar.sync %r5;", out(128))


def test_a_ragged_block_passes_its_barriers() -> None:
    a = out(48)
    run(f"bar.sync 0; bar.sync 1, 64; {MINE} st.global.u32 [%d0], 3;", a, block=48)
    assert (a == 3).all()


def test_the_cluster_barrier_of_one_cta() -> None:
    a = out(64)
    body = f"""mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
    st.shared.u32 [%r12], %r0; barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    xor.b32 %r11, %r11, 128; add.u32 %r12, %r10, %r11; ld.shared.u32 %r5, [%r12];
    {MINE} st.global.u32 [%d0], %r5;"""
    run(body, a, block=64, before=SHARED)
    assert a.tolist() == [i ^ 32 for i in range(64)]


def test_a_spin_on_memory_lets_the_others_go_on() -> None:
    """Warp 0 spins on a flag that warp 1 sets further down in the program."""
    body = f"""setp.ge.u32 %p1, %r0, 32; @%p1 bra SET;
    SPIN: ld.acquire.gpu.global.u32 %r5, [%q1]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN;
    {MINE} st.global.u32 [%d0], %r5; ret;
    SET: st.release.gpu.global.u32 [%q1], 9;"""
    a, flag = out(64), out(1)
    run(body, a, flag, block=64)
    assert (a[:32] == 9).all()


def test_the_holder_of_a_lock_gets_its_turn() -> None:
    """32 CTAs add 1 to a word, one after the other; a lock guards it."""
    body = """setp.ne.u32 %p1, %r0, 0; @%p1 bra E; mov.u32 %r9, 0;
    LOCK: atom.acquire.gpu.global.cas.b32 %r5, [%q1], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra LOCK;
    WORK: ld.volatile.global.u32 %r6, [%q0]; add.u32 %r6, %r6, 1; st.volatile.global.u32 [%q0], %r6;
    add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 20; @%p3 bra WORK;
    atom.release.gpu.global.exch.b32 %r7, [%q1], 0; E:"""
    total, lock = out(1), out(1)
    report = run(body, total, lock, grid=32)
    assert total.tolist() == [640]
    assert sum(report.warp_instructions.values()) < 40_000


# Every CTA adds 1 to a counter and waits until all have.
meeting = """setp.ne.u32 %p1, %r0, 0; @%p1 bra W; mov.u32 %r5, %nctaid.x;
red.release.gpu.global.add.u32 [%q1], 1;
SPIN: ld.acquire.gpu.global.u32 %r6, [%q1]; setp.lt.u32 %p2, %r6, %r5; @%p2 bra SPIN;
W: bar.sync 0; mov.u32 %r1, %ctaid.x; mul.wide.u32 %d0, %r1, 4; add.u64 %d0, %q0, %d0;
ld.global.u32 %r6, [%q1]; st.global.u32 [%d0], %r6;"""


@pytest.mark.parametrize("block", [256, 1024])
def test_as_many_ctas_as_a_device_holds_may_wait_for_each_other(block: int) -> None:
    a, count = out(148), out(1)
    run(meeting, a, count, block=block, grid=148)
    assert (a == 148).all()


def test_more_ctas_may_not() -> None:
    a, count = out(2 * 148 + 1), out(1)
    with pytest.raises(errors.RunawayKernel, match="296 of 297 CTAs have started"):
        run(meeting, a, count, block=1024, grid=297)


def test_a_loop_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "STEP_LIMIT", 3000)
    with pytest.raises(errors.RunawayKernel, match="still running") as stopped:
        run("L: bra L;", out(128))
    assert set(stopped.value.arguments) == {"seconds", "cpu_s"}


def test_trap_and_a_failed_assertion_end_the_launch() -> None:
    with pytest.raises(errors.DeviceTrap, match="trap") as caught:
        run("setp.eq.u32 %p1, %r0, 9; @%p1 trap;", out(128))
    assert "thread (9, 0, 0)" in str(caught.value)


@pytest.mark.parametrize(
    ("block", "grid", "words"),
    [((1025, 1, 1), (1, 1, 1), "1024"), ((32, 1, 1), (0, 1, 1), "positive")],
)
def test_a_launch_that_no_device_takes(block: tuple, grid: tuple, words: str) -> None:
    with pytest.raises(errors.LaunchError, match=words):
        run("", out(128), block=block, grid=grid)


def test_special_registers_in_three_dimensions() -> None:
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.y;
    mov.u32 %r5, %ntid.x; mov.u32 %r6, %ntid.y; mov.u32 %r7, %nctaid.x; mov.u32 %r8, %ctaid.x;
    mad.lo.u32 %r9, %r3, %r6, %r2; mad.lo.u32 %r9, %r9, %r5, %r1;
    mad.lo.u32 %r10, %r4, %r7, %r8; mad.lo.u32 %r10, %r10, 64, %r9;
    mul.wide.u32 %d0, %r10, 4; add.u64 %d0, %q0, %d0;
    mov.u32 %r11, %laneid; mov.u32 %r12, %warpid; mad.lo.u32 %r12, %r12, 32, %r11;
    sub.u32 %r12, %r9, %r12; mul.lo.u32 %r10, %r10, 3; add.u32 %r10, %r10, %r12;
    st.global.u32 [%d0], %r10;"""
    a = out(64 * 6)
    run(body, a, grid=(2, 3, 1), block=(8, 4, 2))
    assert (a == np.arange(64 * 6) * 3).all()


@pytest.mark.parametrize(("grid", "block"), [((20, 20, 1), 32), ((150, 1, 1), 1024)])
def test_neighbouring_ctas_are_on_different_multiprocessors_of_148(
    grid: tuple[int, int, int], block: int
) -> None:
    """150 CTAs of 1024 threads run in several batches."""
    ctas = grid[0] * grid[1]
    smid, nsmid = np.zeros(ctas, np.uint32), np.zeros(ctas, np.uint32)
    body = """setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;
    mov.u32 %r3, %nctaid.x; mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %d0, %r4, 4;
    add.u64 %d1, %q1, %d0; add.u64 %d0, %q0, %d0; mov.u32 %r5, %smid; mov.u32 %r6, %nsmid;
    @%p1 st.global.u32 [%d0], %r5; @%p1 st.global.u32 [%d1], %r6;"""
    run(body, smid, nsmid, grid=grid, block=block)
    assert smid.tolist() == [cta // 2 % 148 for cta in range(ctas)]
    assert (nsmid == 148).all()
