"""The sixteen barriers of each CTA, and the cluster barrier of a cluster of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nvfp4.emulator.engine.action import Site
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.errors import BarrierMisuse

Array = np.ndarray[Any, Any]

COUNT = 16


@dataclass
class _Waiting:
    """Lanes that a barrier keeps, and the block where they go on."""

    lanes: Array
    place: int


class Barrier:
    """One barrier number in all CTAs of a batch.

    A thread counts once; where the block ends inside a warp, its last thread counts for the
    missing ones too. Without a count given, all living threads of the CTA are expected.
    """

    def __init__(self, batch: Batch, name: str):
        ctas, threads = batch.grid.ctas, batch.grid.threads
        self.batch = batch
        self.name = name
        self.weight = np.ones(threads, np.int64)
        self.weight[batch.thread_count :] = 0
        self.weight[batch.thread_count - 1] += threads - batch.thread_count
        self.arrived = np.zeros(ctas, np.int64)
        self.expected = np.zeros(ctas, np.int64)
        self.came = np.zeros((ctas, threads), np.bool_)
        self.stays = np.zeros((ctas, threads), np.bool_)
        self.ones = np.zeros(ctas, np.int64)
        self.outcome = np.zeros((ctas, 2), np.int64)
        self.waiting_lanes: list[_Waiting] = []

    def untouched(self) -> bool:
        return not self.waiting_lanes and not self.arrived.any()

    def arrive(
        self, site: Site, lanes: Array, count: Array | None, votes: Array | None, sync: bool
    ) -> None:
        """These lanes arrive; count: expected threads, one entry a lane, or None for all."""
        grid = self.batch.grid
        cta, thread = grid.cta[lanes], grid.thread[lanes]
        wanted = np.zeros(lanes.size, np.int64) if count is None else count.astype(np.int64)
        begun = self.arrived[cta] > 0
        conflict = np.flatnonzero(begun & (self.expected[cta] != wanted))
        if conflict.size:
            lane = int(lanes[conflict[0]])
            raise site.fail(
                BarrierMisuse,
                f"{self.name} is given a count of {int(wanted[conflict[0]]) or 'all threads'} "
                f"while others wait with {int(self.expected[cta[conflict[0]]]) or 'all threads'}",
                self.batch,
                lane,
            )
        twice = np.flatnonzero(self.came[cta, thread])
        if twice.size:
            raise site.fail(
                BarrierMisuse,
                f"the thread arrives at {self.name} twice before it completes",
                self.batch,
                int(lanes[twice[0]]),
            )
        self.expected[cta] = wanted
        self.came[cta, thread] = True
        if sync:
            self.stays[cta, thread] = True
        self.arrived += np.bincount(cta, weights=self.weight[thread], minlength=grid.ctas).astype(
            np.int64
        )
        if votes is not None:
            self.ones += np.bincount(
                cta, weights=votes.astype(np.float64), minlength=grid.ctas
            ).astype(np.int64)

    def keep(self, lanes: Array, place: int) -> None:
        """These lanes go on at a block once the barrier opens."""
        if lanes.size:
            self.waiting_lanes.append(_Waiting(lanes, place))

    def complete(self) -> None:
        """Open the barrier in every CTA where enough threads have come."""
        batch = self.batch
        living = batch.alive.reshape(self.came.shape) @ self.weight
        needed = np.where(self.expected > 0, self.expected, np.maximum(living, 1))
        done = (self.arrived > 0) & (self.arrived >= needed)
        if not done.any():
            return
        batch.traffic.barriers += int(np.count_nonzero(done))
        self.outcome[done, 0] = self.ones[done]
        self.outcome[done, 1] = self.came[done].sum(axis=1)
        if batch.shared.checked:
            ctas = np.flatnonzero(done)
            warps = (ctas.size, batch.grid.warps, 32)
            came = np.any(self.came[ctas].reshape(warps), axis=2)
            stays = np.any(self.stays[ctas].reshape(warps), axis=2)
            batch.shared.clocks.meet(ctas, np.asarray(came), np.asarray(stays))
        self.arrived[done] = self.ones[done] = 0
        self.came[done] = self.stays[done] = False
        left = []
        released = []
        for waiting in self.waiting_lanes:
            free = done[batch.grid.cta[waiting.lanes]]
            if free.any():
                released.append(_Waiting(waiting.lanes[free], waiting.place))
            if not free.all():
                left.append(_Waiting(waiting.lanes[~free], waiting.place))
        self.waiting_lanes = left
        for waiting in released:
            batch.scheduler.release(waiting.lanes, waiting.place)

    def left(self, batch: Batch, lanes: Array) -> None:
        """Some threads exited; those that wait may need fewer now."""
        if self.arrived.any():
            self.complete()

    def waiting(self) -> list[tuple[str, Array]]:
        """For the report of a deadlock."""
        found = []
        for waiting in self.waiting_lanes:
            cta = int(batch_cta(self.batch, waiting.lanes))
            count = int(self.expected[cta]) or "all living"
            found.append(
                (f"{self.name} ({int(self.arrived[cta])} of {count} threads)", waiting.lanes)
            )
        return found


def batch_cta(batch: Batch, lanes: Array) -> int:
    """CTA of the first of these lanes."""
    return int(batch.grid.cta[lanes[0]])


def barrier(batch: Batch, number: int | str) -> Barrier:
    """The barrier with a number, or the one named "cluster"."""
    table: dict[int | str, Barrier] = batch.state.setdefault("barriers", {})
    if number not in table:
        name = "the cluster barrier" if number == "cluster" else f"barrier {number}"
        table[number] = Barrier(batch, name)
        batch.scheduler.parked.append(table[number])
    return table[number]


def numbers(
    site: Site, batch: Batch, group: Group, guard: Array | None, which: Array
) -> list[tuple[int, Array]]:
    """(barrier number, positions in the group) of the lanes that take part."""
    if which.size == 1 and guard is None:
        _check_number(site, batch, group, int(which.reshape(-1)[0]), 0)
        return [(int(which.reshape(-1)[0]), np.arange(group.lanes.size))]
    flat = group.spread(which)
    active = np.ones(flat.size, np.bool_) if guard is None else group.spread(guard)
    found = []
    for number in np.unique(flat[active]).tolist():
        positions = np.flatnonzero(active & (flat == number))
        _check_number(site, batch, group, number, int(positions[0]))
        found.append((number, positions))
    return found


def _check_number(site: Site, batch: Batch, group: Group, number: int, position: int) -> None:
    if number >= COUNT:
        raise site.fail(
            BarrierMisuse,
            f"barrier {number} does not exist: a CTA has barriers 0 to {COUNT - 1}",
            batch,
            int(group.lanes[position]),
        )
