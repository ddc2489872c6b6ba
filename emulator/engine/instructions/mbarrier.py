"""mbarrier.*: objects in shared memory that count arrivals and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nvfp4.emulator.engine import mbarriers
from nvfp4.emulator.engine.action import Action, Gate, Result, Site, Source, instruction
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.ptx.program import Memory, Operand, Sink

Array = np.ndarray[Any, Any]

_WORDS = (
    "shared", "shared::cta", "shared::cluster", "b64", "release", "acquire", "relaxed",
    "cta", "cluster",
)  # fmt: skip


def taking_part(group: Group, guard: Array | None) -> Array:
    """Positions in the group of the lanes that execute the instruction."""
    if guard is None:
        return np.arange(group.lanes.size)
    return np.flatnonzero(group.spread(guard))


def _objects(
    site: Site, batch: Batch, group: Group, guard: Array | None, address: Array
) -> tuple[Array, Array, Array]:
    """(positions in the group, offsets of the mbarriers, lanes)."""
    positions = taking_part(group, guard)
    lanes = group.lanes[positions]
    flat = group.spread(address)[positions]
    return positions, mbarriers.locate(site, batch, flat, lanes), lanes


@instruction("mbarrier.init")
def init(site: Site) -> Action:
    """mbarrier.init.shared.b64 [addr], count."""
    site.takes(2)
    site.only("init", *_WORDS)

    def run(batch: Batch, group: Group, guard: Array | None, address: Array, count: Array) -> Any:
        at, offset, lanes = _objects(site, batch, group, guard, address)
        mbarriers.initialise(site, batch, offset, lanes, group.spread(count)[at])
        return ()

    sources = [Source(site.memory(0), "b64"), Source(site.operands[1], "b32")]
    return Action("barrier", sources, [], run)


@instruction("mbarrier.inval")
def inval(site: Site) -> Action:
    """mbarrier.inval.shared.b64 [addr]."""
    site.takes(1)
    site.only("inval", *_WORDS)

    def run(batch: Batch, group: Group, guard: Array | None, address: Array) -> Any:
        _, offset, _ = _objects(site, batch, group, guard, address)
        mbarriers.invalidate(batch, offset)
        return ()

    return Action("barrier", [Source(site.memory(0), "b64")], [], run)


@instruction("mbarrier.expect_tx", "mbarrier.complete_tx")
def transaction(site: Site) -> Action:
    """mbarrier.expect_tx and complete_tx [addr], bytes."""
    site.takes(2)
    site.only("expect_tx", "complete_tx", *_WORDS)
    sign = 1 if "expect_tx" in site.parts else -1

    def run(batch: Batch, group: Group, guard: Array | None, address: Array, count: Array) -> Any:
        at, offset, lanes = _objects(site, batch, group, guard, address)
        expect = sign * group.spread(count)[at].astype(np.int64)
        mbarriers.change(site, batch, offset, lanes, np.zeros_like(expect), expect)
        return ()

    sources = [Source(site.memory(0), "b64"), Source(site.operands[1], "b32")]
    return Action("barrier", sources, [], run)


@instruction("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(site: Site) -> Action:
    """mbarrier.arrive{.expect_tx}{.noComplete} {state,} [addr]{, count or bytes}."""
    site.takes(1, 3)
    site.only("arrive", "arrive_drop", "expect_tx", "noComplete", *_WORDS)
    operands: list[Operand] = list(site.operands)
    target: Operand = Sink() if isinstance(operands[0], Memory) else operands.pop(0)
    memory, *extra = operands
    if not isinstance(memory, Memory):
        raise site.unsupported(f"{site.opcode} needs an address in []")
    expects = "expect_tx" in site.parts
    drop = "arrive_drop" in site.parts

    def run(batch: Batch, group: Group, guard: Array | None, address: Array, *more: Array) -> Any:
        at, offset, lanes = _objects(site, batch, group, guard, address)
        number = group.spread(more[0])[at].astype(np.int64) if more else np.ones(at.size, np.int64)
        arrivals = np.ones_like(number) if expects else number
        expect = number if expects else np.zeros_like(number)
        mbarriers.release(batch, offset, lanes)
        before = mbarriers.change(site, batch, offset, lanes, arrivals, expect, drop)
        states = np.zeros(group.lanes.size, np.uint64)
        states[at] = before
        return (group.fold(states),)

    sources = [Source(memory, "b64"), *(Source(o, "b32") for o in extra[:1])]
    return Action("barrier", sources, [Result(target, "b64")], run)


@instruction("mbarrier.test_wait", "mbarrier.try_wait")
def wait(site: Site) -> Action:
    """mbarrier.{test,try}_wait{.parity} p, [addr], state or parity{, time hint}.

    try_wait may suspend the thread: it is held until the phase completes, or until nobody else
    can run, when it times out.
    """
    site.takes(3, 4)
    site.only("test_wait", "try_wait", "parity", *_WORDS)
    by_parity = "parity" in site.parts
    target, memory, token = site.operands[0], site.memory(1), site.operands[2]

    def complete(
        batch: Batch, group: Group, guard: Array | None, address: Array, wanted: Array
    ) -> tuple[Array, Array, Array, Array]:
        at, offset, lanes = _objects(site, batch, group, guard, address)
        current = mbarriers.phases(site, batch, offset, lanes)
        asked = group.spread(wanted)[at].astype(np.uint64)
        parity = asked & np.uint64(1) if by_parity else asked >> np.uint64(63)
        return current != parity, at, offset, lanes

    def gate(
        batch: Batch, group: Group, guard: Array | None, address: Array, wanted: Array
    ) -> Array | None:
        if group.excused:
            return None
        done, at, _, _ = complete(batch, group, guard, address, wanted)
        if done.all():
            return None
        ready = np.ones(group.lanes.size, np.bool_)
        ready[at] = done
        return ready

    def run(
        batch: Batch, group: Group, guard: Array | None, address: Array, wanted: Array
    ) -> tuple[Array, ...]:
        done, at, offset, lanes = complete(batch, group, guard, address, wanted)
        mbarriers.acquire(batch, offset[done], lanes[done])
        if at.size == group.lanes.size and (done.all() or not done.any()):
            return (done[:1],)
        flags = np.zeros(group.lanes.size, np.bool_)
        flags[at] = done
        return (group.fold(flags),)

    sources = [Source(memory, "b64"), Source(token, "b32" if by_parity else "b64")]
    held: Gate | None = gate if "try_wait" in site.parts else None
    return Action("barrier", sources, [Result(target, "pred")], run, gate=held)


@instruction("mbarrier.pending_count")
def pending_count(site: Site) -> Action:
    """Arrivals still pending in a state that mbarrier.arrive returned."""
    site.takes(2)
    target, state = site.operands
    return Action(
        "barrier",
        [Source(state, "b64")],
        [Result(target, "b32")],
        lambda value: ((value & np.uint64(mbarriers.MOST)).astype(np.uint32),),
        pure=True,
    )
