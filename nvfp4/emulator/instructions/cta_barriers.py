"""bar and barrier: sync, arrive, red."""

import numpy as np

from nvfp4.emulator.errors import BarrierMisuse
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.ptx.program import Operand
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.cta_barrier import CtaBarrier

BARRIERS = 16


def _release_others(ex: Execution, following: int) -> None:
    """The group waits; lanes that do not take part go on."""
    if ex.guard is not None:
        ex.batch.signals.release(ex.group.lanes[~ex.mask()], following)


@instruction("bar", "barrier")
def bar(site: Site) -> Action:
    """bar{.cta}.{sync,arrive}{.aligned} a{, b}; bar.red.{popc,and,or}.type a{, b}, {!}c."""
    site.only("cta", "sync", "arrive", "red", "aligned", "popc", "and", "or", "u32", "pred")
    waits = "arrive" not in site.parts
    votes = "red" in site.parts
    site.takes(1 + votes, 2 + votes)
    operands: list[Operand] = list(site.operands)
    vote_source = [Source(operands.pop(), "pred")] if votes else []
    counted = len(operands) > 1
    if not waits and not counted:
        raise site.unsupported(f"{site.opcode} needs a thread count")
    sources = [*(Source(operand, "b32") for operand in operands), *vote_source]

    def run(ex: Execution, following: int, which: Array, *more: Array) -> int | None:
        batch, group, _ = ex
        count = more[0] if counted else None
        if not votes and _everybody(ex, which, count):
            batch.traffic.barriers += batch.grid.ctas
            if batch.shared.checked:
                batch.shared.clocks.meet_all()
            return following
        if waits:
            _release_others(ex, following)
        for number, positions in _numbers(site, ex, which):
            barrier = batch.barrier(number)
            lanes = group.lanes[positions]
            expected = np.zeros(lanes.size, np.int64)
            if count is not None:
                expected = group.spread(count)[positions].astype(np.int64)
            yes = group.spread(more[-1])[positions] if votes else None
            _check_arrival(site, ex, barrier, lanes, expected)
            barrier.arrive(lanes, expected, yes, waits)
            if waits:
                barrier.keep(lanes, following)
            batch.open_barrier(barrier)
        return None if waits else following

    return Action("barrier", sources, [], run, parks=True)


def _everybody(ex: Execution, which: Array, count: Array | None) -> bool:
    """Whether every thread of every CTA is here, so that nobody has to wait."""
    batch, group, guard = ex
    if not group.full or guard is not None or which.size != 1 or which.reshape(-1)[0] >= BARRIERS:
        return False
    if count is not None and (count.size != 1 or count.reshape(-1)[0] != batch.thread_count):
        return False
    return batch.barrier(int(which.reshape(-1)[0])).untouched()


def _numbers(site: Site, ex: Execution, which: Array) -> list[tuple[int, Array]]:
    """(barrier number, positions in the group) of the lanes that take part."""
    positions = ex.positions()
    flat = ex.group.spread(which)[positions]
    found = []
    for number in np.unique(flat).tolist():
        here = positions[flat == number]
        if number >= BARRIERS:
            site.lane(ex.batch, ex.group.lanes[here[0]]).fault(
                BarrierMisuse,
                f"barrier {number} does not exist: a CTA has barriers 0 to {BARRIERS - 1}",
            )
        found.append((number, here))
    return found


def _check_arrival(
    site: Site, ex: Execution, barrier: CtaBarrier, lanes: Array, expected: Array
) -> None:
    """Raise unless these lanes may arrive, each expecting so many threads (0: all)."""
    batch = ex.batch
    cta, thread = batch.grid.cta[lanes], batch.grid.thread[lanes]
    odd = np.flatnonzero(expected % 32)
    if odd.size:
        site.lane(batch, lanes[odd[0]]).fault(
            BarrierMisuse,
            f"{barrier.name} counts {int(expected[odd[0]])} threads",
            hint="the count is a multiple of 32",
        )
    conflict = np.flatnonzero((barrier.arrived[cta] > 0) & (barrier.expected[cta] != expected))
    if conflict.size:
        i = int(conflict[0])
        site.lane(batch, lanes[i]).fault(
            BarrierMisuse,
            f"{barrier.name} is given a count of {int(expected[i]) or 'all threads'} while others "
            f"wait with {int(barrier.expected[cta[i]]) or 'all threads'}",
        )
    twice = np.flatnonzero(barrier.came[cta, thread])
    if twice.size:
        site.lane(batch, lanes[twice[0]]).fault(
            BarrierMisuse, f"the thread arrives at {barrier.name} twice before it completes"
        )


@instruction("bar.outcome", "barrier.outcome", "bar.cta.outcome", "barrier.cta.outcome")
def outcome(site: Site) -> Action:
    """Second half of bar.red: what the threads voted."""
    site.takes(2)
    popc = "popc" in site.parts
    every = "and" in site.parts
    target, which = site.operands

    def run(ex: Execution, number: Array) -> tuple[Array, ...]:
        group = ex.group
        flat = group.spread(number)
        ones = np.zeros(flat.size, np.int64)
        came = np.zeros(flat.size, np.int64)
        for n in np.unique(flat).tolist():
            here = flat == n
            held = ex.batch.barrier(n).outcome[group.cta[here]]
            ones[here], came[here] = held[:, 0], held[:, 1]
        if popc:
            return (group.fold(ones.astype(np.uint32)),)
        return (group.fold(ones == came if every else ones > 0),)

    result = Result(target, "b32" if popc else "pred")
    return Action("barrier", [Source(which, "b32")], [result], run)
