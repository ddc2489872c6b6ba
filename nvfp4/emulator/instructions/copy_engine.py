"""The copy engine's part in cp.async.bulk, one copy at a time (its tensor form: tiles.py).

A copy is performed when it is issued. The race check learns of it only when its mbarrier
completes or its bulk group is waited for, so that a kernel that does not wait is caught. In some
orders copies that complete an mbarrier are performed when a thread first waits for it. In all but
the first, those of bulk groups are performed once more when their thread waits for their group, or
when all threads have ended.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.instructions import mbarrier_objects, shared_access
from nvfp4.emulator.instructions.access_shape import verb
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.state import races
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.memory import RANK_SHIFT, SHARED_WINDOW, WRITTEN
from nvfp4.emulator.state.races import ENGINES, OF_MBARRIERS
from nvfp4.emulator.state.tile_swizzles import UNKNOWN, TileSwizzles
from nvfp4.emulator.work import Asked
from nvfp4.records.launch import Buffer

TO_ALL = "multicast::cluster::all"
"""Modifier of clusterlaunchcontrol: the response goes to every CTA of the cluster."""


def buffer_of(
    at: LaneSite, what: str, address: int, nbytes: int, hint: str | None = None
) -> Buffer:
    """Return the buffer that holds all bytes of a range of global memory. hint: what to do where
    none does."""
    memory = at.batch.memory
    found = memory.nearest(address)
    if found is not None and found[1] >= 0 and found[1] + nbytes <= found[0].nbytes:
        return found[0]
    text, place = f"{what} of {nbytes} bytes", memory.describe(address)
    if found is None or not 0 <= found[1] < found[0].nbytes:
        at.fault(errors.OutOfBounds, f"{text} outside every tensor, {place}", hint)
    over = address + nbytes - found[0].end
    at.fault(
        errors.OutOfBounds,
        f"{text} at {place} reaches {over} bytes past its end, outside every tensor",
    )


def global_range(
    at: LaneSite, address: int, nbytes: int, flag: int, span_bytes: int | None = None
) -> int:
    """Return the index of the buffer that holds all bytes of a copy's range of global memory.

    nbytes: bytes copied, for the counters. span_bytes: bytes addressed, if more.
    """
    memory, traffic = at.batch.memory, at.batch.traffic
    buffer = buffer_of(at, "copy", address, span_bytes or nbytes)
    asked = at.batch.launch.work.asked[at.site.instruction.start]
    asked.requests += 1
    if at.batch.launch.tally is not None:
        at.batch.launch.tally.copied(at.site.instruction, address, nbytes)
    if flag == WRITTEN:
        if not buffer.writable:
            at.fault(errors.ReadOnlyMemory, f"copy to read-only memory: {memory.describe(address)}")
        memory.keep_contents(address, address)
    traffic.count("global", flag == WRITTEN, nbytes)
    return bisect_right(memory.addresses, address) - 1


def touch(at: LaneSite, index: int, address: int, nbytes: int, flag: int) -> None:
    """Count the sectors of a range in the buffer with this index."""
    batch = at.batch
    memory = batch.memory
    base = memory.sector_base(index)
    first, last = (address >> 5) + base, ((address + nbytes - 1) >> 5) + base
    touched = memory.touched[first : last + 1]
    start, sectors = at.site.instruction.start, last + 1 - first
    batch.launch.work.asked[start].fresh += int(np.count_nonzero(touched == 0))
    batch.launch.work.copy(start, at.lane // batch.grid.threads, batch.grid.ctas, sectors)
    touched |= flag
    batch.traffic.sectors_requested += sectors
    batch.traffic.global_requests += 1


def shared_range(
    at: LaneSite, address: int, nbytes: int, align: int, abroad: bool = False
) -> tuple[int, Array]:
    """Return (offset, bytes) of a range of shared memory of the lane's CTA.

    abroad: whether the address may name another CTA of the cluster.
    """
    shared = at.batch.shared
    address &= SHARED_WINDOW - 1
    shared_access.check_bounds(at, f"copy of {nbytes} bytes", address, nbytes, align, abroad)
    row, size = at.lane // at.batch.grid.threads, at.batch.cluster_size
    if size > 1:
        row += (address >> RANK_SHIFT & 0xFF) - row % size
        address &= ~(0xFF << RANK_SHIFT)
    offset = address - shared.base + row * shared.stride
    if abroad:
        where, lanes = np.array([offset]), np.array([at.lane])
        shared_access.visit(at.batch, at.site, where, lanes, engine=True, nbytes=nbytes)
    return offset, shared.data[offset : offset + nbytes]


def goes_abroad(site: Site) -> bool:
    """Whether a copy may write shared memory of another CTA of the cluster."""
    return "shared::cluster" in site.parts or TO_ALL in site.parts


def with_rank(address: int, rank: int) -> int:
    """Return the shared address of the same offset in the CTA with a rank."""
    return address & ~(0xFF << RANK_SHIFT) | rank << RANK_SHIFT


@contextmanager
def uncounted(batch: Batch) -> Iterator[None]:
    """Do not count reads of global memory in the `with` block: they have been counted before."""
    traffic, launch = batch.traffic, batch.launch
    counted = traffic.global_read_bytes, traffic.sectors_requested, traffic.global_requests
    tally, launch.tally = launch.tally, None
    asked, launch.work.asked = launch.work.asked, defaultdict(Asked)
    try:
        yield
    finally:
        launch.tally = tally
        launch.work.asked = asked
        traffic.global_read_bytes, traffic.sectors_requested, traffic.global_requests = counted


def note(
    at: LaneSite, offset: int, nbytes: int, flag: int, by_threads: bool = False,
    swizzle: int = UNKNOWN,
) -> None:  # fmt: skip
    """Record that the engine accesses shared bytes on behalf of a lane; see `note_all`."""
    where, lanes = np.array([offset]), np.array([at.lane])
    note_all(at.site, at.batch, where, lanes, nbytes, flag, by_threads, swizzle)


def note_all(
    site: Site, batch: Batch, offset: Array, lanes: Array, nbytes: int, flag: int,
    by_threads: bool = False, swizzle: int = UNKNOWN,
) -> None:  # fmt: skip
    """Record that the engine accesses shared bytes on behalf of lanes, and note races.

    by_threads: whether the access is in the proxy of threads, which needs no fence. swizzle: its
    width, if it writes a tile.
    """
    batch.traffic.count("shared", flag == WRITTEN, nbytes * lanes.size)
    shared, clocks = batch.shared, batch.shared.clocks
    if not shared.checked:
        return
    site.record_access(batch, "shared", offset, nbytes, lanes, flag == WRITTEN, engine=True)
    if flag == WRITTEN:
        shared_access.note_overwritten(batch, site, nbytes, offset, lanes)
        if not by_threads:
            batch.kept(TileSwizzles).note(offset, nbytes, swizzle)
    found = np.empty((lanes.size, 3), np.int64)
    races.note_engine(
        offset.astype(np.uint64), nbytes, lanes, batch.clusters.threads, batch.engine(lanes),
        clocks.known, clocks.fenced, shared.stamps, flag == WRITTEN, by_threads, found
    )  # fmt: skip
    if shared.undefined is not None:
        for i, where in enumerate(offset.tolist()):
            part = shared.undefined[where : where + nbytes]
            if flag == WRITTEN:
                part[:] = 0
            elif not found[i, 1] and part.any():
                found[i, :2] = where + int(part.argmax()), races.UNINITIALISED
    for i in np.flatnonzero(found[:, 1]).tolist():
        _note_fault(site.lane(batch, lanes[i]), flag, *found[i].tolist())


def _note_fault(at: LaneSite, flag: int, byte: int, fault: int, stamp: int) -> None:
    address = at.batch.shared.address(byte)
    if fault == races.UNINITIALISED:
        at.note(
            errors.UninitialisedShared,
            f"copy from shared address {address:#x}, which nothing has set",
        )
        return
    what = (
        f"asynchronous {verb(flag)} of shared address {address:#x}{shared_access.owner(at, byte)}"
    )
    other = shared_access.stamped_by(at, stamp, "another asynchronous copy")
    seen = shared_access.seen_at(at, byte, 1, stamp, engine=True)
    kind: type[errors.EmulatorError] = errors.MissingProxyFence
    if fault == races.RACE:
        kind = errors.SharedRace
        what += f" races with {other}: nothing orders the copy after that access"
        hint = "wait at a barrier before the copy is issued"
    elif fault == races.OVERTAKEN:
        what += f" may overtake a read by {other}, which arrived at a barrier before it used the "
        what += "value: no fence.proxy.async lies between"
        hint = "put a fence.proxy.async before that arrival, or arrive after the value is used"
    else:
        what += f", which {other} has written: no fence.proxy.async lies between, and a barrier "
        what += "does not order the two"
        hint = "put a fence.proxy.async after the write, before the barrier"
    at.note(kind, what, hint, seen=seen)


def choose(batch: Batch, mbar: Any = None, lane: int = 0) -> None:
    """Choose the engines of the next copies, which complete bytes at mbarriers, or none, and then
    are a lane's. mbar: addresses, or offsets in shared memory."""
    if mbar is None:
        batch.engine_at_work = OF_MBARRIERS + (lane >> 5) % (ENGINES - OF_MBARRIERS)
    else:
        batch.engine_at_work = np.asarray(mbar, np.int64) // 8 % OF_MBARRIERS


def advance(batch: Batch, lanes: Array) -> None:
    """Advance the clocks of the engines of the lanes' CTAs after their copies."""
    engine = batch.first_engines(lanes[:, None]) + np.arange(ENGINES)
    batch.shared.clocks.known[batch.clusters.cta[lanes[:, None]], engine, engine] += 1


def complete(site: Site, batch: Batch, lanes: Array, mbar: Array, nbytes: Array) -> None:
    """Complete bytes at the mbarriers of these lanes, whose copies were the latest of their
    CTAs."""
    choose(batch, mbar)
    offset = mbarrier_objects.locate(site, batch, mbar, lanes, goes_abroad(site), engine=True)
    mbarrier_objects.engine_done(site, batch, offset, lanes)
    mbarrier_objects.change(site, batch, offset, lanes, np.zeros_like(nbytes), -nbytes)


class Postponed:
    """Copies and arrivals that are performed when threads wait for mbarriers, by the mbarrier's
    offset in shared memory. Each is called with the offsets of all mbarriers whose next one it
    is."""

    def __init__(self, batch: Batch) -> None:
        self.by_mbarrier: defaultdict[int, list[Callable[[Array], object]]] = defaultdict(list)


def postpone(at: LaneSite, mbar: int, move: Callable[[], int]) -> None:
    """Perform a lane's copy later. move: copies and returns how many bytes that is."""
    choose(at.batch, mbar)
    where = np.array([mbar], np.uint64)
    lanes, abroad = np.array([at.lane]), goes_abroad(at.site)
    offset = mbarrier_objects.locate(at.site, at.batch, where, lanes, abroad, engine=True)
    at.batch.kept(Postponed).by_mbarrier[int(offset[0])].append(lambda _: _finish(at, mbar, move))


def deliver(at: LaneSite, mbar: int, move: Callable[[], int]) -> None:
    """Perform a lane's copy, which completes bytes at an mbarrier, now or late."""
    if at.batch.launch.order.shifts_copies:
        postpone(at, mbar, move)
    else:
        _finish(at, mbar, move)


def _finish(at: LaneSite, mbar: int, move: Callable[[], int]) -> None:
    choose(at.batch, mbar)
    nbytes = np.array([move()], np.int64)
    complete(at.site, at.batch, np.array([at.lane]), np.array([mbar], np.uint64), nbytes)


def perform_postponed(batch: Batch, offset: Array) -> bool:
    """Perform the copies that end the phases under way of the mbarriers at these offsets, for which
    threads wait. Returns False if no copies are postponed at all or `offset` is empty."""
    waiting = batch.kept(Postponed).by_mbarrier
    if not waiting or not offset.size:
        return False
    due = [each for each in distinct(offset).tolist() if each in waiting]
    parity = {each: mbarrier_objects.parity_of(batch, each) for each in due}
    while due:
        together = defaultdict(list)
        for each in due:
            together[waiting[each].pop(0)].append(each)
            if not waiting[each]:
                del waiting[each]
        for finish, mbarriers in together.items():
            finish(np.array(mbarriers, np.uint64))
        # Where the phase is complete, other copies stay postponed.
        due = [
            each for each in due
            if each in waiting and mbarrier_objects.parity_of(batch, each) == parity[each]
        ]  # fmt: skip
    return True


class BulkGroups:
    """Bulk copies that complete no mbarrier, by the lane that issued them.

    stores: the first store that the lane has not waited for. open: lanes with copies that are not
    in a group yet, which may be performed late. committed: for each group that the lane has not
    waited for, the engine's clock at its latest copy, and those copies.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.stores: dict[int, LaneSite] = {}
        self._open: dict[int, list[Callable[[], object]]] = {}
        self._committed: dict[int, list[tuple[int, list[Callable[[], object]]]]] = {}

    def add(self, at: LaneSite, again: Callable[[], object]) -> None:
        """Record that a lane issues a copy, which has been performed."""
        self.stores.setdefault(at.lane, at)
        late = [again] if self._batch.launch.order.late_stores else []
        self._open.setdefault(at.lane, []).extend(late)
        self._committed.setdefault(at.lane, [])

    def commit(self, lanes: Array) -> None:
        """Close the open group of copies of each of these lanes."""
        for lane in self._committed.keys() & set(lanes.tolist()):
            known, engine = self._clocks(lane)
            group = int(known[engine, engine]) - 1, self._open.pop(lane, [])
            self._committed[lane].append(group)

    def wait(self, lanes: Array, left: int) -> None:
        """Make these lanes wait until at most `left` of their groups are under way."""
        for lane in self._committed.keys() & set(lanes.tolist()):
            groups = self._committed[lane]
            count = max(0, len(groups) - left)
            done, self._committed[lane] = groups[:count], groups[count:]
            self._repeat([copy for _, copies in done for copy in copies])
            if not left and lane not in self._open:
                self.stores.pop(lane, None)
            if done and self._batch.shared.checked:
                known, engine = self._clocks(lane)
                warp = self._batch.clusters.thread[lane] >> 5
                known[warp, engine] = max(known[warp, engine], done[-1][0])

    def _repeat(self, copies: list[Callable[[], object]]) -> None:
        """Perform copies once more, of what their sources hold now. Nothing reports what is counted
        in the orders that have such copies."""
        shared = self._batch.shared
        checked, shared.checked = shared.checked, False
        for copy in copies:
            copy()
        shared.checked = checked

    def _clocks(self, lane: int) -> tuple[Array, int]:
        """Return the clocks of a lane's cluster, and the warp that stands for its CTA's engine."""
        choose(self._batch, lane=lane)
        cluster = lane // self._batch.clusters.threads
        return self._batch.shared.clocks.known[cluster], self._batch.engine_warps(lane)


def note_unwaited(batch: Batch) -> None:
    """Note bulk copies that still may access shared memory of CTAs that have ended, and perform
    stores."""
    loads = mbarrier_objects.unwaited_loads(batch)
    for at in loads[:1]:
        at.note(
            errors.UnwaitedLoad,
            "the CTA ends and no thread has waited for this bulk copy, which may still write to "
            "shared memory when that belongs to the next CTA",
            hint="load no more stages than are used, or wait for the last ones, too",
            count=len(loads),
        )
    groups = batch.kept(BulkGroups)
    stores = list(groups.stores.values())
    lanes = np.array(list(groups.stores), np.int64)
    groups.commit(lanes)
    groups.wait(lanes, 0)
    for at in stores[:1]:
        at.note(
            errors.UnwaitedStore,
            "the thread ends without waiting for this bulk copy, which may still read shared "
            "memory when that belongs to the next CTA",
            hint="put cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 after it",
            count=len(stores),
        )
