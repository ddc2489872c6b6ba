"""cp.async: copies to shared memory by a thread, in groups.

The source is read at once. The bytes reach shared memory when the thread waits for their group, or
any thread for the mbarrier at which they arrive, so that a kernel that does not wait finds what was
there before; in some orders they do at once. For the race check they may arrive at any time in
between.
"""

import numpy as np

from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.instructions import mbarrier_objects, shared_access
from nvfp4.emulator.instructions.access import read
from nvfp4.emulator.instructions.access_shape import Access
from nvfp4.emulator.instructions.action import Action, Site, Source, instruction
from nvfp4.emulator.instructions.copy_engine import Postponed
from nvfp4.emulator.ptx.syntax import Operand, Register
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import WRITTEN
from nvfp4.records.base import Record


class _Packet(Record, frozen=False):
    """Copies on their way: data[i] goes to offset[i] for lane[i], as part of group[i]. clock[i]:
    that of its warp when it told an mbarrier, or 0. due[i]: whether it has not landed yet."""

    lane: Array
    offset: Array
    data: Array
    group: Array
    clock: Array
    due: Array

    def part(self, which: Array) -> "_Packet":
        """Return the packet of selected copies. which: bool[copies], or their indices."""
        return _Packet(*(each[which] for each in vars(self).values()))


class PendingCopies:
    """The cp.async copies of a batch that no thread has waited for yet."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.pending: list[_Packet] = []
        self.told: list[_Packet] = []
        """Those of which mbarriers have been told."""
        self.committed = np.zeros(batch.grid.lane.size, np.int64)

    def tell(self, lanes: Array) -> list[_Packet]:
        """Return the copies of these lanes, which tell mbarriers of them."""
        tells = np.zeros(self.batch.grid.lane.size, np.bool_)
        tells[lanes] = True
        kept, told = [], []
        for packet in self.pending:
            mine = tells[packet.lane]
            told += [packet.part(mine)] if mine.any() else []
            kept += [packet.part(~mine)] if not mine.all() else []
        for packet in told:
            packet.clock = shared_access.clocks_of(self.batch, packet.lane)
        self.pending = kept
        self.told = [each for each in self.told if each.due.any()] + told
        return told

    def land(self, lanes: Array, keep: int | None) -> None:
        """Perform the copies of these lanes, except those of their `keep` newest groups.

        None: perform all, including copies that are in no group yet.
        """
        limit = np.full(self.batch.grid.lane.size, -1, np.int64)
        limit[lanes] = np.iinfo(np.int64).max if keep is None else self.committed[lanes] - keep
        for packet in (*self.pending, *self.told):
            self.perform(packet, np.flatnonzero(packet.group < limit[packet.lane]))
        self.pending = [each for each in self.pending if each.due.any()]

    def perform(self, packet: _Packet, which: Array) -> None:
        """Perform the copies with these indices that have not landed yet."""
        which = which[packet.due[which]]
        if which.size:
            packet.due[which] = False
            _land(self.batch, packet.part(which))


def _land(batch: Batch, packet: _Packet) -> None:
    native.scatter(batch.shared.host(packet.offset), np.ascontiguousarray(packet.data.T))
    at = np.where(packet.clock > 0, packet.clock, shared_access.clocks_of(batch, packet.lane))
    shared_access.note_landing(batch, packet.data.shape[1], packet.offset, packet.lane, at)


class _ByMbarrier:
    """Finds what belongs to mbarriers. keys: the mbarrier of each."""

    def __init__(self, keys: Array) -> None:
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def of(self, mbarriers: Array) -> Array:
        """Return the indices of what belongs to these."""
        first = np.searchsorted(self._keys, mbarriers).tolist()
        last = np.searchsorted(self._keys, mbarriers, "right").tolist()
        return np.concatenate([self._order[a:b] for a, b in zip(first, last, strict=True)])


@instruction(
    "cp.async", operands="[] [] _ _? _?", modifiers="ca cg shared shared::cta global hints"
)
def cp_async(site: Site) -> Action:
    """cp.async.{ca,cg}.shared.global [dst], [src], size{, bytes to read or ignore}{, policy}."""
    nbytes = site.integer(2)
    if nbytes not in (4, 8, 16):
        raise site.unsupported(f"{site.opcode}: the size is 4, 8 or 16")
    extra: list[Operand] = list(site.operands[3:])
    if extra and "L2::cache_hint" in site.parts:
        extra.pop()
    ignores = bool(extra) and isinstance(extra[0], Register) and extra[0].cls == "pred"
    reading = Access(site, "global", 4, nbytes // 4)
    writing = Access(site, "shared", nbytes, 1)
    if extra:
        site.sources.append(Source(extra[0], "pred" if ignores else "b32"))

    def run(ex: Execution, target: Array, origin: Array, *more: Array) -> None:
        batch, group, at = ex.batch, ex.group, ex.positions()
        if at.size == 0:
            return
        lanes = group.lanes[at]
        offset = shared_access.locate(batch, writing, group.spread(target)[at], lanes, WRITTEN)
        address = group.spread(origin)[at]
        length = np.full(at.size, nbytes, np.int64)
        if ignores:
            length[group.spread(more[0])[at]] = 0
        elif extra:
            length = np.minimum(group.spread(more[0])[at].astype(np.int64), nbytes)
        data = _read_parts(batch, site, reading, address, lanes, length)
        copies = batch.kept(PendingCopies)
        due = np.ones(lanes.size, np.bool_)
        packet = _Packet(lanes, offset, data, copies.committed[lanes], np.zeros_like(lanes), due)
        if batch.shared.checked:  # the copies land at any time until they are waited for
            nothing = np.zeros((1, 1), np.uint8)
            shared_access.note_writes(batch, site, nbytes, offset, lanes, nothing, issued=True)
        if batch.launch.order.shifts_copies:
            _land(batch, packet)
        else:
            copies.pending.append(packet)

    return site.action("copy", run)


def _read_parts(
    batch: Batch, site: Site, whole: Access, address: Array, lanes: Array, length: Array
) -> Array:
    """Return uint8[lane, byte] of global memory, `length` bytes for each lane and zeros behind."""
    if (length == whole.nbytes).all():
        return _read(batch, whole, address, lanes)
    data = np.zeros((address.size, whole.nbytes), np.uint8)
    for amount in distinct(length[length > 0]).tolist():
        some = np.flatnonzero(length == amount)
        shape = whole if amount == whole.nbytes else Access(site, "global", 1, amount)
        data[some, :amount] = _read(batch, shape, address[some], lanes[some])
    return data


def _read(batch: Batch, access: Access, address: Array, lanes: Array) -> Array:
    """Read uint8[lane, byte] from global memory, checked and counted."""
    return np.ascontiguousarray(read(batch, access, "global", address, lanes).T).view(np.uint8)


@instruction("cp.async.commit_group")
def commit_group(site: Site) -> Action:
    """Make a group of each lane's copies since its last commit."""

    def run(ex: Execution) -> None:
        ex.batch.kept(PendingCopies).committed[ex.lanes()] += 1

    return Action("copy", [], [], run)


@instruction("cp.async.wait_group", "cp.async.wait_all", operands="_?")
def wait_group(site: Site) -> Action:
    """Wait until at most N groups of the thread are under way, or for all its copies."""
    keep = site.integer(0) if "wait_group" in site.parts else None
    return site.action("copy", lambda ex: ex.batch.kept(PendingCopies).land(ex.lanes(), keep))


@instruction("cp.async.mbarrier", operands="[]", modifiers="arrive! noinc shared shared::cta b64")
def mbarrier_arrive(site: Site) -> Action:
    """cp.async.mbarrier.arrive{.noinc}.shared.b64 [addr]: arrive once the copies have landed."""
    noinc = "noinc" in site.parts

    def arrive(batch: Batch, offset: Array, lanes: Array, arrivals: int = 1) -> None:
        number = np.full(lanes.size, arrivals)
        mbarrier_objects.change(site, batch, offset, lanes, number, np.zeros_like(number))

    def run(ex: Execution, address: Array) -> None:
        at, batch = ex.positions(), ex.batch
        lanes = ex.group.lanes[at]
        copies, postponed = batch.kept(PendingCopies), batch.kept(Postponed).by_mbarrier
        offset = mbarrier_objects.locate(site, batch, ex.group.spread(address)[at], lanes)
        packets = copies.tell(lanes)
        mbarrier_objects.release(batch, offset, lanes)
        if not noinc:
            arrive(batch, offset, lanes, -1)
        if not packets:
            arrive(batch, offset, lanes)
            return
        mbarrier_of = np.zeros(batch.grid.lane.size, np.uint64)
        mbarrier_of[lanes] = offset
        told = [(each, _ByMbarrier(mbarrier_of[each.lane])) for each in packets]
        arrivals = _ByMbarrier(offset)

        def complete(mbarriers: Array) -> None:
            for packet, place in told:
                copies.perform(packet, place.of(mbarriers))
            mine = arrivals.of(mbarriers)
            arrive(batch, offset[mine], lanes[mine])

        for each in distinct(offset).tolist():
            postponed[each].append(complete)

    return site.action("copy", run)
