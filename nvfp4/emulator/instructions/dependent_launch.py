"""griddepcontrol: when a programmatic launch and the one before it in the stream meet."""

from collections.abc import Callable

import numpy as np

from nvfp4.emulator.errors import EarlyAccess
from nvfp4.emulator.instructions.access_shape import verb
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, instruction
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import READ, WRITTEN
from nvfp4.records.texts import short_name


class _Waits:
    """Who has waited for the launch before: lanes, and warps by the clock at which they had."""

    def __init__(self, batch: Batch) -> None:
        self.lanes = np.zeros(batch.grid.lane.size, np.bool_)
        self.clocks = np.zeros((batch.clusters.ctas, batch.clusters.warps), np.int32)


class _Triggers:
    """Which CTAs have told that the next launch may begin: bool[CTAs]."""

    def __init__(self, batch: Batch) -> None:
        self.ctas = np.zeros(batch.grid.ctas, np.bool_)


@instruction("griddepcontrol")
def griddepcontrol(site: Site) -> Action:
    """griddepcontrol.wait, griddepcontrol.launch_dependents."""
    site.takes(0)
    site.only("wait", "launch_dependents")
    waits = "wait" in site.parts

    def wait(ex: Execution) -> None:
        lanes, hazards = ex.lanes(), ex.batch.launch.hazards
        if not lanes.size:
            return
        hazards.waited = True
        hazards.land()
        if hazards:
            found, clocks = ex.batch.kept(_Waits), ex.batch.shared.clocks
            found.lanes[lanes] = True
            cluster, warp = divmod(np.unique(lanes >> 5), ex.batch.clusters.warps)
            first = found.clocks[cluster, warp] == 0
            cluster, warp = cluster[first], warp[first]
            found.clocks[cluster, warp] = clocks.known[cluster, warp, warp]
            clocks.step_warps(cluster, warp)

    def trigger(ex: Execution) -> None:
        lanes, batch = ex.lanes(), ex.batch
        if lanes.size:
            batch.launch.hazards.triggered = True
            ctas = batch.kept(_Triggers).ctas
            ctas[batch.grid.cta[lanes]] = True
            batch.triggered = bool(ctas.all())

    return Action("special", [], [], wait if waits else trigger)


def check(
    batch: Batch, site: Site, address: Array, nbytes: int, lane: Callable[[int], int], flag: int
) -> None:
    """Note an access to what an earlier launch may still write, or a write of what it may still
    read. lane: by position."""
    hazards = batch.launch.hazards
    if not hazards or not batch.launch.check:
        return
    lanes = np.array([lane(i) for i in range(address.size)], np.int64)
    waited = _waited(batch, lanes)
    found, its = hazards.find(address, nbytes, waited), "writes"
    does = "reads" if flag == READ else "also writes"
    if found is None and flag == WRITTEN:
        found, its, does = hazards.find_read(address, nbytes, waited), "reads", "writes"
    if found is None:
        return
    first, kernel = found
    at: LaneSite = site.lane(batch, lanes[first])
    at.note(
        EarlyAccess,
        f"{verb(flag)} of {nbytes} bytes at {batch.memory.describe(int(address[first]))}, which "
        f"{short_name(kernel)}, launched before this in the stream, {its}: that may still run, as "
        f"this launch may begin early and {does} it with no griddepcontrol.wait before",
        "put cudaGridDependencySynchronize() (griddepcontrol.wait) before the access, in each "
        "launch of the chain",
    )


def _waited(batch: Batch, lanes: Array) -> Array:
    """Whether these lanes have waited, or know through a barrier that others of their cluster
    have: bool."""
    waits, clusters = batch.kept(_Waits), batch.clusters
    cluster, warp = clusters.cta[lanes], clusters.thread[lanes] >> 5
    since = waits.clocks[cluster]
    known = batch.shared.clocks.known[cluster, warp, : clusters.warps]
    others = known >= since
    others[np.arange(lanes.size), warp] = (
        known[np.arange(lanes.size), warp] > since[np.arange(lanes.size), warp] + 1
    )
    waited: Array = waits.lanes[lanes] | (others & (since > 0)).any(axis=1)
    return waited
