"""bar and barrier: sync, arrive, red, and the cluster barrier."""

from __future__ import annotations

from typing import Any

import numpy as np

from nvfp4.emulator.engine.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.engine.barriers import barrier, numbers
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.errors import BarrierMisuse
from nvfp4.emulator.ptx.program import Operand

Array = np.ndarray[Any, Any]


def _put_aside(
    batch: Batch, group: Group, guard: Array | None, following: int, stay: bool
) -> int | None:
    """Save the group's registers; lanes that need not wait go on by themselves."""
    if not stay:
        return following
    batch.scheduler.retire(group, following)
    if guard is not None:
        free = ~group.spread(guard)
        batch.scheduler.release(group.lanes[free], following)
    return None


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

    def run(
        batch: Batch, group: Group, guard: Array | None, following: int, which: Array, *more: Array
    ) -> Any:
        count = more[0] if counted else None
        if not votes and _everybody(batch, group, guard, which, count):
            batch.traffic.barriers += batch.grid.ctas
            if batch.shared.checked:
                batch.shared.clocks.meet_all()
            return following
        result = _put_aside(batch, group, guard, following, stay=True) if waits else following
        for number, positions in numbers(site, batch, group, guard, which):
            it = barrier(batch, number)
            lanes = group.lanes[positions]
            wanted = None if count is None else group.spread(count)[positions]
            if wanted is not None and (wanted % 32).any():
                raise site.fail(
                    BarrierMisuse,
                    f"barrier {number} counts {int(wanted[wanted % 32 != 0][0])} threads",
                    batch,
                    int(lanes[0]),
                    hint="the count is a multiple of 32",
                )
            yes = group.spread(more[-1])[positions] if votes else None
            it.arrive(site, lanes, wanted, yes, waits)
            if waits:
                it.keep(lanes, following)
            it.complete()
        return result

    return Action("barrier", sources, [], run, parks=True)


def _everybody(
    batch: Batch, group: Group, guard: Array | None, which: Array, count: Array | None
) -> bool:
    """Whether every thread of every CTA is here, so that nobody has to wait."""
    if not group.full or guard is not None or which.size != 1 or which.reshape(-1)[0] > 15:
        return False
    if count is not None and (count.size != 1 or count.reshape(-1)[0] != batch.thread_count):
        return False
    return barrier(batch, int(which.reshape(-1)[0])).untouched()


@instruction("bar.outcome", "barrier.outcome", "bar.cta.outcome", "barrier.cta.outcome")
def outcome(site: Site) -> Action:
    """Second half of bar.red: what the threads voted."""
    site.takes(2)
    popc = "popc" in site.parts
    every = "and" in site.parts
    target, which = site.operands

    def run(batch: Batch, group: Group, guard: Array | None, number: Array) -> tuple[Array, ...]:
        flat = group.spread(number)
        ones = np.zeros(flat.size, np.int64)
        came = np.zeros(flat.size, np.int64)
        for n in np.unique(flat).tolist():
            here = flat == n
            held = barrier(batch, n).outcome[group.cta[here]]
            ones[here], came[here] = held[:, 0], held[:, 1]
        if popc:
            return (group.fold(ones.astype(np.uint32)),)
        return (group.fold(ones == came if every else ones > 0),)

    result = Result(target, "b32" if popc else "pred")
    return Action("barrier", [Source(which, "b32")], [result], run)


@instruction("barrier.cluster")
def cluster(site: Site) -> Action:
    """barrier.cluster.{arrive,wait}: all threads of the cluster, which is one CTA."""
    site.only("cluster", "arrive", "wait", "release", "acquire", "relaxed", "aligned")
    waits = "wait" in site.parts

    def run(batch: Batch, group: Group, guard: Array | None, following: int) -> Any:
        it = barrier(batch, "cluster")
        lanes = group.lanes if guard is None else group.lanes[group.spread(guard)]
        if not waits:
            it.arrive(site, lanes, None, None, sync=True)
            it.complete()
            return following
        result = _put_aside(batch, group, guard, following, stay=True)
        still = it.came[batch.grid.cta[lanes], batch.grid.thread[lanes]]
        it.keep(lanes[still], following)
        batch.scheduler.release(lanes[~still], following)
        return result

    return Action("barrier", [], [], run, parks=True)
