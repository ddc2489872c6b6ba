"""Threads that run together: a set of lanes at one place of the program, with their registers.

A batch has `ctas` CTAs of `threads` lanes each (the block rounded up to whole warps); lane
number = CTA * threads + thread. A register is an array that broadcasts to the group's shape:

- a full group has shape (ctas, threads), and a register may be (1,) if it is the same in all
  lanes, (1, threads) if it depends on the thread only, (ctas, 1) on the CTA only;
- a partial group of n lanes has shape (n,), and a register is (n,) or (1,).
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import compiled
from nvfp4.emulator.arrays import Array, begin_of_runs, distinct


class RegisterFile:
    """Registers of a batch. arrays: one for each register. shape: (CTAs, threads) of the batch."""

    def __init__(self, shape: tuple[int, int], defaults: list[Array]) -> None:
        self.shape = shape
        self.arrays = list(defaults)
        # Arrays that were created here and are not shared may be written in place.
        self.owned: dict[int, Array] = {}

    def write(self, lanes: Array, registers: Mapping[int, Array], which: int) -> None:
        """Take over some lanes' values of the registers in the bit set `which`."""
        for index in register_numbers(which):
            value = registers[index]
            target = self.owned.get(index)
            if target is None or target is not self.arrays[index]:
                target = np.ascontiguousarray(np.broadcast_to(self.arrays[index], self.shape))
                if target is self.arrays[index] or target.base is not None:
                    target = target.copy()
                self.owned[index] = self.arrays[index] = target
            target.reshape(-1)[lanes] = value


def register_numbers(which: int) -> Iterator[int]:
    """The registers in a bit set, the lowest first."""
    while which:
        low = which & -which
        yield low.bit_length() - 1
        which ^= low


def select(guard: Array, new: Array, old: Array) -> Array:
    """Return `new` where the guard holds, else `old`."""
    if guard.size == 1:
        return new if guard.reshape(-1)[0] else old
    return compiled.select(guard, new, old)


class Grid:
    """Shape of a batch, and index arrays over its lanes."""

    def __init__(self, ctas: int, threads: int) -> None:
        self.ctas = ctas
        self.threads = threads
        self.warps = threads // 32
        self.lane = np.arange(ctas * threads, dtype=np.int64)
        self.warp = self.lane >> 5
        self.cta = self.lane // threads
        self.thread = self.lane - self.cta * threads

    def warps_of(self, lanes: Array) -> tuple[Array, Array]:
        """Return the warps that lanes are of, each once: their CTAs, and their numbers there."""
        return divmod(distinct(lanes >> 5), self.warps)


class Group:
    """Lanes at one place of the program.

    lanes: sorted lane numbers. registers: index -> array; a full group uses the file's own.
    dirty: bit set of registers whose values the file does not have yet. excused: a wait that may
    time out has done so. ways: the block that its lanes went to at each branch where they left
    others of their warps, by the position of the branch.
    """

    def __init__(self, grid: Grid, lanes: Array, file: RegisterFile, ways: dict[int, int]) -> None:
        self.grid, self.lanes, self.file, self.ways = grid, lanes, file, ways
        self.full = lanes.size == grid.lane.size
        self.dirty = 0
        self.excused = False
        if self.full:
            self.shape: tuple[int, ...] = (grid.ctas, grid.threads)
            self.warps = grid.ctas * grid.warps
            self.registers: Any = file.arrays
            file.owned.clear()
        else:
            self.shape = (lanes.size,)
            self.warps = int(np.count_nonzero(begin_of_runs(self.warp)))
            self.registers = _Compact(self, file.arrays)

    @property
    def whole(self) -> bool:
        """Whether the group has all lanes of each of its warps."""
        return self.lanes.size == 32 * self.warps

    @cached_property
    def warp(self) -> Array:
        """The warp of each lane, numbered in the batch."""
        return self.grid.warp if self.full else self.lanes >> 5

    @cached_property
    def each_warp(self) -> Array:
        """Warp numbers in the batch, each once."""
        return self.warp[begin_of_runs(self.warp)]

    @property
    def cta(self) -> Array:
        """CTA number in the batch of each lane."""
        return self.grid.cta if self.full else self.grid.cta[self.lanes]

    @property
    def thread(self) -> Array:
        """Thread number in its CTA of each lane."""
        return self.grid.thread if self.full else self.grid.thread[self.lanes]

    def write_back(self, needed: int) -> None:
        """Give a partial group's results to the file, those in the bit set `needed`."""
        if not self.full:
            self.file.write(self.lanes, self.registers, self.dirty & needed)
            self.dirty = 0

    def take_over(self, which: int) -> None:
        """Let go of the registers in the bit set `which`, of which the file has newer values."""
        if self.full:
            self.file.owned.clear()
            return
        for index in register_numbers(which):
            self.registers.pop(index, None)

    def take(self, array: Array) -> Array:
        """Return the part of a register of the whole batch that belongs to this group's lanes."""
        if self.full or array.ndim == 1:
            return array
        rows, columns = array.shape
        if rows == 1 and self.grid.ctas > 1:
            return array[0].take(self.grid.thread[self.lanes])
        if columns == 1:
            return array[:, 0].take(self.grid.cta[self.lanes])
        return array.reshape(-1).take(self.lanes)

    def spread(self, array: Array) -> Array:
        """Return a register as a flat array with one entry for each lane of the group."""
        if array.shape == self.shape:
            return array.reshape(-1)
        spread = np.empty(self.shape, array.dtype)  # np.broadcast_to takes ten times as long
        spread[...] = array
        return spread.reshape(-1)

    def fold(self, flat: Array) -> Array:
        """The inverse of `spread`."""
        return flat.reshape(self.shape)


class _Compact(dict[int, Array]):
    """A partial group's registers, fetched from the batch when first read."""

    def __init__(self, group: Group, arrays: list[Array]) -> None:
        super().__init__()
        self.group = group
        self.arrays = arrays

    def __missing__(self, index: int) -> Array:
        value = self.group.take(self.arrays[index])
        self[index] = value
        return value
