"""clusterlaunchcontrol: a running cluster takes over the work of one that has not started. Also
griddepcontrol, by which a programmatic launch begins early and waits for the one before it in the
stream.

The 16 bytes of a response are in a format of our own: x, y and z of the first CTA of the cluster,
32 bits each, and 1 if it has been cancelled.
"""

from functools import partial

import numpy as np

from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.errors import UnsupportedInstruction
from nvfp4.emulator.instructions import action, copy_engine
from nvfp4.emulator.instructions.bulk_copies import COMPLETION
from nvfp4.emulator.instructions.global_access import LaunchWaits, have_waited
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import WRITTEN

_RESPONSE_BYTES = 16
_NOTHING = 0xFFFFFFFF
"""Value of the first CTA of a cluster that was not cancelled, which PTX leaves undefined."""


class _Refused:
    """Rows of the CTAs in a batch that have learned that no cluster is left to cancel."""

    def __init__(self, batch: Batch) -> None:
        self.rows: set[int] = set()


@action.instruction(
    "clusterlaunchcontrol.try_cancel", operands="[] []",
    modifiers=f"async shared::cta {COMPLETION} {copy_engine.TO_ALL} b128",
)  # fmt: skip
def try_cancel(site: action.Site) -> action.Action:
    """clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes
    {.multicast::cluster::all}.b128 [addr], [mbar]: the copy engine writes the response."""
    to_all = copy_engine.TO_ALL in site.parts

    def run(ex: Execution, *operands: Array) -> None:
        batch = ex.batch
        for at, (target, mbar) in action.issuing_lanes(site, ex, operands):
            if at.lane // batch.grid.threads in batch.kept(_Refused).rows:
                at.fault(
                    UnsupportedInstruction,
                    f"{site.opcode} by a CTA that has been refused one before: what then happens "
                    "is undefined",
                    hint="stop asking when clusterlaunchcontrol.query_cancel.is_canceled is false",
                )
            number = batch.launch.not_started.cancel()
            response = np.zeros(_RESPONSE_BYTES, np.uint8)
            if number is not None:
                first, _ = batch.place(number, 0)
                response = np.array([*first, 1], np.uint32).view(np.uint8)
            places = [(target, mbar)]
            if to_all:
                places = [
                    (copy_engine.with_rank(target, rank), copy_engine.with_rank(mbar, rank))
                    for rank in range(batch.cluster_size)
                ]
            for there, told in places:
                copy_engine.deliver(at, told, partial(_respond, at, there, response))
        copy_engine.advance(batch, ex.lanes())

    return site.action("copy", run)


def _respond(at: action.LaneSite, target: int, response: Array) -> int:
    abroad = copy_engine.goes_abroad(at.site)
    offset, there = copy_engine.shared_range(at, target, _RESPONSE_BYTES, _RESPONSE_BYTES, abroad)
    copy_engine.note(at, offset, _RESPONSE_BYTES, WRITTEN)
    there[:] = response
    return _RESPONSE_BYTES


_DIMENSIONS = [f"get_first_ctaid::{each}" for each in "xyz"]


@action.instruction(
    "clusterlaunchcontrol.query_cancel", operands="_ _",
    modifiers=f"is_canceled get_first_ctaid {' '.join(_DIMENSIONS)} v4 pred b32 b128",
)  # fmt: skip
def query_cancel(site: action.Site) -> action.Action:
    """clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;
    clusterlaunchcontrol.query_cancel.get_first_ctaid{::x, ::y, ::z}.b32.b128 d, r; and
    get_first_ctaid.v4 {x, y, z, _}, r. A register of 128 bits is two of 64."""
    response = site.items(1)
    if len(response) != 2:
        raise site.unsupported(f"{site.opcode} takes a register of 128 bits")
    sources = [action.Source(each, "b64") for each in response]
    if "is_canceled" in site.parts:

        def is_canceled(ex: Execution, low: Array, high: Array) -> tuple[Array, ...]:
            done = high >> np.uint64(32) != 0
            refused = ex.group.lanes[~ex.group.spread(done) & ex.mask()]
            ex.batch.kept(_Refused).rows.update(distinct(ex.batch.grid.cta[refused]).tolist())
            return (done,)

        result = action.Result(site.operands[0], "pred")
        return action.Action("move", sources, [result], is_canceled)
    wanted = [i for i, name in enumerate(_DIMENSIONS) if name in site.parts] or [0, 1, 2]
    targets = site.items(0)
    if len(targets) not in (len(wanted), 4):
        raise site.unsupported(f"{site.opcode} gives {len(wanted)} values")

    def first_cta(low: Array, high: Array) -> tuple[Array, ...]:
        parts = low, low >> np.uint64(32), high
        done = high >> np.uint64(32) != 0
        return tuple(
            np.where(done, parts[i] & np.uint64(0xFFFFFFFF), np.uint64(_NOTHING)).astype(np.uint32)
            for i in wanted
        )

    results = [action.Result(target, "b32") for target in targets[: len(wanted)]]
    return action.Action("move", sources, results, first_cta, pure=True)


class _Triggers:
    """The CTAs that have executed griddepcontrol.launch_dependents: bool[CTAs]."""

    def __init__(self, batch: Batch) -> None:
        self.ctas = np.zeros(batch.grid.ctas, np.bool_)


@action.instruction("griddepcontrol", operands="", modifiers="wait|launch_dependents")
def griddepcontrol(site: action.Site) -> action.Action:
    """griddepcontrol.wait, griddepcontrol.launch_dependents."""
    waits = "wait" in site.parts

    def wait(ex: Execution) -> None:
        lanes, hazards = ex.lanes(), ex.batch.launch.hazards
        if not lanes.size:
            return
        hazards.waited = True
        hazards.land()
        if hazards:
            found, clocks = ex.batch.kept(LaunchWaits), ex.batch.shared.clocks
            found.lanes[lanes] = True
            cluster, warp = ex.batch.clusters.warps_of(lanes)
            first = found.clocks[cluster, warp] == 0
            cluster, warp = cluster[first], warp[first]
            found.clocks[cluster, warp] = clocks.known[cluster, warp, warp]
            clocks.step_warps(cluster, warp)

    def trigger(ex: Execution) -> None:
        lanes, batch = ex.lanes(), ex.batch
        if lanes.size:
            hazards, ctas = batch.launch.hazards, batch.kept(_Triggers).ctas
            cta = batch.grid.cta[lanes]
            hazards.triggered = True
            if hazards:
                too_early = cta[~have_waited(batch, lanes) | ctas[cta]]
                hazards.late |= not np.isin(cta, too_early).all()
            ctas[cta] = True
            batch.triggered = bool(ctas.all())

    return action.Action("special", [], [], wait if waits else trigger)
