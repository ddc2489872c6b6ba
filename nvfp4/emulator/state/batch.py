"""Everything that the CTAs of one batch share while they run."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.cta_barrier import CtaBarrier, Signals
from nvfp4.emulator.state.launch_state import LaunchState
from nvfp4.emulator.state.registers import RegisterFile
from nvfp4.emulator.state.shared import SharedMemory
from nvfp4.emulator.state.special import special_register
from nvfp4.records.launch import Dim3

T = TypeVar("T")


class Batch:
    """CTAs that run together; numbers: their linear CTA numbers, int64[CTAs].

    alive: bool[lanes], threads that have not exited.
    """

    def __init__(self, launch: LaunchState, numbers: Array) -> None:
        x, y, z = launch.block
        count = x * y * z
        self.launch = launch
        self.numbers = numbers
        self.grid = Grid(numbers.size, -(-count // 32) * 32)
        self.thread_count = count
        self.alive = self.grid.thread < count
        self.shared = SharedMemory(numbers.size, launch, self.grid.warps)
        shape = (self.grid.lane.size, max(launch.local_bytes, 1))
        self.local: Array = launch.order.bytes(shape[0] * shape[1], salt=2).reshape(shape)
        self.local_undefined = np.full_like(self.local, 255) if launch.tracks_memory else None
        self.traffic = launch.traffic
        self.memory = launch.memory
        self.signals = Signals()
        self.barriers: dict[int | str, CtaBarrier] = {}
        self._special: dict[str, Array | None] = {}
        self._kept: dict[type, Any] = {}

    def coordinates(self, lane: int) -> tuple[Dim3, Dim3]:
        """CTA and thread (x, y, z) of a lane of the batch."""
        cta = int(self.numbers[lane // self.grid.threads])
        return self.place(cta, lane % self.grid.threads)

    def place(self, cta: int, thread: int) -> tuple[Dim3, Dim3]:
        """CTA and thread (x, y, z) of linear numbers in the grid and in the block."""
        return _unravel(cta, self.launch.grid), _unravel(thread, self.launch.block)

    def special(self, name: str) -> Array | None:
        """A special register for the whole batch, as the smallest array that broadcasts to it."""
        if name not in self._special:
            self._special[name] = special_register(name, self.launch, self.grid, self.numbers)
        return self._special[name]

    def kept(self, kind: type[T]) -> T:
        """The batch's one object of a class, made from the batch when first asked for.

        Families of instructions keep here what only they know of.
        """
        found: T | None = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind(self)  # type: ignore[call-arg]
        return found

    def barrier(self, number: int | str) -> CtaBarrier:
        """The barrier with a number, or the one named "cluster"."""
        if number not in self.barriers:
            name = "the cluster barrier" if number == "cluster" else f"barrier {number}"
            self.barriers[number] = CtaBarrier(name, self.grid, self.thread_count)
        return self.barriers[number]

    def open_barrier(self, barrier: CtaBarrier) -> None:
        """Open the barrier where it is complete: count that, order the warps, release lanes."""
        opening = barrier.open(self.alive)
        if opening is None:
            return
        self.traffic.barriers += opening.ctas.size
        if self.shared.checked:
            self.shared.clocks.meet(opening.ctas, opening.came, opening.stayed)
        for waiting in opening.released:
            self.signals.release(waiting.lanes, waiting.block)

    def exit(self, lanes: Array) -> None:
        """These lanes are done. Barriers that expect all living threads may open."""
        self.alive[lanes] = False
        self.signals.changed = True
        for barrier in self.barriers.values():
            if barrier.arrived.any():
                self.open_barrier(barrier)


def _unravel(index: int, extent: Dim3) -> Dim3:
    x, y, _ = extent
    return index % x, index // x % y, index // (x * y)


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


class Group:
    """Lanes at one place of the program.

    lanes: sorted lane numbers. registers: index -> array; a full group uses the file's own.
    dirty: bit set of registers whose values the file does not have yet. excused: a wait that may
    time out has done so.
    """

    __slots__ = (
        "_warp",
        "dirty",
        "excused",
        "file",
        "full",
        "grid",
        "lanes",
        "registers",
        "shape",
        "warps",
    )

    def __init__(self, grid: Grid, lanes: Array, file: RegisterFile) -> None:
        self.grid = grid
        self.lanes = lanes
        self.file = file
        self.full = lanes.size == grid.lane.size
        self.dirty = 0
        self.excused = False
        self._warp: Array | None = None
        if self.full:
            self.shape: tuple[int, ...] = (grid.ctas, grid.threads)
            self.warps = grid.ctas * grid.warps
            self.registers: Any = file.arrays
            file.owned.clear()
        else:
            self.shape = (lanes.size,)
            warp = self.warp
            self.warps = 1 + int(np.count_nonzero(warp[1:] != warp[:-1])) if lanes.size else 0
            self.registers = _Compact(self, file.arrays)

    @property
    def warp(self) -> Array:
        """Warp number in the batch of each lane."""
        if self.full:
            return self.grid.warp
        if self._warp is None:
            self._warp = self.lanes >> 5
        return self._warp

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

    def take(self, array: Array) -> Array:
        """A register of the whole batch, cut down to this group's lanes."""
        if self.full or array.ndim == 1:
            return array
        rows, columns = array.shape
        if rows == 1 and self.grid.ctas > 1:
            result: Array = array[0].take(self.grid.thread[self.lanes])
        elif columns == 1:
            result = array[:, 0].take(self.grid.cta[self.lanes])
        else:
            result = array.reshape(-1).take(self.lanes)
        return result

    def spread(self, array: Array) -> Array:
        """A register as one entry a lane of the group, flat."""
        if array.shape == self.shape:
            return array.reshape(-1)
        spread = np.empty(self.shape, array.dtype)  # np.broadcast_to takes ten times as long
        spread[...] = array
        return spread.reshape(-1)

    def fold(self, flat: Array) -> Array:
        """The inverse of `spread`."""
        return flat.reshape(self.shape)

    def to_batch(self, array: Array, fill: Any = 0) -> Array:
        """One entry for every lane of the batch; lanes outside the group get `fill`."""
        if self.full:
            return self.spread(array)
        out = np.full(self.grid.lane.size, fill, array.dtype)
        out[self.lanes] = array
        return out


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
