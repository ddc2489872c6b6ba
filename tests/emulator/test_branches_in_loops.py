"""Loops whose threads part in every round and meet again: what they compute, count and cost."""

import numpy as np
import pytest
from ptx_harness import MINE_IN_GRID, Array, run

from nvfp4.emulator import LaunchReport, errors
from nvfp4.emulator.execution import schedule, standstill

ROUNDS = 400  # more blocks than a turn has


BY_THREAD = "add.u32 %r9, %r0, %r7; and.b32 %r9, %r9, 1; setp.eq.u32 %p1, %r9, 0;"
BY_CTA = "add.u32 %r9, %r1, %r7; and.b32 %r9, %r9, 1; setp.eq.u32 %p1, %r9, 0;"
TWO_WAYS = """
    @%p1 bra EVEN;
    add.u32 %r8, %r8, 3;
    bra.uni MEET;
    EVEN: add.u32 %r8, %r8, %r0;
    MEET:"""
ONE_WAY = "@%p1 bra MEET; add.u32 %r8, %r8, 3; MEET:"
LOADED = "ld.global.u32 %r10, [%q1]; add.u32 %r8, %r8, %r10;"
THROUGH_MEMORY = TWO_WAYS.replace("add.u32 %r8, %r8, 3;", LOADED)


def launch(condition: str, ways: str, partial: bool = False) -> tuple[Array, LaunchReport]:
    """Two CTAs of 64 threads, which add up in a loop. partial: but all those of odd numbers have
    exited. condition: sets %p1 from %r0 (thread), %r1 (CTA), %r7, the round. ways: change the sum,
    %r8, and end with the label MEET."""
    out = np.zeros((2, 64), np.uint32)
    body = f"""
    {MINE_IN_GRID} mov.u32 %r7, 0; mov.u32 %r8, 0;
    LOOP: {condition}
    {ways}
    add.u32 %r7, %r7, 1;
    setp.lt.u32 %p2, %r7, {ROUNDS}; @%p2 bra LOOP;
    st.global.u32 [%d0], %r8;"""
    if partial:
        body = "and.b32 %r20, %r0, 1; setp.eq.u32 %p9, %r20, 1; @%p9 exit;" + body
    return out, run(body, out, np.array([3], np.uint32), grid=2, block=64)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("condition", [BY_THREAD, BY_CTA])
@pytest.mark.parametrize("ways", [TWO_WAYS, ONE_WAY, THROUGH_MEMORY])
def test_each_thread_takes_its_own_way(condition: str, ways: str, partial: bool) -> None:
    out, _ = launch(condition, ways, partial)
    thread = np.broadcast_to(np.arange(64, dtype=np.uint32), (2, 64))
    right = ROUNDS // 2 * (np.uint32(3) + (0 if ways is ONE_WAY else thread))
    if partial:
        right = np.where(thread % 2 == 0, right, 0)
    assert (out == right).all()


@pytest.mark.parametrize(
    ("ways", "inside"), [(TWO_WAYS, 2 + 1), (ONE_WAY, 1), (THROUGH_MEMORY, 3 + 1)]
)
def test_each_warp_counts_each_round_once(ways: str, inside: int) -> None:
    _, report = launch(BY_THREAD, ways)
    warps, round_without_ways, after = 4, 3 + 1 + 3, 2
    in_loop_and_after = warps * (ROUNDS * (round_without_ways + inside) + after)
    before = report.warp_instructions_total - in_loop_and_after
    assert 0 < before < warps * 20  # what comes before the loop
    assert report.divergent_branches == warps * ROUNDS


def test_ctas_that_differ_as_a_whole_execute_one_way_each() -> None:
    _, report = launch(BY_CTA, TWO_WAYS)
    assert report.divergent_branches == 0
    _, other = launch(BY_THREAD, TWO_WAYS)
    # In a round, a warp of them executes two instructions of the one way, or one of the other.
    spared = 4 * ROUNDS // 2 * (1 + 2)
    assert other.warp_instructions_total - report.warp_instructions_total == spared


def test_short_ways_do_not_divide_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = []
    whole = schedule.Scheduler._diverge

    def count(self: schedule.Scheduler, *arguments: object) -> int | None:
        divided.append(whole(self, *arguments))  # type: ignore[arg-type]
        return divided[-1]

    monkeypatch.setattr(schedule.Scheduler, "_diverge", count)
    launch(BY_THREAD, TWO_WAYS)
    launch(BY_THREAD, THROUGH_MEMORY)
    assert None not in divided
    launch(BY_THREAD, "@%p1 bra MEET; bra.uni NEXT; NEXT: add.u32 %r8, %r8, 3; MEET:")
    assert divided.count(None) == ROUNDS


def test_a_long_loop_without_stores_keeps_few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    original = standstill._State.__init__

    def count(self: standstill._State, *arguments: object) -> None:
        kept.append(arguments)
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(standstill._State, "__init__", count)
    launch(BY_THREAD, THROUGH_MEMORY)
    loop = "mov.u32 %r7, 0; L: add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 20000; @%p1 bra L;"
    run(loop, np.zeros(1))
    assert 0 < len(kept) < 30  # of some 5,000 looks


@pytest.mark.parametrize("period", [1, 3, 64, pytest.param(250, marks=pytest.mark.corpus)])
def test_a_loop_that_comes_back_to_the_same_values_never_ends(period: int) -> None:
    body = f"""mov.u32 %r7, 0;
    L: add.u32 %r7, %r7, 1; setp.eq.u32 %p1, %r7, {period}; @%p1 mov.u32 %r7, 0;
    setp.eq.u32 %p2, %r7, -1; @!%p2 bra L;"""
    with pytest.raises(errors.RunawayKernel, match="never leaves this loop"):
        run(body, np.zeros(1))
