"""barrier.cluster, at which all threads of a cluster meet."""

import numpy as np

from nvfp4.emulator.errors import BarrierMisuse
from nvfp4.emulator.instructions.action import Action, Site, instruction
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution


def _refuse(site: Site, ex: Execution, lanes: Array, wrong: Array, what: str, hint: str) -> None:
    """Raise for the first lane that is wrong."""
    found = np.flatnonzero(wrong)
    if found.size:
        site.lane(ex.batch, lanes[found[0]]).fault(BarrierMisuse, what, hint=hint)


@instruction("barrier.cluster")
def cluster(site: Site) -> Action:
    """barrier.cluster.{arrive{.release,.relaxed},wait{.acquire}}{.aligned}."""
    site.only("cluster", "arrive", "wait", "release", "acquire", "relaxed", "aligned")
    waits, releases = "wait" in site.parts, "relaxed" not in site.parts

    def run(ex: Execution, following: int) -> int | None:
        batch, lanes = ex.batch, ex.lanes()
        barrier = batch.cluster_barrier
        owes = barrier.owes[batch.clusters.cta[lanes], batch.clusters.thread[lanes]]
        if not waits:
            what = "the thread arrives at the barrier of the cluster twice without waiting for it"
            hint = "each barrier.cluster.arrive is followed by a barrier.cluster.wait"
            _refuse(site, ex, lanes, owes, what, hint)
            barrier.arrive(lanes, releases)
            batch.open_barrier(barrier)
            return following
        what = "the thread waits at the barrier of the cluster and has not arrived there"
        hint = "a barrier.cluster.arrive comes before each barrier.cluster.wait"
        _refuse(site, ex, lanes, ~owes, what, hint)
        if ex.guard is not None:
            batch.signals.release(ex.group.lanes[~ex.mask()], following)
        passed = barrier.wait(lanes, following)
        if passed.size:
            batch.signals.release(passed, following)
        return None

    return Action("barrier", [], [], run, parks=True)
