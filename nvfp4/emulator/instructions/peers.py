"""What CTAs of a cluster do to each other's shared memory.

A shared address names the CTA that it belongs to, by its rank. Memory of a CTA is there until the
CTA's last thread has ended: who touches it has to make sure that it has not, and that it waits.
"""

import numpy as np

from nvfp4.emulator.errors import ExitedPeer, OutOfBounds
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.memory import RANK_SHIFT, WRITTEN

_NEEDED = "end with a barrier of the cluster (cluster.sync()) that all threads reach"


def check_rank(at: LaneSite, what: str, address: int, abroad: bool) -> int:
    """A shared address as one of its CTA. Raises if the instruction does not reach that CTA.

    abroad: whether it reaches other CTAs of the cluster.
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
            OutOfBounds,
            f"{what} at shared address {plain:#x} of the CTA with rank {rank}: the cluster has "
            f"{ctas}",
            hint="ranks are 0 to %cluster_nctarank - 1",
            arguments={"address": plain, "rank": rank, "ctas": size},
        )
    if not abroad:
        at.fault(
            OutOfBounds,
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
            OutOfBounds,
            f"multicast to the CTAs {mask:#x}, but the cluster has {size}",
            hint="bit r of the mask is for the CTA with rank r",
            arguments={"mask": mask, "ctas": size},
        )
    return [rank for rank in range(size) if mask >> rank & 1]


def owner(at: LaneSite, offset: int) -> str:
    """Whose shared memory a byte is, in words; nothing if it is the lane's own CTA's."""
    batch = at.batch
    row = batch.shared.row_of(offset)
    if row == at.lane // batch.grid.threads:
        return ""
    return f" of {_cta(batch, row)}"


def _cta(batch: Batch, row: int) -> str:
    place, _ = batch.coordinates(row * batch.grid.threads)
    return f"CTA {place} (rank {row % batch.cluster_size})"


class _Visits:
    """The latest access to the memory of each CTA by each warp, or copy engine, of its cluster; of
    the CTA's own engine, the latest copy of that memory to a CTA.

    clock: int32[CTAs, warps and engines], 0 for none. last: its instruction and lane, by
    (CTA, warp).
    """

    def __init__(self, batch: Batch) -> None:
        columns = batch.clusters.warps + batch.cluster_size
        self.clock = np.zeros((batch.grid.ctas, columns), np.int32)
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
    """These lanes access `nbytes` of data, 0 for an mbarrier, in shared memory of any CTA of their
    clusters. engine: by the copy engine. Raises if the CTA has ended."""
    if batch.cluster_size == 1 or not lanes.size:
        return
    rows = offset.astype(np.int64) // batch.shared.stride
    foreign = np.flatnonzero(rows != batch.grid.cta[lanes])
    if not foreign.size:
        return
    rows, lanes = rows[foreign], lanes[foreign]
    if flag == WRITTEN:
        batch.traffic.peer_bytes_written += nbytes * foreign.size
    else:
        batch.traffic.peer_bytes_read += nbytes * foreign.size
    gone = np.flatnonzero(~batch.cta_alive()[rows])
    if gone.size:
        first = int(gone[0])
        site.lane(batch, lanes[first]).fault(
            ExitedPeer,
            f"access to shared memory of {_cta(batch, int(rows[first]))}, which has ended",
            hint=_NEEDED,
        )
    if not batch.shared.checked:
        return
    visits, clusters = batch.kept(_Visits), batch.clusters
    warps = batch.engine_warps(lanes) if engine else clusters.thread[lanes] >> 5
    clocks = batch.shared.clocks.known[clusters.cta[lanes], warps, warps]
    visits.clock[rows, warps] = clocks
    first_of = np.unique(np.stack((rows, warps)), axis=1, return_index=True)[1]
    for i in first_of.tolist():
        visits.last[int(rows[i]), int(warps[i])] = site.lane(batch, lanes[i])


def send(at: LaneSite) -> None:
    """The copy engine of a lane's CTA reads its shared memory, and tells an mbarrier of that."""
    batch = at.batch
    if batch.cluster_size == 1 or not batch.shared.checked:
        return
    visits, row, engine = batch.kept(_Visits), at.lane // batch.grid.threads, batch.engine(at.lane)
    cluster, warp = at.lane // batch.clusters.threads, engine >> 5
    visits.clock[row, warp] = batch.shared.clocks.known[cluster, warp, warp]
    visits.last[row, warp] = at


def leave(batch: Batch, lanes: Array) -> None:
    """These lanes have ended. Note accesses to the memory of their CTAs that need not have come
    before that."""
    if batch.cluster_size == 1 or not batch.shared.checked:
        return
    visits = batch.kept(_Visits)
    alive = batch.cta_alive()
    for row in np.unique(batch.grid.cta[lanes]).tolist():
        if alive[row]:
            continue
        known = batch.shared.clocks.of_cta(row)[: visits.clock.shape[1]]
        for warp in np.flatnonzero(visits.clock[row] > known).tolist():
            at = visits.last[row, warp]
            what = "copy out of" if at.lane // batch.grid.threads == row else "access to"
            at.note(
                ExitedPeer,
                f"{what} shared memory of {_cta(batch, row)}, which may have ended by then: it "
                "does not wait for this",
                hint=_NEEDED,
            )
