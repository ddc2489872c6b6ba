"""tcgen05.commit and tcgen05.fence: when the tensor pipe is done, and who may rely on it."""

from __future__ import annotations

from functools import partial

import numpy as np

from nvfp4.emulator.errors import UnsupportedInstruction
from nvfp4.emulator.instructions import copy_engine, mbarrier_objects
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, Source, instruction
from nvfp4.emulator.instructions.shared_access import note_thread_fence
from nvfp4.emulator.instructions.tensor.issue import (
    issuing_lanes,
    pipe_of,
    pipes_of,
    require_one_cta,
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
    require_one_cta(site)
    site.only(
        "commit", "cta_group::1", "mbarrier::arrive::one", "shared", "shared::cta",
        "shared::cluster", "multicast::cluster", "b64",
    )  # fmt: skip
    multicast = "multicast::cluster" in site.parts
    site.takes(2 if multicast else 1)

    def run(ex: Execution, *operands: Array) -> None:
        for at, (mbar, *mask) in issuing_lanes(site, ex, operands):
            if mask and mask[0] != 1:
                at.fault(
                    UnsupportedInstruction,
                    f"{site.opcode} to the CTAs of mask {mask[0]:#x} is not emulated",
                    hint="only clusters of one CTA are",
                )
            count = len(pipe_of(at).issued)
            if pipes_of(at).late:
                copy_engine.postpone(at, mbar, partial(_arrive, at, mbar, count))
            else:
                _arrive(at, mbar, count)

    sources = [Source(site.memory(0), "b64")]
    if multicast:
        sources.append(Source(site.operands[1], "b32"))
    return Action("barrier", sources, [], run)


def _arrive(at: LaneSite, mbar: int, count: int) -> int:
    """So many operations are complete. Returns the bytes that an mbarrier gets: none."""
    batch, lanes = at.batch, np.array([at.lane])
    pipe_of(at).perform(count)
    offset = mbarrier_objects.locate(at.site, batch, np.array([mbar], np.uint64), lanes)
    mbarrier_objects.release(batch, offset, lanes)
    commits = batch.kept(Commits)
    commits.told(batch, int(offset[0]), count)
    mbarrier_objects.change(at.site, batch, offset, lanes, _ONE, _NOTHING)
    return 0


class Commits:
    """By mbarrier, in bytes of the batch's shared memory: (parity of the phase under way when
    commits arrived, operations that they said were complete)."""

    def __init__(self, batch: Batch) -> None:
        self.of_phase: dict[int, tuple[int, int]] = {}
        self.of_ended: dict[int, int] = {}

    def told(self, batch: Batch, offset: int, count: int) -> None:
        """A commit arrives at an mbarrier."""
        self._settle(batch, offset)
        parity = mbarrier_objects.state_of(batch, offset).parity
        self.of_phase[offset] = parity, count

    def heard(self, batch: Batch, offset: int) -> int:
        """How many operations were complete when the last phase of an mbarrier ended."""
        self._settle(batch, offset)
        return self.of_ended.get(offset, 0)

    def _settle(self, batch: Batch, offset: int) -> None:
        parity, count = self.of_phase.get(offset, (0, 0))
        if count and mbarrier_objects.state_of(batch, offset).parity != parity:
            self.of_ended[offset] = count
            del self.of_phase[offset]


def learn(batch: Batch, offset: Array, lanes: Array, relaxed: bool = False) -> None:
    """These threads saw the phases of mbarriers at offsets complete. relaxed: and acquired
    nothing."""
    commits = batch.kept(Commits)
    if not batch.shared.checked or not (commits.of_phase or commits.of_ended):
        return
    pipes, threads, stride = batch.kept(TensorPipe), batch.grid.threads, batch.shared.stride
    for place in np.unique(offset).tolist():
        count = commits.heard(batch, place)
        if not count:
            continue
        chosen = lanes[(offset == place) & (lanes // threads == place // stride)]
        for warp in np.unique(chosen >> 5).tolist():
            pipes.learn(32 * warp, count, relaxed)


@instruction("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")
def fence(site: Site) -> Action:
    """tcgen05.fence::before_thread_sync and after_thread_sync: what a warp's operations are to
    those of others that a barrier puts behind or before it."""
    site.only("fence::before_thread_sync", "fence::after_thread_sync")
    site.takes(0)
    before = "fence::before_thread_sync" in site.parts

    def run(ex: Execution) -> None:
        lanes = ex.lanes()
        if not ex.batch.shared.checked:
            return
        pipes = ex.batch.kept(TensorPipe)
        for warp in np.unique(lanes >> 5).tolist():
            if before:
                pipes.fence_before(32 * warp)
            else:
                pipes.fence_after(32 * warp)
        if before:
            note_thread_fence(ex.batch, lanes)  # for relaxed arrivals

    return Action("special", [], [], run)
