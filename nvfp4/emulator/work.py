"""What each warp of a launch has executed, and what each statement has asked of memory."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass
class Asked:
    """Memory that a statement asked for, summed over a launch. requests: a warp's accesses, each
    counted once. sectors: of 32 bytes, distinct within a request; fresh: those of them that nothing
    in the launch had touched before. shared_requests, passes: of shared memory. copied: bytes that
    the copy engine moved.
    """

    requests: int = 0
    sectors: int = 0
    fresh: int = 0
    shared_requests: int = 0
    passes: int = 0
    copied: int = 0


@dataclass
class Work:
    """The work of a launch by kind of warp: warps that ran every basic block equally often are of
    one kind, and so are CTAs whose warps are.

    warps: int64[kinds, blocks], how often a warp of each kind ran each block. ctas: the kinds of a
    CTA's warps, for each kind of CTA. of_cta: the kind of each CTA that ran, by its number. starts:
    for each block, the positions in the PTX text of the statements in it. asked: by such a
    position. waits: whether CTAs waited for others of the launch.
    """

    warps: NDArray[np.int64]
    ctas: list[tuple[int, ...]]
    of_cta: dict[int, int]
    starts: list[list[int]]
    asked: dict[int, Asked]
    waits: bool = False

    def by_statement(self, kind: int) -> dict[int, int]:
        """How often a warp of a kind executed each statement, by its position in the PTX text."""
        runs: dict[int, int] = defaultdict(int)
        for starts, times in zip(self.starts, self.warps[kind].tolist(), strict=True):
            for start in starts:
                runs[start] += times
        return dict(runs)
