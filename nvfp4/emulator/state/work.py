"""Counts the work of a launch, batch by batch."""

import secrets
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.work import Asked, Work


@dataclass
class WorkCounter:
    """Collects the work of a launch, batch by batch. waits: as of `Work`."""

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
        """Threads, of which `first` is one, look at memory that others may write meanwhile. Looking
        again at the same addresses is waiting."""
        before = self._looked.get((start, first))
        self.waits |= before is not None and np.array_equal(before, address)
        self._looked[start, first] = address.copy()

    def work(self, starts: list[list[int]]) -> Work:
        """All that was collected. starts: as of `Work`."""
        warps = np.array(self._warps).reshape(len(self._warps), len(starts))
        return Work(warps, list(self._ctas), self._of_cta, starts, dict(self.asked), self.waits)
