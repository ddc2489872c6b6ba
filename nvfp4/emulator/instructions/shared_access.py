"""Accesses to shared memory: bounds, alignment, bank conflicts, races, and accesses to the memory
of other CTAs of a cluster.

A shared address names the CTA that it belongs to, by its rank. A CTA's memory exists until its last
thread has ended. A thread that accesses the memory of another CTA must make sure that this CTA has
begun, has not ended and waits for the access.
"""

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.instructions.access_shape import Access, verb
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.state import races
from nvfp4.emulator.state.batch import Batch, Origin
from nvfp4.emulator.state.memory import RANK_SHIFT, READ, SHARED_WINDOW, WRITTEN, in_window
from nvfp4.emulator.state.tensor_pipe import TensorPipe

_NEEDED = "end with a barrier of the cluster (cluster.sync()) that all threads reach"


def check_rank(at: LaneSite, what: str, address: int, abroad: bool) -> int:
    """Return a shared address as its own CTA uses it. Raises if the instruction cannot access that
    CTA.

    abroad: whether the instruction can access other CTAs of the cluster.
    """
    size = at.batch.cluster_size
    rank = address >> RANK_SHIFT & 0xFF
    own = at.lane // at.batch.grid.threads % size
    plain = address & ~(0xFF << RANK_SHIFT)
    if rank == own or plain >> RANK_SHIFT or (size == 1 and not abroad):
        return address if rank != own else plain
    if rank >= size:
        ctas = "one CTA" if size == 1 else f"{size} CTAs"
        at.fault(
            errors.OutOfBounds,
            f"{what} at shared address {plain:#x} of the CTA with rank {rank}: the cluster has "
            f"{ctas}",
            hint="ranks are 0 to %cluster_nctarank - 1",
            arguments={"address": plain, "rank": rank, "ctas": size},
        )
    if not abroad:
        at.fault(
            errors.OutOfBounds,
            f"{what} at shared address {plain:#x} of the CTA with rank {rank}, by the one with "
            f"rank {own}: this instruction reaches the memory of its own CTA alone",
            hint="use the form with .shared::cluster where there is one",
            arguments={"address": plain, "rank": rank},
        )
    return plain


def ranks_in(at: LaneSite, mask: int) -> list[int]:
    """The ranks of the CTAs in a multicast's mask. Raises if the cluster does not have them."""
    size = at.batch.cluster_size
    if mask >> size:
        at.fault(
            errors.OutOfBounds,
            f"multicast to the CTAs {mask:#x}, but the cluster has {size}",
            hint="bit r of the mask is for the CTA with rank r",
            arguments={"mask": mask, "ctas": size},
        )
    return [rank for rank in range(size) if mask >> rank & 1]


def owner(at: LaneSite, offset: int) -> str:
    """Return ` of CTA ...` for the CTA that owns a byte; empty if it is the lane's own CTA."""
    batch = at.batch
    row = batch.shared.row_of(offset)
    return "" if row == at.lane // batch.grid.threads else f" of {_cta(batch, row)}"


def _cta(batch: Batch, row: int) -> str:
    place, _ = batch.coordinates(row * batch.grid.threads)
    return f"CTA {place} (rank {row % batch.cluster_size})"


class _Visits:
    """The latest access by each warp of a cluster to the memory of each of its CTAs.

    The copy engine of each CTA counts as a warp, too; for a CTA's own engine it is the latest copy
    from that memory to another CTA. clock: int32[CTAs, warps and engines], 0 for none. last:
    instruction and lane of the access, by (CTA, warp).
    """

    def __init__(self, batch: Batch) -> None:
        self.clock = np.zeros((batch.grid.ctas, batch.first_pipe), np.int32)
        self.last: dict[tuple[int, int], LaneSite] = {}


def visit(
    batch: Batch,
    site: Site,
    offset: Array,
    lanes: Array,
    engine: bool = False,
    nbytes: int = 0,
    flag: int = WRITTEN,
) -> None:
    """Record that these lanes access `nbytes` of data, 0 for an mbarrier, in shared memory of any
    CTA of their clusters. engine: the copy engine does it. Raises if the CTA has ended."""
    if batch.cluster_size == 1 or not lanes.size:
        return
    rows = offset.astype(np.int64) // batch.shared.stride
    foreign = np.flatnonzero(rows != batch.grid.cta[lanes])
    if not foreign.size:
        return
    warps = batch.engine_warps(lanes) if engine else batch.clusters.thread[lanes] >> 5
    rows, lanes, warps = rows[foreign], lanes[foreign], warps[foreign]
    batch.traffic.count("peer", flag == WRITTEN, nbytes * foreign.size)
    gone = np.flatnonzero(~batch.cta_alive()[rows])
    if gone.size:
        first = int(gone[0])
        what = f"access to shared memory of {_cta(batch, int(rows[first]))}, which has ended"
        site.lane(batch, lanes[first]).fault(errors.ExitedPeer, what, hint=_NEEDED)
    if not batch.shared.checked:
        return
    visits, clusters = batch.kept(_Visits), batch.clusters
    if nbytes and not visits.clock[rows, warps].all():
        _note_unbegun(batch, site, rows, lanes)
    visits.clock[rows, warps] = batch.shared.clocks.known[clusters.cta[lanes], warps, warps]
    first_of = np.unique(np.stack((rows, warps)), axis=1, return_index=True)[1]
    for i in first_of.tolist():
        visits.last[int(rows[i]), int(warps[i])] = site.lane(batch, lanes[i])


def _note_unbegun(batch: Batch, site: Site, rows: Array, lanes: Array) -> None:
    """Note a lane that accesses the shared memory of a CTA of which its warp has heard nothing."""
    size, clusters = batch.grid.warps, batch.clusters
    known = batch.shared.clocks.known[clusters.cta[lanes], clusters.thread[lanes] >> 5]
    first = rows % batch.cluster_size * size
    heard = np.take_along_axis(known, first[:, None] + np.arange(size), 1).any(axis=1)
    early = np.flatnonzero(~heard & (batch.cluster_barrier.seen(lanes) == 0))
    if early.size:
        peer = _cta(batch, int(rows[early[0]]))
        site.lane(batch, lanes[early[0]]).note(
            errors.UnbegunPeer,
            f"access to shared memory of {peer}, which may not have begun",
            "begin with a barrier of the cluster (cluster.sync()) that all threads reach",
        )


def send(at: LaneSite) -> None:
    """Record that the copy engine of a lane's CTA reads the CTA's shared memory and signals an
    mbarrier."""
    batch = at.batch
    if batch.cluster_size == 1 or not batch.shared.checked:
        return
    visits, row, engine = batch.kept(_Visits), at.lane // batch.grid.threads, batch.engine(at.lane)
    cluster, warp = at.lane // batch.clusters.threads, engine >> 5
    visits.clock[row, warp] = batch.shared.clocks.known[cluster, warp, warp]
    visits.last[row, warp] = at


def leave(batch: Batch, lanes: Array) -> None:
    """Note accesses to the shared memory of these lanes' CTAs that may come after the CTA has
    ended."""
    if batch.cluster_size == 1 or not batch.shared.checked:
        return
    visits = batch.kept(_Visits)
    alive = batch.cta_alive()
    for row in distinct(batch.grid.cta[lanes]).tolist():
        if alive[row]:
            continue
        known = batch.shared.clocks.of_cta(row)[: visits.clock.shape[1]]
        for warp in np.flatnonzero(visits.clock[row] > known).tolist():
            at = visits.last[row, warp]
            what = "copy out of" if at.lane // batch.grid.threads == row else "access to"
            at.note(
                errors.ExitedPeer,
                f"{what} shared memory of {_cta(batch, row)}, which may have ended by then: it "
                "does not wait for this",
                hint=_NEEDED,
            )


_COPY = "an asynchronous copy"
_FLAG_LOADS = frozenset(("relaxed", "acquire"))
_FLAG_STORES = frozenset(("relaxed", "release"))


def locate(batch: Batch, access: Access, address: Array, lanes: Array, flag: int) -> Array:
    """Offsets in the batch's shared memory, checked and counted. address: as of
    `SharedMemory.visit`."""
    shared, nbytes = batch.shared, access.nbytes
    if address.dtype != np.uint64:
        address = address.astype(np.uint64)
    if access.space == "generic" or (address.size and address[0] >= SHARED_WINDOW):
        address = in_window(address)
    align, abroad = min(access.alignment, 16), access.abroad
    spent = np.zeros(batch.grid.ctas, np.int64)
    offset, visited = shared.visit(address, lanes, nbytes, align, abroad, spent)
    bad, requests, passes, least_passes = visited
    if bad >= 0:
        what = f"{verb(flag)} of {nbytes} bytes"
        at = access.site.lane(batch, lanes[bad])
        check_bounds(at, what, int(address[bad]), nbytes, align, abroad)
        at.fault(errors.OutOfBounds, f"{what} at shared address {int(address[bad]):#x}")
    if nbytes & 15 and shared.checked:
        races.split(shared.stamps, offset, nbytes)
    if abroad:
        visit(batch, access.site, offset, lanes, nbytes=nbytes, flag=flag)
    traffic = batch.traffic
    traffic.bank_conflicts += passes - least_passes
    traffic.shared_requests += requests
    asked = batch.launch.work.asked[access.site.instruction.start]
    if flag == READ and access.strong and address.size:
        thread = int(batch.numbers[0]) << 32 | int(lanes[0])
        batch.launch.work.look(access.site.instruction.start, thread, address)
    asked.shared_requests += requests
    asked.passes += passes
    if address.size < lanes.size:  # all CTAs do the same
        spent[:] = spent[0]
    batch.launch.work.spend(access.site.instruction.start, spent)
    if batch.launch.tally is not None:
        batch.launch.tally.shared_access(
            access.site.instruction, nbytes, address, lanes[: address.size], visited
        )
    traffic.count("shared", flag == WRITTEN, nbytes * lanes.size)
    return offset


def check_bounds(
    at: LaneSite, what: str, address: int, nbytes: int, align: int, abroad: bool = False
) -> None:
    """Raise unless a range of shared addresses is aligned and inside the CTA's memory.

    If the instruction can access other CTAs, the memory of any CTA of the cluster is allowed.
    """
    address = check_rank(at, what, address, abroad)
    if address % align:
        at.fault(
            errors.Misaligned,
            f"{what} at misaligned shared address {address:#x}",
            hint=f"the address must be a multiple of {align}",
            arguments={"address": address, "bytes": nbytes, "alignment": align},
        )
    low, size = at.batch.shared.base, at.batch.shared.size
    if not low <= address <= low + size - nbytes:
        at.fault(
            errors.OutOfBounds,
            f"{what} at shared address {address:#x}, outside the CTA's shared memory "
            f"[{low:#x}, {low + size:#x}) of {size} bytes",
            arguments={"address": address - low, "bytes": nbytes, "shared_bytes": size},
        )


def note_reads(batch: Batch, site: Site, nbytes: int, offset: Array, lanes: Array) -> None:
    """Note bytes that others write with no barrier in between; remember a read of bytes that
    nothing has written. A load of a flag acquires what atomics have released there."""
    shared, team = batch.shared, batch.clusters
    clocks = shared.clocks
    flag = not _FLAG_LOADS.isdisjoint(site.parts)
    if flag:
        early = races.unwritten_flag(
            offset, nbytes, lanes, team.threads, clocks.known, shared.stamps
        )
        if early >= 0:
            address = shared.address(offset[early])
            site.lane(batch, lanes[early]).note(
                errors.UninitialisedShared,
                f"read of a flag at shared address {address:#x}, which may come before anything is "
                "written there: nothing orders it behind the first store",
                "clear the flag, and let a barrier of all who use it pass before it is set",
            )
        clocks.meet_by_atomics(offset, team.cta[lanes], team.thread[lanes] >> 5, tells=False)
    site.record_access(batch, "shared", offset, nbytes, lanes, writes=False)
    bad, fault, stamp, count, unwritten = races.note_reads(
        offset, nbytes, lanes, team.threads, clocks.known, clocks.touched, shared.stamps,
        site.instruction.line in batch.launch.apart.under_way, flag, batch.launch.asked.salt
    )  # fmt: skip
    if unwritten >= 0 and not batch.launch.tracks_memory:
        origin = f"shared address {shared.address(offset[unwritten]):#x}"
        batch.launch.undefined_memory.setdefault(
            site.instruction.line,
            Origin(errors.UninitialisedShared, f"{origin}, which nothing has written"),
        )
    if fault:
        _note(site.lane(batch, lanes[bad]), READ, nbytes, int(offset[bad]), fault, stamp, count)


def stores_flags(site: Site) -> bool:
    """Whether other threads may read the stored bytes at the same time."""
    return site.parts[0] == "st" and not _FLAG_STORES.isdisjoint(site.parts)


def note_writes(
    batch: Batch, site: Site, nbytes: int, offset: Array, lanes: Array, data: Array,
    atomic: bool = False, issued: bool = False
) -> None:  # fmt: skip
    """Write data[element, i], and note it if it is a race. Atomics are recorded only, and so are
    issued copies, which the copy engine writes later."""
    shared, team, clocks = batch.shared, batch.clusters, batch.shared.clocks
    if shared.undefined is not None and not issued:
        shared.undefined[offset.astype(np.int64)[:, None] + np.arange(nbytes)] = 0
    new = np.ascontiguousarray(data.T).view(np.uint8).reshape(data.shape[1], -1)
    site.record_access(batch, "shared", offset, nbytes, lanes, True, atomic, engine=issued)
    note_overwritten(batch, site, nbytes, offset, lanes)
    bad, fault, stamp, count = races.note_writes(
        offset, nbytes, lanes, team.threads, clocks.known, clocks.touched, shared.stamps, atomic,
        team.threads if issued else 0, shared.data, new
    )  # fmt: skip
    if fault:
        at = site.lane(batch, lanes[bad])
        _note(at, WRITTEN, nbytes, int(offset[bad]), fault, stamp, count, issued)


def note_overwritten(batch: Batch, site: Site, nbytes: int, offset: Array, lanes: Array) -> None:
    """Note writes, by lanes or by the copy engine for them, to bytes that a tensor core may still
    read."""
    pipes = batch.held(TensorPipe)
    found = None if pipes is None else pipes.overwritten(offset, nbytes, lanes)
    if found is None:
        return
    which, place = found[0], found[1].place
    address, opcode = batch.shared.address(int(offset[which])), place.site.opcode
    site.lane(batch, lanes[which]).note(
        errors.TensorRace,
        f"write at shared address {address:#x}, which {opcode} may still read: no wait for a "
        "tcgen05.commit behind it lies between",
        "wait for the mbarrier that tcgen05.commit arrives at",
        related=[errors.Related("it is read here", place.location())],
    )


def meet_by_atomics(batch: Batch, site: Site, offset: Array, lanes: Array) -> None:
    """Call `Clocks.meet_by_atomics` for the warps of these lanes. Only a store may be relaxed: all
    atomics count as releases."""
    cluster, warp = batch.clusters.cta[lanes], batch.clusters.thread[lanes] >> 5
    acquires, relaxed = site.parts[0] == "atom", site.parts[0] == "st" and "relaxed" in site.parts
    batch.shared.clocks.meet_by_atomics(offset, cluster, warp, acquires, relaxed=relaxed)


def clocks_of(batch: Batch, lanes: Array) -> Array:
    """Return the clocks of the warps of these lanes: int32[lanes]."""
    warp = batch.clusters.thread[lanes] >> 5
    return np.asarray(batch.shared.clocks.known[batch.clusters.cta[lanes], warp, warp])


def note_landing(batch: Batch, nbytes: int, offset: Array, lanes: Array, at: Array) -> None:
    """Record the copies that have been waited for as writes of these lanes. at: the clock of the
    lane's warp at which each counts as written."""
    shared, team, clocks = batch.shared, batch.clusters, batch.shared.clocks
    if shared.undefined is not None:
        shared.undefined[offset.astype(np.int64)[:, None] + np.arange(nbytes)] = 0
    if shared.checked:
        races.note_landing(offset, nbytes, lanes, team.threads, at, clocks.touched, shared.stamps)


def note_proxy_fence(batch: Batch, lanes: Array) -> None:
    """Order the accesses that these threads know of before later ones by the copy engine."""
    if batch.shared.checked and lanes.size:
        batch.shared.clocks.fence_proxies(*batch.clusters.warps_of(lanes))


def note_thread_fence(batch: Batch, lanes: Array) -> None:
    """Order the accesses that these threads know of before their own relaxed arrivals."""
    if batch.shared.checked and lanes.size:
        batch.shared.clocks.order(*batch.clusters.warps_of(lanes))


def seen_at(
    at: LaneSite, offset: int, nbytes: int, stamp: int, engine: bool = False
) -> errors.Seen:
    """Return the record of an access that races with the access that left a stamp."""
    shared, other = at.batch.shared, _who_left(at, stamp)
    home = int(at.batch.numbers[shared.row_of(offset)])
    return at.seen("shared", shared.address(offset), nbytes, other, home, engine)


def _who_left(at: LaneSite, stamp: int) -> tuple[int, int]:
    """The linear CTA and the thread in it that left a stamp; thread is the block's size for the
    copy engine."""
    batch = at.batch
    cluster = int(batch.cluster_numbers(batch.clusters.cta[[at.lane]])[0])
    return batch.member(cluster, int(stamp & races.THREAD) - 1)


def _note(
    at: LaneSite, flag: int, nbytes: int, offset: int, fault: int, stamp: int, count: int,
    engine: bool = False
) -> None:  # fmt: skip
    address = at.batch.shared.address(offset)
    other = stamped_by(at, stamp, _COPY)
    where = f"shared address {address:#x}{owner(at, offset)}"
    what = f"{verb(flag)} of {nbytes} bytes at {where} races with {other}"
    seen = seen_at(at, offset, nbytes, stamp, engine)
    if fault == races.RACE_IN_WARP:
        what += " of the same warp: no __syncwarp lies between their accesses"
        at.note(errors.UnorderedLanes, what, "put a __syncwarp between the two", count, seen)
        return
    hint = "put a barrier between the two"
    if other == _COPY:
        hint = "wait for the copy, then let a barrier pass"
    elif seen.other[0] != seen.cta:
        hint = "put a barrier of the cluster between the two"
    at.note(errors.SharedRace, f"{what}: no barrier lies between their accesses", hint, count, seen)


def stamped_by(at: LaneSite, stamp: int, copy: str) -> str:
    """Return the name of the thread that left a stamp in the lane's cluster, or `copy` if the copy
    engine did."""
    cta, thread = _who_left(at, stamp)
    if thread >= at.batch.grid.threads:
        return copy
    there, who = at.batch.place(cta, thread)
    other = cta != at.batch.numbers[at.lane // at.batch.grid.threads]
    return f"thread {who}" + (f" of CTA {there}" if other else "")
