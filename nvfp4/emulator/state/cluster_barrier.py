"""The barrier of a cluster, at which threads arrive first and wait later.

What a thread did before it arrived is known to those that have waited; what it does in between is
not. An arrival that is relaxed tells only what a fence before it has covered.
"""

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.cta_barrier import Opening, Waiting
from nvfp4.emulator.state.group import Grid
from nvfp4.emulator.state.races import Clocks


class ClusterBarrier:
    """The barriers of all clusters of a batch.

    grid: of clusters. came: bool[clusters, threads], who has arrived in the phase under way. owes:
    who has arrived, and not yet waited for that. phases: int64[clusters], how many have completed.
    """

    def __init__(self, grid: Grid, clocks: Clocks) -> None:
        self.grid = grid
        self.clocks = clocks
        self.came = np.zeros((grid.ctas, grid.threads), np.bool_)
        self.owes = self.came.copy()
        self.phases = np.zeros(grid.ctas, np.int64)
        self.waiting: list[Waiting] = []
        columns = clocks.known.shape[2]
        self._told = np.zeros((grid.ctas, columns), np.int32)
        self._heard = self._told.copy()

    @property
    def arrived(self) -> Array:
        """Whether anybody has arrived: bool[clusters]."""
        return np.asarray(self.came.any(axis=1))

    def _warps(self, lanes: Array) -> tuple[Array, Array]:
        warps = np.unique(self.grid.warp[lanes])
        return divmod(warps, self.grid.warps)

    def seen(self, lanes: Array) -> Array:
        """How many phases these lanes have waited for, or passed without arriving: int64[lanes]."""
        where = self.grid.cta[lanes], self.grid.thread[lanes]
        seen: Array = self.phases[where[0]] - (self.owes[where] & ~self.came[where])
        return seen

    def arrive(self, lanes: Array, releases: bool) -> None:
        """These lanes arrive. releases: what they did before is told."""
        cluster, warp = self._warps(lanes)
        told = self.clocks.known if releases else self.clocks.ordered
        np.maximum.at(self._told, cluster, told[cluster, warp])
        self.clocks.known[cluster, warp, warp] += 1
        where = self.grid.cta[lanes], self.grid.thread[lanes]
        self.came[where] = self.owes[where] = True

    def wait(self, lanes: Array, block: int) -> Array:
        """These lanes wait, and those that have to are kept; returns the others. block: where they
        go on."""
        where = self.grid.cta[lanes], self.grid.thread[lanes]
        still = self.came[where]
        if still.any():
            self.waiting.append(Waiting(lanes[still], block))
        self._pass(lanes[~still])
        return lanes[~still]

    def _pass(self, lanes: Array) -> None:
        """These lanes have seen their phase complete."""
        if lanes.size:
            self.owes[self.grid.cta[lanes], self.grid.thread[lanes]] = False
            cluster, warp = self._warps(lanes)
            known = np.maximum(self.clocks.known[cluster, warp], self._heard[cluster])
            self.clocks.known[cluster, warp] = known

    def open(self, alive: Array) -> Opening | None:
        """Complete the phase where all living threads have arrived; None if there is none."""
        done = self.arrived & (self.came | ~alive.reshape(self.came.shape)).all(axis=1)
        if not done.any():
            return None
        self.came[done] = False
        self.phases[done] += 1
        self._heard[done] = self._told[done]
        kept, self.waiting = self.waiting, []
        released = []
        for waiting in kept:
            free = done[self.grid.cta[waiting.lanes]]
            if free.any():
                self._pass(waiting.lanes[free])
                released.append(Waiting(waiting.lanes[free], waiting.block))
            if not free.all():
                self.waiting.append(Waiting(waiting.lanes[~free], waiting.block))
        none = np.zeros(0, np.bool_)
        return Opening(np.flatnonzero(done), none, none, released)

    def status(self, waiting: Waiting) -> str:
        """What these lanes wait for, in words."""
        came = self.came[self.grid.cta[waiting.lanes[0]]]
        return f"the barrier of the cluster ({int(came.sum())} threads have come)"
