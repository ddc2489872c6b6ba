"""Registers seen warp by warp, and the wait for the threads of a warp."""

from __future__ import annotations

from typing import Any

import numpy as np

from nvfp4.emulator.errors import BarrierMisuse
from nvfp4.emulator.instructions.action import Gate
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.syntax import Integer
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.execution import Execution
from nvfp4.emulator.state.group import Group

ALL_LANES = Integer(0xFFFFFFFF)
"""The member mask of a whole warp."""


def ballot(warps: Array) -> Array:
    """uint32[warps] of bool[warps, 32]."""
    packed: Array = np.packbits(warps, axis=1, bitorder="little").view(np.uint32).reshape(-1)
    return packed


def by_warp(group: Group, values: Array, fill: Any = 0) -> Array:
    """One row a warp of the batch, 32 columns."""
    return group.to_batch(values, fill).reshape(-1, 32)


def present_lanes(ex: Execution) -> Array:
    """bool[warps, 32]: who executes this."""
    guard = np.ones(1, np.bool_) if ex.guard is None else ex.guard
    return by_warp(ex.group, guard, False)


def back(group: Group, rows: Array) -> Array:
    """[warps, 32] -> a register of the group."""
    return group.fold(rows.reshape(-1) if group.full else rows.reshape(-1)[group.lanes])


def member_gate(mask_source: int) -> Gate:
    """Wait for the threads in the member mask; the mask is the source with that index."""

    def gate(ex: Execution, *sources: Array) -> Array | None:
        batch, group, guard = ex
        if group.full and guard is None and batch.thread_count % 32 == 0:
            return None
        living = ballot(batch.alive.reshape(-1, 32))
        here = ballot(present_lanes(ex))
        members = by_warp(group, sources[mask_source])
        absent = members & (living & ~here)[:, None]
        ready: Array = group.spread(back(group, absent == 0))
        return ready if guard is None else ready | ~group.spread(guard)

    return gate


def whole_warps(site: Site, ex: Execution) -> Array:
    """Numbers of the warps that execute this, all 32 threads of each."""
    present = present_lanes(ex)
    warps = np.flatnonzero(present.any(axis=1))
    missing = np.flatnonzero(~present[warps].all(axis=1))
    if missing.size:
        warp = warps[missing[0]]
        site.lane(ex.batch, 32 * warp + int(present[warp].argmax())).fault(
            BarrierMisuse,
            f"{site.opcode} is executed by only {int(present[warp].sum())} threads of a warp",
            hint="all 32 must execute it together",
        )
    return warps


def synchronised(batch: Batch, present: Array) -> None:
    """The warps' threads are ordered by this: tell the race check."""
    if batch.shared.checked:
        warp = np.flatnonzero(present.any(axis=1))
        batch.shared.clocks.step_warps(warp // batch.grid.warps, warp % batch.grid.warps)
