"""Products by wgmma that may be under way: what they write and read, and who knows they are done.

A product runs on its own time from wgmma.mma_async on. Each of the four warps of a warpgroup has a
part of its own, 16 rows of the sums. A warp's products are counted from 1. They are complete for
the warp once it has waited for their group, and for another warp that has heard of it since. Until
then the registers of the sums are not to be touched, nor is what the product reads of shared memory
to be overwritten.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch

_CHUNK_BYTES = 16


class WarpgroupPipe:
    """Of the warps of a batch, which are the entries of its arrays.

    issued, done: int32, how many products each has issued and waited for. fenced: whether it has
    executed wgmma.fence. sums: by register, int32, the last product of each warp that writes it.
    places: by (warp, product), who has issued it. reads: int32[warps of a CTA, 16 bytes of shared
    memory], the last product that reads there, 0 where it has been written since. spoiled: (warp,
    product) whose operands were overwritten too early.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        warps = batch.grid.lane.size // 32
        self.issued, self.done = np.zeros((2, warps), np.int32)
        self.fenced = np.zeros(warps, np.bool_)
        self.sums: dict[int, Array] = {}
        self.places: dict[tuple[int, int], Any] = {}
        self.spoiled: set[tuple[int, int]] = set()
        chunks = batch.shared.data.size // _CHUNK_BYTES if batch.shared.checked else 0
        self.reads = np.zeros((batch.grid.warps, chunks), np.int32)
        self._groups: dict[int, list[int]] = {}
        self._seen: dict[int, tuple[list[int], list[int]]] = {}

    def under_way(self) -> bool:
        """Whether any product may be."""
        return bool((self.issued != self.done).any())

    def issue(self, warp: int, place: Any) -> int:
        """A warp issues a product; its number."""
        self.issued[warp] += 1
        number = int(self.issued[warp])
        self.places[warp, number] = place
        return number

    def commit(self, warp: int) -> None:
        """What a warp has issued since the last time is a group."""
        self._groups.setdefault(warp, []).append(int(self.issued[warp]))

    def wait(self, warp: int, keep: int) -> None:
        """A warp waits for all its groups but the `keep` newest ones."""
        groups = self._groups.get(warp, [])
        if len(groups) <= keep or groups[-1 - keep] <= self.done[warp]:
            return
        count = groups[-1 - keep]
        self.done[warp] = count
        cluster, own = divmod(warp, self.batch.clusters.warps)
        counts, clocks = self._seen.setdefault(warp, ([], []))
        counts.append(count)
        clocks.append(int(self.batch.shared.clocks.known[cluster, own, own]))

    def written_by(self, register: int) -> Array | None:
        """The last product of each warp that writes a register."""
        return self.sums.get(register)

    def write(self, register: int, warps: Array) -> None:
        """The latest products of these warps write a register."""
        found = self.sums.setdefault(register, np.zeros(self.issued.size, np.int32))
        found[warps] = self.issued[warps]

    def copy(self, target: int, source: int, warps: Array) -> None:
        """These warps copy a register to another one, which is no use of its value."""
        found = self.sums.get(source)
        if found is not None or target in self.sums:
            there = self.sums.setdefault(target, np.zeros(self.issued.size, np.int32))
            there[warps] = 0 if found is None else found[warps]

    def complete_for(self, lane: int, warp: int, number: int) -> bool:
        """Whether a lane's warp knows that a product of a warp of its cluster is complete."""
        if lane >> 5 == warp:
            return bool(number <= self.done[warp])
        cluster, thread = divmod(lane, self.batch.clusters.threads)
        counts, clocks = self._seen.get(warp, ([], []))
        at = bisect_left(counts, number)
        known = self.batch.shared.clocks.known[cluster, thread >> 5]
        return at < len(counts) and bool(clocks[at] <= known[warp % self.batch.clusters.warps])

    def overwritten(self, offset: Array, nbytes: int, lanes: Array) -> tuple[int, Any] | None:
        """Lanes write bytes of the batch's shared memory: the position of one that does while a
        product may still read them, and where that was issued."""
        first = offset.astype(np.int64) // _CHUNK_BYTES
        if first.size == 1:
            last = (int(offset[0]) + nbytes - 1) // _CHUNK_BYTES + 1
            numbers = self.reads[:, int(first[0]) : last].max(axis=1, keepdims=True)
            self.reads[:, int(first[0]) : last] = 0
        else:
            numbers = self.reads[:, first]
            self.reads[:, first] = 0
        found = None
        for own, which in np.argwhere(numbers).tolist():
            row = int(offset[which]) // self.batch.shared.stride
            warp, number = row * self.batch.grid.warps + own, int(numbers[own, which])
            if not self.complete_for(int(lanes[which]), warp, number):
                self.spoiled.add((warp, number))
                found = found or (which, self.places[warp, number])
        return found
