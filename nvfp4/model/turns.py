"""Whether warps that wait for each other execute one after the other, where the simulation has them
side by side: there each turn of a loop is like the next, and only copies are waited for at
mbarriers."""

from collections.abc import Sequence

import numpy as np

from nvfp4.emulator.work import Work, waits_for_memory
from nvfp4.model.machine import GLOBAL_LOADS
from nvfp4.model.paths import Trace
from nvfp4.model.sass import Code

_TIMES_AS_MANY = 1.25
"""Largest allowed ratio of what the warps of a thread block executed one after the other to what
they do in the simulation."""


class Turns:
    """The instructions that warps execute one after the other, as they wait at barriers.

    executed: of each kind of warp, how often each statement. traces: of the same kinds.
    """

    def __init__(
        self, work: Work, executed: list[dict[int, int]], traces: list[Trace], code: Code
    ) -> None:
        self.work, self.executed, self.traces, self.code = work, executed, traces, code
        bars = [at for at, opcode in work.opcodes.items() if opcode.startswith("bar")]
        again = any(row.get(at, 0) > 1 for at in bars for row in executed)
        self._meet = again or work.runs("mbarrier.t") > 0  # once at a barrier is no turn

    def are_unlike_simulated(self) -> bool:
        """Return whether a thread block executes far more instructions one after the other."""
        if not self._meet:
            return False
        clusters_meet = self.work.runs("barrier.cluster.wait") + self.work.runs("mapa") > 0
        everyone = {warp for cta in self.work.ctas for warp in cta}
        for kind, cta in enumerate(self.work.ctas):
            among = everyone if clusters_meet else set(cta)
            longest = max(sum(self.executed[warp].values()) for warp in among)
            turns = self.work.chained.get(kind, 0) / longest
            if turns > _TIMES_AS_MANY and turns > _TIMES_AS_MANY * self._simulated(cta):
                return True
        return False

    def loads(self) -> float:
        """Return how many loads more than in the simulation a warp waits for in its turn."""
        if not self._meet:
            return 0
        loads = {at for at, opcode in self.work.opcodes.items() if waits_for_memory(opcode)}
        most = max(sum(n for at, n in row.items() if at in loads) for row in self.executed)
        names = GLOBAL_LOADS | {"MEMBAR"}
        simulated = max(1.0, *(self._simulated(cta, names) for cta in self.work.ctas))
        return max(self.work.chained_loads.values()) - _TIMES_AS_MANY * simulated * most

    def _simulated(self, cta: Sequence[int], names: frozenset[str] = frozenset()) -> float:
        """Return how many instructions the simulated warps of a thread block execute one after the
        other, for each of the longest warp: those of the longest one between two barriers. names:
        to count these alone."""
        code = self.code.instructions
        barriers = [n for n, each in enumerate(code) if each.name == "BAR"]
        counts = np.array([not names or each.name in names for each in code], np.int64)
        spent = []
        for steps in {id(self.traces[warp]): self.traces[warp].steps for warp in cta}.values():
            sums = np.cumsum(counts[steps])
            spent.append(np.diff(sums[np.isin(steps, barriers)], prepend=0, append=sums[-1]))
        most = max(each.size for each in spent)
        rows = [np.pad(each, (0, most - each.size)) for each in spent]
        return float(np.max(rows, axis=0).sum() / max(1, *(each.sum() for each in spent)))
