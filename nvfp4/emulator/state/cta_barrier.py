"""A barrier of the CTAs of a batch: who has come, who waits, and when it opens."""

from dataclasses import dataclass

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.group import Grid


@dataclass
class Waiting:
    """Lanes that a barrier keeps, and the block where they go on."""

    lanes: Array
    block: int


@dataclass
class Opening:
    """What happened when a barrier opened.

    ctas: CTAs where it opened. came, stayed: bool[CTAs, warps], warps that arrived and warps that
    waited. released: lanes that go on.
    """

    ctas: Array
    came: Array
    stayed: Array
    released: list[Waiting]


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

    def untouched(self) -> bool:
        """Whether nobody has arrived since it last opened."""
        return not self.waiting and not self.arrived.any()

    def arrive(self, lanes: Array, expected: Array, votes: Array | None, stay: bool) -> None:
        """These lanes arrive. expected: threads, one entry a lane, 0 for all that live."""
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
        """These lanes go on at a block once the barrier opens."""
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
        kept, self.waiting = self.waiting, []
        released = []
        for waiting in kept:
            free = done[self.grid.cta[waiting.lanes]]
            if free.any():
                released.append(Waiting(waiting.lanes[free], waiting.block))
            self.keep(waiting.lanes[~free], waiting.block)
        return Opening(ctas, came, stayed, released)

    def status(self, waiting: Waiting) -> str:
        """What these lanes wait for, in words."""
        cta = int(self.grid.cta[waiting.lanes[0]])
        count = int(self.expected[cta]) or "all living"
        return f"{self.name} ({int(self.arrived[cta])} of {count} threads)"


# The registers that tell the time, with their register classes.
