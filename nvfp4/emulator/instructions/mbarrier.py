"""mbarrier.*: objects in shared memory that count arrivals and bytes."""

import numpy as np

from nvfp4.emulator.instructions import copy_engine, mbarrier_objects
from nvfp4.emulator.instructions.access_shape import spaces_of
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.instructions.global_access import empty_l1
from nvfp4.emulator.ptx.syntax import Memory, Operand, Sink
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.records.base import Record

_WORDS = "shared shared::cta shared::cluster b64 release acquire relaxed cta cluster"


class Wait(Record):
    """A thread's wait for an mbarrier."""

    offset: int
    """Offset of the mbarrier in the batch's shared memory."""
    parity: int | None
    """Parity of the phase that it waits for; None if it waits by a token."""

    def status(self, batch: Batch) -> str:
        """Return the arrivals and bytes that the phase still lacks, in words."""
        expected, pending, nbytes = mbarrier_objects.state_of(batch, self.offset)
        came = expected - pending
        where = f"byte {batch.shared.address(self.offset) - batch.shared.base} of shared memory"
        which = "the phase under way" if self.parity is None else f"phase parity {self.parity}"
        said = f"for {which} of the mbarrier at {where}: {came} of {expected} arrivals have come"
        if nbytes:
            said += f", {nbytes} bytes still to come"
        if self.parity is not None and not came and not nbytes:
            said += f", and phase parity {self.parity} has not completed since"
        return said


class Waits:
    """The latest waits of a batch, by the line of the PTX."""

    def __init__(self, batch: Batch) -> None:
        self.latest: dict[int, Wait] = {}
        self.timed_out: set[tuple[int, int]] = set()
        """Positions in the PTX, and warps, whose first wait was too early."""


_ARRIVALS = frozenset(("arrive", "arrive_drop", "expect_tx", "complete_tx"))
"""Operations that threads may execute on mbarriers of other CTAs; they may wait only on their
own."""


def _objects(site: Site, ex: Execution, address: Array) -> tuple[Array, Array, Array]:
    """Return (positions in the group, offsets of the mbarriers, lanes)."""
    positions = ex.positions()
    lanes = ex.group.lanes[positions]
    flat = ex.group.spread(address)[positions]
    everywhere = "shared::cluster" in site.parts or not spaces_of(site)
    abroad = everywhere and not _ARRIVALS.isdisjoint(site.parts)
    return positions, mbarrier_objects.locate(site, ex.batch, flat, lanes, abroad), lanes


@instruction("mbarrier.init", operands="[] b32", modifiers=_WORDS)
def init(site: Site) -> Action:
    """mbarrier.init.shared.b64 [addr], count."""

    def run(ex: Execution, address: Array, count: Array) -> None:
        at, offset, lanes = _objects(site, ex, address)
        mbarrier_objects.initialise(site, ex.batch, offset, lanes, ex.group.spread(count)[at])

    return site.action("barrier", run)


@instruction("mbarrier.inval", operands="[]", modifiers=_WORDS)
def inval(site: Site) -> Action:
    """mbarrier.inval.shared.b64 [addr]."""

    def run(ex: Execution, address: Array) -> None:
        _, offset, _ = _objects(site, ex, address)
        mbarrier_objects.invalidate(ex.batch, offset)

    return site.action("barrier", run)


@instruction("mbarrier.expect_tx", "mbarrier.complete_tx", operands="[] b32", modifiers=_WORDS)
def transaction(site: Site) -> Action:
    """mbarrier.expect_tx and complete_tx [addr], bytes."""
    sign = 1 if "expect_tx" in site.parts else -1

    def run(ex: Execution, address: Array, count: Array) -> None:
        at, offset, lanes = _objects(site, ex, address)
        expect = sign * ex.group.spread(count)[at].astype(np.int64)
        mbarrier_objects.change(site, ex.batch, offset, lanes, np.zeros_like(expect), expect)

    return site.action("barrier", run)


@instruction("mbarrier.arrive", "mbarrier.arrive_drop", modifiers=f"expect_tx noComplete {_WORDS}")
def arrive(site: Site) -> Action:
    """mbarrier.arrive{.expect_tx}{.noComplete} {state,} [addr]{, count or bytes}."""
    site.takes(1, 3)
    has_target = not isinstance(site.operands[0], Memory)
    target: Operand = site.operands[0] if has_target else Sink()
    memory, extra = site.memory(has_target), site.operands[has_target + 1 :]
    expects = "expect_tx" in site.parts
    drop = "arrive_drop" in site.parts
    relaxed = "relaxed" in site.parts

    def run(ex: Execution, address: Array, *more: Array) -> tuple[Array, ...]:
        at, offset, lanes = _objects(site, ex, address)
        number = (ex.group.spread(more[0])[at] if more else np.ones(at.size)).astype(np.int64)
        arrivals = np.ones_like(number) if expects else number
        expect = number if expects else np.zeros_like(number)
        mbarrier_objects.release(ex.batch, offset, lanes, relaxed)
        if not expects:
            mbarrier_objects.precede(ex.batch, offset, lanes)
        before = mbarrier_objects.change(site, ex.batch, offset, lanes, arrivals, expect, drop)
        states = np.zeros(ex.group.lanes.size, np.uint64)
        states[at] = before
        return (ex.group.fold(states),)

    sources = [Source(memory, "b64"), *(Source(o, "b32") for o in extra[:1])]
    return Action("barrier", sources, [Result(target, "b64")], run)


_WAITS = "mbarrier.test_wait", "mbarrier.try_wait"


@instruction(*_WAITS, operands="=pred [] _ _?", modifiers=f"parity {_WORDS}")
def wait(site: Site) -> Action:
    """mbarrier.{test,try}_wait{.parity} p, [addr], state or parity{, time hint}.

    try_wait may suspend the thread: it is held until the phase completes, or until no other thread
    can run, when it times out. In other orders than the first, a warp's first wait at a line is not
    held. A wait whose result is unused acquires nothing.
    """
    by_parity, relaxed = "parity" in site.parts, "relaxed" in site.parts
    empties = "cluster" in site.parts and not relaxed

    def result_used(ex: Execution) -> bool:
        return site.instruction.line not in ex.batch.launch.apart.not_looked_at

    def complete(ex: Execution, address: Array, wanted: Array) -> tuple[Array, Array, Array, Array]:
        at, offset, lanes = _objects(site, ex, address)
        current = mbarrier_objects.phases(site, ex.batch, offset, lanes)
        asked = ex.group.spread(wanted)[at].astype(np.uint64)
        parity = asked & np.uint64(1) if by_parity else asked >> np.uint64(63)
        if result_used(ex) and copy_engine.perform_postponed(ex.batch, offset[current == parity]):
            current = mbarrier_objects.phases(site, ex.batch, offset, lanes)
        return current != parity, at, offset, lanes

    def remember(ex: Execution, offset: Array, at: Array, wanted: Array, done: Array) -> None:
        first = int(np.flatnonzero(~done)[0])
        parity = int(ex.group.spread(wanted)[at[first]]) & 1 if by_parity else None
        ex.batch.kept(Waits).latest[site.instruction.line] = Wait(int(offset[first]), parity)

    def gate(ex: Execution, address: Array, wanted: Array) -> Array | None:
        if ex.group.excused or (ex.batch.launch.order.shifts_copies and not result_used(ex)):
            return None
        done, at, offset, lanes = complete(ex, address, wanted)
        if done.all():
            return None
        first, waits = (site.instruction.start, int(lanes[0]) >> 5), ex.batch.kept(Waits).timed_out
        if ex.batch.launch.order.number and first not in waits:
            waits.add(first)
            return None
        remember(ex, offset, at, wanted, done)
        ready = np.ones(ex.group.lanes.size, np.bool_)
        ready[at] = done
        return ready

    def run(ex: Execution, address: Array, wanted: Array) -> tuple[Array, ...]:
        done, at, offset, lanes = complete(ex, address, wanted)
        if not done.all():
            remember(ex, offset, at, wanted, done)
            ex.batch.launch.work.waits = True  # it has timed out, or polls
        ended = offset[done], lanes[done]
        mbarrier_objects.follow(ex.batch, *ended)
        if empties:
            empty_l1(ex.batch, lanes)
        if result_used(ex):
            mbarrier_objects.acquire(ex.batch, *ended, relaxed)
        if at.size == ex.group.lanes.size and (done.all() or not done.any()):
            return (done[:1],)
        flags = np.zeros(ex.group.lanes.size, np.bool_)
        flags[at] = done
        return (ex.group.fold(flags),)

    site.sources.append(Source(site.operands[2], "b32" if by_parity else "b64"))
    return site.action("barrier", run, gate=gate if "try_wait" in site.parts else None)
