"""Everything that the CTAs of one batch share while they run."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.cta_barrier import CtaBarrier
from nvfp4.emulator.state.group import Grid
from nvfp4.emulator.state.launch_state import LaunchState
from nvfp4.emulator.state.shared import SharedMemory
from nvfp4.emulator.state.signals import Signals
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
