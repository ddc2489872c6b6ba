"""Counts of the statements that each warp of a launch executed, and of their memory accesses."""

import secrets
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


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


@dataclass
class WorkCounter:
    """Collects the work of a launch, batch by batch. waits: see `Work`."""

    waits: bool = False
    asked: dict[int, Asked] = field(default_factory=lambda: defaultdict(Asked))
    _kinds: dict[int, int] = field(default_factory=dict)
    _warps: list[Array] = field(default_factory=list)
    _ctas: dict[tuple[int, ...], int] = field(default_factory=dict)
    _of_cta: dict[int, int] = field(default_factory=dict)
    _looked: dict[tuple[int, int], Array] = field(default_factory=dict)
    _weights: Array | None = None

    def add(self, ctas: Array, runs: Array) -> None:
        """A batch has ended. ctas: their numbers. runs: int64[blocks, warps]."""
        if self._weights is None:
            # Random, so that no kernel can be written whose warps are taken for equal.
            drawn = np.frombuffer(secrets.token_bytes(8 * runs.shape[0]), np.uint64)
            self._weights = drawn | np.uint64(1)
        marks = self._weights @ runs.astype(np.uint64)
        different, first, which = np.unique(marks, return_index=True, return_inverse=True)
        numbers = np.empty(different.size, np.int64)
        for i, (mark, at) in enumerate(zip(different.tolist(), first.tolist(), strict=True)):
            if mark not in self._kinds:
                self._kinds[mark] = len(self._warps)
                self._warps.append(runs[:, at].copy())
            numbers[i] = self._kinds[mark]
        for cta, row in zip(ctas.tolist(), numbers[which].reshape(ctas.size, -1), strict=True):
            kind = tuple(row.tolist())
            self._of_cta[cta] = self._ctas.setdefault(kind, len(self._ctas))

    def look(self, start: int, first: int, address: Array) -> None:
        """Record that threads, one of which is `first`, read memory that others may write
        meanwhile. Reading the same addresses again counts as waiting. start: the statement's
        position in the PTX text."""
        before = self._looked.get((start, first))
        self.waits |= before is not None and np.array_equal(before, address)
        self._looked[start, first] = address.copy()

    def work(self, starts: list[list[int]]) -> Work:
        """Return all that was collected. starts: see `Work`."""
        warps = np.array(self._warps).reshape(len(self._warps), len(starts))
        return Work(warps, list(self._ctas), self._of_cta, starts, dict(self.asked), self.waits)
