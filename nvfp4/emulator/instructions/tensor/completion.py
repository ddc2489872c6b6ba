"""tcgen05.commit and tcgen05.fence: when the tensor pipe is done, and which threads know it."""

from functools import partial

import numpy as np

from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.instructions import copy_engine, mbarrier_objects, shared_access
from nvfp4.emulator.instructions.action import Action, Site, instruction
from nvfp4.emulator.instructions.tensor.issue import ONE_GROUP, Team, group_of, issuing_teams, join
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.tensor_pipe import TensorPipe


@instruction(
    "tcgen05.commit", operands="[] b16?",
    modifiers=f"{ONE_GROUP} mbarrier::arrive::one shared shared::cta shared::cluster "
    "multicast::cluster b64",
)  # fmt: skip
def commit(site: Site) -> Action:
    """tcgen05.commit.cta_group.mbarrier::arrive::one{.shared::cluster}{.multicast::cluster}.b64
    [mbar]{, ctaMask}: one arrival once all that the thread has issued is complete."""
    group = group_of(site)
    site.takes(2 if "multicast::cluster" in site.parts else 1)

    def run(ex: Execution, *operands: Array) -> None:
        for team, (mbar, *mask) in issuing_teams(site, ex, operands, group):
            join(team.at(0), group)
            pipes = ex.batch.kept(TensorPipe)
            counts, targets = pipes.latest[team.lanes], [mbar]
            if mask:
                ranks = shared_access.ranks_in(team.at(0), mask[0])
                targets = [copy_engine.with_rank(mbar, rank) for rank in ranks]
            for each in targets:
                if not pipes.late:
                    _arrive(team, each, counts)
                    continue
                for i in range(team.lanes.size):
                    one = team._replace(lanes=team.lanes[i : i + 1])
                    arrive = partial(_arrive, one, each, counts[i : i + 1])
                    copy_engine.postpone(team.at(i), each, arrive)

    return site.action("barrier", run)


def _arrive(team: Team, mbar: int, counts: Array) -> int:
    """Record that `counts` operations are complete. Returns how many bytes the mbarrier gets: 0."""
    site, batch, lanes = team
    pipes = batch.kept(TensorPipe)
    where, abroad = np.full(lanes.size, mbar, np.uint64), "shared::cta" not in site.parts
    offset = mbarrier_objects.locate(site, batch, where, lanes, abroad)
    if distinct(offset).size < lanes.size:  # the first arrival may end the phase
        for i in range(lanes.size):
            _arrive(team._replace(lanes=lanes[i : i + 1]), mbar, counts[i : i + 1])
        return 0
    mbarrier_objects.release(batch, offset, lanes)
    if batch.shared.checked:
        mbarrier_objects.tell(batch, offset, pipes.column(lanes // batch.grid.threads), counts)
    for lane, count in zip(lanes.tolist(), counts.tolist(), strict=True) if pipes.late else ():
        pipes.of_lane(lane).perform(count)
    nothing = np.zeros(lanes.size, np.int64)
    mbarrier_objects.change(site, batch, offset, lanes, nothing + 1, nothing)
    return 0


@instruction(
    "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync",
    operands="", modifiers="",
)  # fmt: skip
def fence(site: Site) -> Action:
    """tcgen05.fence::before_thread_sync and after_thread_sync: order a warp's operations before or
    after those of other warps, together with a barrier."""
    before = "fence::before_thread_sync" in site.parts

    def run(ex: Execution) -> None:
        if not ex.batch.shared.checked:
            return
        lanes, fences = ex.lanes(), ex.batch.kept(TensorPipe).fences
        clusters, warps = ex.batch.clusters.warps_of(lanes)
        if not before:
            ex.batch.shared.clocks.learn_seen(clusters, warps)
        for place in zip(clusters.tolist(), warps.tolist(), strict=True):
            (fences.before if before else fences.after)(*place)
        if before:
            shared_access.note_thread_fence(ex.batch, lanes)  # for relaxed arrivals

    return Action("special", [], [], run)
