"""tcgen05.commit and tcgen05.fence: when the tensor pipe is done, and who may rely on it."""

from functools import partial

import numpy as np

from nvfp4.emulator.instructions import copy_engine, mbarrier_objects, shared_access
from nvfp4.emulator.instructions.action import (
    Action,
    LaneSite,
    Site,
    Source,
    instruction,
    issuing_lanes,
)
from nvfp4.emulator.instructions.shared_access import note_thread_fence
from nvfp4.emulator.instructions.tensor.issue import (
    GROUPS,
    group_of,
    join,
    pipes_of,
    row_of,
)
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.tensor_pipe import TensorPipe

_ONE = np.ones(1, np.int64)
_NOTHING = np.zeros(1, np.int64)


@instruction("tcgen05.commit")
def commit(site: Site) -> Action:
    """tcgen05.commit.cta_group.mbarrier::arrive::one{.shared::cluster}{.multicast::cluster}.b64
    [mbar]{, ctaMask}: one arrival once all that the thread has issued is complete."""
    group = group_of(site)
    site.only(
        "commit", *GROUPS, "mbarrier::arrive::one", "shared", "shared::cta", "shared::cluster",
        "multicast::cluster", "b64",
    )  # fmt: skip
    multicast = "multicast::cluster" in site.parts
    site.takes(2 if multicast else 1)

    def run(ex: Execution, *operands: Array) -> None:
        for at, (mbar, *mask) in issuing_lanes(site, ex, operands):
            join(at, group)
            pipes = pipes_of(at)
            count = pipes.of_lane(at.lane).latest.get(at.lane, 0)
            targets = [mbar]
            if mask:
                ranks = shared_access.ranks_in(at, mask[0])
                targets = [copy_engine.with_rank(mbar, rank) for rank in ranks]
            for each in targets:
                if pipes.late:
                    copy_engine.postpone(at, each, partial(_arrive, at, each, count))
                else:
                    _arrive(at, each, count)

    sources = [Source(site.memory(0), "b64")]
    if multicast:
        sources.append(Source(site.operands[1], "b16"))
    return Action("barrier", sources, [], run)


def _arrive(at: LaneSite, mbar: int, count: int) -> int:
    """So many operations are complete. Returns the bytes that an mbarrier gets: none."""
    batch, lanes, pipes = at.batch, np.array([at.lane]), pipes_of(at)
    pipes.of_lane(at.lane).perform(count)
    where, abroad = np.array([mbar], np.uint64), "shared::cta" not in at.site.parts
    offset = mbarrier_objects.locate(at.site, batch, where, lanes, abroad)
    mbarrier_objects.release(batch, offset, lanes)
    batch.kept(Commits).told(batch, int(offset[0]), pipes.unit(row_of(at)), count)
    mbarrier_objects.change(at.site, batch, offset, lanes, _ONE, _NOTHING)
    return 0


class Commits:
    """By mbarrier, in bytes of the batch's shared memory: what commits have said was complete, the
    number of operations by the name of their pipe. of_phase: those of the phase under way, with its
    parity."""

    def __init__(self, batch: Batch) -> None:
        self.of_phase: dict[int, tuple[int, dict[int, int]]] = {}
        self.of_ended: dict[int, dict[int, int]] = {}

    def told(self, batch: Batch, offset: int, unit: int, count: int) -> None:
        """A commit arrives at an mbarrier."""
        self._settle(batch, offset)
        parity = mbarrier_objects.state_of(batch, offset).parity
        self.of_phase.setdefault(offset, (parity, {}))[1][unit] = count

    def heard(self, batch: Batch, offset: int) -> dict[int, int]:
        """What was complete when the last phase of an mbarrier ended."""
        self._settle(batch, offset)
        return self.of_ended.get(offset, {})

    def _settle(self, batch: Batch, offset: int) -> None:
        parity, counts = self.of_phase.get(offset, (0, {}))
        if counts and mbarrier_objects.state_of(batch, offset).parity != parity:
            self.of_ended.setdefault(offset, {}).update(counts)
            del self.of_phase[offset]


def learn(batch: Batch, offset: Array, lanes: Array, relaxed: bool = False) -> None:
    """These threads saw the phases of mbarriers at offsets complete. relaxed: and acquired
    nothing."""
    commits = batch.kept(Commits)
    if not batch.shared.checked or not (commits.of_phase or commits.of_ended):
        return
    pipes = batch.kept(TensorPipe)
    for place in np.unique(offset).tolist():
        for unit, count in commits.heard(batch, place).items():
            for warp in np.unique(lanes[offset == place] >> 5).tolist():
                pipes.learn(32 * warp, unit, count, relaxed)


@instruction("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")
def fence(site: Site) -> Action:
    """tcgen05.fence::before_thread_sync and after_thread_sync: what a warp's operations are to
    those of others that a barrier puts behind or before it."""
    site.only("fence::before_thread_sync", "fence::after_thread_sync")
    site.takes(0)
    before = "fence::before_thread_sync" in site.parts

    def run(ex: Execution) -> None:
        if not ex.batch.shared.checked:
            return
        lanes, fences = ex.lanes(), ex.batch.kept(TensorPipe).fences
        warps = np.unique(lanes >> 5)
        if not before:
            ex.batch.shared.clocks.learn_seen(*divmod(warps, ex.batch.clusters.warps))
        for warp in warps.tolist():
            (fences.before if before else fences.after)(*divmod(warp, ex.batch.clusters.warps))
        if before:
            note_thread_fence(ex.batch, lanes)  # for relaxed arrivals

    return Action("special", [], [], run)
