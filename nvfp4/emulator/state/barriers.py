"""The barriers of a batch, of CTAs and of clusters: arrivals, waits, and when one opens.

At the barrier of a cluster threads arrive first and wait later. What a thread did before it arrived
is known to those that have waited; what it does in between is not. An arrival that is relaxed tells
only what a fence before it has covered.
"""

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.group import Grid
from nvfp4.emulator.state.races import Clocks
from nvfp4.records.base import Record

BARRIERS = 16
"""The barriers of a CTA."""


class Waiting(Record, frozen=False):
    """Lanes that a barrier keeps, and the block where they go on."""

    lanes: Array
    block: int


class Opening(Record, frozen=False):
    """The lanes that took part when a barrier opened."""

    ctas: Array
    """The CTAs where it opened."""
    came: Array
    """Warps that arrived, bool[CTAs, warps]."""
    stayed: Array
    """Warps that waited, bool[CTAs, warps]."""
    released: list[Waiting]
    """Lanes that continue."""


def _divided(kept: list[Waiting], done: Array, grid: Grid) -> tuple[list[Waiting], list[Waiting]]:
    """Return the lanes that a barrier still holds, and the lanes it releases in CTAs where it is
    `done`."""
    parts = [(each, done[grid.cta[each.lanes]]) for each in kept]
    still, released = (
        [Waiting(each.lanes[free == go], each.block) for each, free in parts if (free == go).any()]
        for go in (False, True)
    )
    return still, released


class CtaBarrier:
    """One barrier number in all CTAs of a batch.

    A thread counts once; where the block ends inside a warp, its last thread counts for the
    missing ones as well. Unless a count is given, all living threads of the CTA are expected.

    arrived, expected, ones (votes for true): int64[CTAs]; expected is 0 for all living threads.
    came, stays: bool[CTAs, threads]. outcome: (votes for true, votes) of the latest phase.
    """

    def __init__(self, name: str, grid: Grid, thread_count: int) -> None:
        ctas, threads = grid.ctas, grid.threads
        self.name = name
        self.grid = grid
        self.weight = np.ones(threads, np.int64)
        self.weight[thread_count:] = 0
        self.weight[thread_count - 1] += threads - thread_count
        self.arrived = np.zeros(ctas, np.int64)
        self.expected = np.zeros(ctas, np.int64)
        self.came = np.zeros((ctas, threads), np.bool_)
        self.stays = np.zeros((ctas, threads), np.bool_)
        self.ones = np.zeros(ctas, np.int64)
        self.outcome = np.zeros((ctas, 2), np.int64)
        self.waiting: list[Waiting] = []

    def arrive(self, lanes: Array, expected: Array, votes: Array | None, stay: bool) -> None:
        """Record that these lanes arrive. expected: threads, one entry a lane, 0 for all alive."""
        cta, thread = self.grid.cta[lanes], self.grid.thread[lanes]
        self.expected[cta] = expected
        self.came[cta, thread] = True
        if stay:
            self.stays[cta, thread] = True
        self.arrived += self._sum_by_cta(cta, self.weight[thread])
        if votes is not None:
            self.ones += self._sum_by_cta(cta, votes)

    def _sum_by_cta(self, cta: Array, values: Array) -> Array:
        total = np.bincount(cta, weights=values.astype(np.float64), minlength=self.grid.ctas)
        return total.astype(np.int64)

    def keep(self, lanes: Array, block: int) -> None:
        """Hold these lanes; they continue at `block` once the barrier opens."""
        if lanes.size:
            self.waiting.append(Waiting(lanes, block))

    def open(self, alive: Array) -> Opening | None:
        """Open the barrier in every CTA where enough threads have come; None if there is none."""
        living = alive.reshape(self.came.shape) @ self.weight
        needed = np.where(self.expected > 0, self.expected, np.maximum(living, 1))
        done = (self.arrived > 0) & (self.arrived >= needed)
        if not done.any():
            return None
        self.outcome[done, 0] = self.ones[done]
        self.outcome[done, 1] = self.came[done].sum(axis=1)
        ctas = np.flatnonzero(done)
        by_warp = (ctas.size, self.grid.warps, 32)
        came = np.asarray(np.any(self.came[ctas].reshape(by_warp), axis=2))
        stayed = np.asarray(np.any(self.stays[ctas].reshape(by_warp), axis=2))
        self.arrived[done] = self.ones[done] = 0
        self.came[done] = self.stays[done] = False
        self.waiting, released = _divided(self.waiting, done, self.grid)
        return Opening(ctas, came, stayed, released)

    def status(self, waiting: Waiting) -> str:
        """Describe what these lanes wait for."""
        cta = int(self.grid.cta[waiting.lanes[0]])
        count = int(self.expected[cta]) or "all living"
        return f"{self.name} ({int(self.arrived[cta])} of {count} threads)"


class ClusterBarrier:
    """The barriers of all clusters of a batch.

    grid: of clusters. came: bool[clusters, threads], threads that have arrived in the current
    phase. owes: threads that have arrived and have not yet waited for that. phases:
    int64[clusters], completed phases.
    """

    def __init__(self, grid: Grid, clocks: Clocks) -> None:
        self.grid = grid
        self.clocks = clocks
        self.came = np.zeros((grid.ctas, grid.threads), np.bool_)
        self.owes = self.came.copy()
        self.phases = np.zeros(grid.ctas, np.int64)
        self.waiting: list[Waiting] = []
        self._told = np.zeros((grid.ctas, clocks.known.shape[2]), np.int32)
        self._heard = self._told.copy()

    @property
    def arrived(self) -> Array:
        """Whether any thread has arrived: bool[clusters]."""
        return np.asarray(self.came.any(axis=1))

    def seen(self, lanes: Array) -> Array:
        """Return how many completed phases these lanes know of, int64[lanes]: all but one that they
        have arrived for and not waited for yet."""
        where = self.grid.cta[lanes], self.grid.thread[lanes]
        return self.phases[where[0]] - (self.owes[where] & ~self.came[where])

    def arrive(self, lanes: Array, releases: bool) -> None:
        """Record that these lanes arrive. releases: whether that releases earlier accesses."""
        cluster, warp = self.grid.warps_of(lanes)
        told = self.clocks.known if releases else self.clocks.ordered
        np.maximum.at(self._told, cluster, told[cluster, warp])
        self.clocks.known[cluster, warp, warp] += 1
        where = self.grid.cta[lanes], self.grid.thread[lanes]
        self.came[where] = self.owes[where] = True

    def wait(self, lanes: Array, block: int) -> Array:
        """Hold those lanes whose phase is incomplete, and return the others. block: where held
        lanes continue."""
        still = self.came[self.grid.cta[lanes], self.grid.thread[lanes]]
        if still.any():
            self.waiting.append(Waiting(lanes[still], block))
        self._pass(lanes[~still])
        return lanes[~still]

    def _pass(self, lanes: Array) -> None:
        """Record that these lanes have seen their phase complete."""
        if lanes.size:
            self.owes[self.grid.cta[lanes], self.grid.thread[lanes]] = False
            cluster, warp = self.grid.warps_of(lanes)
            known = np.maximum(self.clocks.known[cluster, warp], self._heard[cluster])
            self.clocks.known[cluster, warp] = known

    def open(self, alive: Array) -> Opening | None:
        """Complete the phase where all living threads have arrived; None if there is none."""
        done = self.arrived & (self.came | ~alive.reshape(self.came.shape)).all(axis=1)
        if not done.any():
            return None
        came = np.asarray(self.came[done].reshape(-1, self.grid.warps, 32).any(axis=2))
        self.came[done] = False
        self.phases[done] += 1
        self._heard[done] = self._told[done]
        self.waiting, released = _divided(self.waiting, done, self.grid)
        for waiting in released:
            self._pass(waiting.lanes)
        return Opening(np.flatnonzero(done), came, came, released)

    def status(self, waiting: Waiting) -> str:
        """Describe what these lanes wait for."""
        came = self.came[self.grid.cta[waiting.lanes[0]]]
        return f"the barrier of the cluster ({int(came.sum())} threads have come)"
