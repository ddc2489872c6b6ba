"""Order that tcgen05.fence establishes between operations of different warps on tensor memory.

Between two warps the tensor pipe keeps the order only if the first has executed
tcgen05.fence::before_thread_sync behind its operation, the other tcgen05.fence::after_thread_sync
before its own, and something orders the two fences. What is known to be complete needs neither, as
waits acquire; a relaxed wait needs the second. Source: PTX ISA, Pipelined tcgen05 Instructions, and
Canonical synchronization patterns.
"""

from bisect import bisect_left

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch


class TensorFences:
    """The tcgen05 fences that the warps of a batch executed, by (cluster, warp in it)."""

    def __init__(self, batch: Batch) -> None:
        self.clocks = batch.shared.clocks
        self._before: dict[tuple[int, int], list[int]] = {}
        self._after: dict[tuple[int, int], Array] = {}
        self._relaxed: dict[tuple[int, int], tuple[int, int]] = {}

    def before(self, cluster: int, warp: int) -> None:
        """Record that a warp executes tcgen05.fence::before_thread_sync."""
        mine = self.clocks.known[cluster, warp]
        self._before.setdefault((cluster, warp), []).append(int(mine[warp]))
        mine[warp] += 1

    def after(self, cluster: int, warp: int) -> None:
        """Record that a warp executes tcgen05.fence::after_thread_sync."""
        self._after[cluster, warp] = self.clocks.known[cluster, warp].copy()
        self._relaxed.pop((cluster, warp), None)

    def missing(self, cluster: int, warp: int, clock: int, reader: int) -> str | None:
        """Which fence is missing between what a warp has issued at a clock of its own and what
        another one issues now, given that something orders the two."""
        fences = self._before.get((cluster, warp), [])
        first = bisect_left(fences, clock)
        if first == len(fences) or fences[first] >= self.clocks.known[cluster, reader, warp]:
            return "before"
        since = self._after.get((cluster, reader))
        return None if since is not None and fences[first] < since[warp] else "after"

    def relax(self, cluster: int, warp: int, count: int) -> None:
        """Record that a warp sees `count` operations complete by a wait that does not acquire."""
        mine = self.clocks.known[cluster, warp]
        mine[warp] += 1  # a fence comes before the wait or after it
        self._relaxed[cluster, warp] = count, int(mine[warp])

    def only_relaxed(self, cluster: int, warp: int, number: int) -> bool:
        """Whether a warp knows from such a wait that an operation is complete, and has neither
        executed a fence nor released since."""
        if (cluster, warp) not in self._relaxed:
            return False
        count, clock = self._relaxed[cluster, warp]
        fenced = self.clocks.ordered[cluster, warp, warp] >= clock
        told = self.clocks.known[cluster, warp, warp] > clock
        return bool(number <= count and not fenced and not told)
