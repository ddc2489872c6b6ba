"""Which threads run next: groups by place in the program, the earliest first.

Threads that part at a branch meet again because whoever is behind runs first; groups at one
place merge. A group in front of an instruction that needs more threads (its gate says so) waits
there; threads at a CTA barrier are parked until it completes.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.codegen import CompiledKernel
from nvfp4.emulator.engine.control import Parting
from nvfp4.emulator.engine.group import Group, RegisterFile
from nvfp4.emulator.errors import Deadlock, RunawayKernel, Where

Array = np.ndarray[Any, Any]

# A loop that spins on memory would starve the threads it waits for, if they are further on.
TURN_STEPS = 256
IDLE_WAKES = 64
STEP_LIMIT = 5_000_000


class Parked(Protocol):
    """A barrier with threads in it, for the message about a deadlock."""

    def waiting(self) -> list[tuple[str, Array]]:
        """(what they wait for, lanes)."""

    def left(self, batch: Batch, lanes: Array) -> None:
        """These lanes exited."""


class Scheduler:
    """Runs the CTAs of one batch to their end."""

    def __init__(self, kernel: CompiledKernel):
        self.kernel = kernel
        self.runs = np.zeros(len(kernel.blocks), np.int64)
        self.groups: dict[int, Group] = {}
        self.held: dict[int, Group] = {}
        self.parked: list[Parked] = []
        self._stirred = False
        self._progress = False
        self._ticks = 0
        self._steps = 0
        self._turn_began = 0
        self._last_run: dict[int, int] = {}

    def run(self, batch: Batch) -> None:
        """Execute all lanes of the batch. Raises the errors of emulator.errors."""
        self.batch = batch
        self.file = RegisterFile(batch.grid, self.kernel.first_values(batch))
        lanes = np.flatnonzero(batch.alive)
        self.groups = {0: Group(batch.grid, lanes, self.file)}
        idle = 0
        while True:
            if not self.groups:
                if not self.held:
                    break
                idle = 0 if self._progress else idle + 1
                self._progress = False
                if idle > IDLE_WAKES:
                    break
                self._wake()
                # A try_wait gives up after a while: nobody else can run, so that is now.
                for group in self.groups.values():
                    group.excused = True
            place = self._choose()
            group = self.groups.pop(place)
            if not self._admit(place, group):
                continue
            self._advance(place)
        if self.held or any(barrier.waiting() for barrier in self.parked):
            raise self._deadlock()

    def clock(self, name: str) -> Array:
        """Deterministic time: block runs of this batch so far, a nanosecond and a cycle each."""
        self._ticks += 1
        ticks = self._ticks * 16
        if name in ("clock64", "globaltimer"):
            return np.array([ticks], np.uint64)
        if name in ("clock_hi", "globaltimer_hi"):
            return np.array([ticks >> 32], np.uint32)
        return np.array([ticks & 0xFFFFFFFF], np.uint32)

    # --- called by instructions -----------------------------------------------------------

    def exit(self, lanes: Array) -> None:
        """These lanes are done."""
        self.batch.alive[lanes] = False
        self.stir()
        for barrier in self.parked:
            barrier.left(self.batch, lanes)

    def stir(self) -> None:
        """Something that threads in front of a gate may wait for has changed."""
        self._progress = True
        if self.held:
            self._stirred = True

    def release(self, lanes: Array, place: int) -> None:
        """Parked lanes go on at a block."""
        self._place(Group(self.batch.grid, lanes, self.file), place)
        self.stir()

    # --- groups ---------------------------------------------------------------------------

    def _choose(self) -> int:
        if len(self.groups) == 1:
            return next(iter(self.groups))
        place = min(self.groups)
        if self._steps - self._turn_began > TURN_STEPS:
            self._turn_began = self._steps
            place = min(self.groups, key=lambda p: self._last_run.get(p, -1))
        self._last_run[place] = self._steps
        return place

    def _advance(self, place: int) -> None:
        """Run the admitted group from `place` until it parts, parks, meets others or waits."""
        blocks, runs, batch = self.kernel.blocks, self.runs, self.batch
        group = self._admitted
        spent = 0
        while True:
            block = blocks[place]
            runs[place] += group.warps
            spent += 1
            group.dirty |= block.writes
            following = block.run(batch, group, group.registers)
            if type(following) is int:
                alone = not self.groups or following < min(self.groups)
                meets = following in self.held
                if alone and not meets and not self._stirred and spent < TURN_STEPS:
                    place = following
                    if blocks[place].gate is None:
                        continue
                    if self._admit(place, group):
                        group = self._admitted
                        continue
                    break
                self._place(group, following)
                break
            if following is None:
                # The lanes exited, or a barrier holds them; released lanes are new groups.
                break
            self._part(group, following)
            break
        if self._stirred:
            self._wake()
        self._ticks += spent
        self._steps += spent
        if self._steps > STEP_LIMIT:
            raise RunawayKernel(
                f"the kernel is still running after {self._steps} basic blocks",
                where=Where(self.kernel.program.kernel),
                hint="a loop may never end",
            )

    def retire(self, group: Group, place: int) -> None:
        """Registers of a group that is about to lose its identity, as block `place` needs them."""
        self.file.retire(group, self.kernel.blocks[place].live_in)

    def _part(self, group: Group, parting: Parting) -> None:
        needed = 0
        for _, place in parting.ways:
            needed |= self.kernel.blocks[place].live_in
        self.file.retire(group, needed)
        for mask, place in parting.ways:
            self._place(Group(self.batch.grid, group.lanes[mask], self.file), place)

    def _place(self, group: Group, place: int) -> None:
        """Put a group at a block, together with those that are there already."""
        if group.lanes.size == 0:
            return
        for others in (self.groups, self.held):
            other = others.pop(place, None)
            if other is not None:
                self.retire(group, place)
                self.retire(other, place)
                lanes = np.sort(np.concatenate((group.lanes, other.lanes)))
                group = Group(self.batch.grid, lanes, self.file)
        self.groups[place] = group

    def _admit(self, place: int, group: Group) -> bool:
        """Ask the block's gate. Lanes that must wait are held; whether any may go on."""
        gate = self.kernel.blocks[place].gate
        self._admitted = group
        if gate is None:
            return True
        ready = gate(self.batch, group, group.registers)
        group.excused = False
        if ready is None or ready.all():
            return True
        self.retire(group, place)
        if ready.any():
            self._admitted = Group(self.batch.grid, group.lanes[ready], self.file)
            group = Group(self.batch.grid, group.lanes[~ready], self.file)
        self.held[place] = group
        return bool(ready.any())

    def _wake(self) -> None:
        self._stirred = False
        held, self.held = self.held, {}
        for place, group in held.items():
            self._place(group, place)

    def _deadlock(self) -> Deadlock:
        lines = []
        for barrier in self.parked:
            for what, lanes in barrier.waiting():
                lines.append(f"{self._threads(lanes)} at {what}")
        first = None
        for place, group in self.held.items():
            site = self.kernel.blocks[place].site
            first = first or site
            lines.append(
                f"{self._threads(group.lanes)} at line {site.instruction.line}: "
                f"{site.instruction.text}"
            )
        where = first.where() if first is not None else Where(self.kernel.program.kernel)
        return Deadlock(
            "no thread can go on. Waiting: " + "; ".join(lines),
            where=where,
            hint="every thread that a barrier counts must reach it",
        )

    def _threads(self, lanes: Array) -> str:
        """Lanes in words: those of the first CTA, and how many in all."""
        threads = self.batch.grid.threads
        cta = int(lanes[0]) // threads
        own = lanes[lanes // threads == cta] % threads
        ranges = np.split(own, np.flatnonzero(np.diff(own) > 1) + 1)
        words = [f"{r[0]}" if r.size == 1 else f"{r[0]}-{r[-1]}" for r in ranges[:6]]
        more = ", ..." if len(ranges) > 6 else ""
        place = self.batch.coordinates(int(lanes[0]))[0]
        ctas = np.unique(lanes // threads).size
        others = f" (and in {ctas - 1} more CTAs)" if ctas > 1 else ""
        return f"threads {', '.join(words)}{more} of CTA {place}{others}"
