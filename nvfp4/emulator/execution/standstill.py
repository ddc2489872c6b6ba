"""Kernels that never end: deadlocks, loops in which nothing can change, loops that take too long.

A loop never ends if its threads return to the same register values while memory does not change.
Threads that poll memory and read the time do not return to the same values: they are taken to stand
still if all of them only poll and memory has not changed for long enough.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.compiler.codegen import CompiledKernel
from nvfp4.emulator.errors import Deadlock, EmulatorError, Related, RunawayKernel
from nvfp4.emulator.instructions.action import Site
from nvfp4.emulator.instructions.mbarrier import Waits
from nvfp4.emulator.instructions.undefined import ranges
from nvfp4.emulator.ptx.syntax import Instruction
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.group import Group, register_numbers
from nvfp4.emulator.state.tally import place_of

QUIET_STEPS = 4096
"""Number of basic blocks that run without changing memory before a standstill is looked for."""
_POLL_STEPS = 1 << 16
"""Basic blocks without a change of memory after which polling is taken to be endless."""
_LOOK_EVERY = 4

_CHANGING = frozenset(("store", "copy"))
_READING = frozenset(("ld", "ldu", "atom", "mbarrier"))
_STRONG = frozenset(("volatile", "relaxed", "acquire"))
_MOST_SHOWN = 3


class Standstill:
    """Watches the threads of a batch while memory does not change.

    tells, changes, reads, polls: whether each block may write what other CTAs see, changes memory,
    reads it, and reads what other threads may change.
    """

    def __init__(self, kernel: CompiledKernel, batch: Batch) -> None:
        self.kernel = kernel
        self.batch = batch
        self.tells = [any(map(_leaves_the_cta, block.code)) for block in kernel.blocks]
        self.changes = [not _CHANGING.isdisjoint(block.kinds) for block in kernel.blocks]
        self.reads = [any(each.parts[0] in _READING for each in b.code) for b in kernel.blocks]
        self.polls = [any(map(_is_poll, block.code)) for block in kernel.blocks]
        self._since = -1
        self._looks = 0
        self._kept: _State | None = None
        self._kept_looks = 0
        self._most_looks = 1
        self._before: Array = np.zeros(len(kernel.blocks), np.int64)
        self._polled: Array = np.zeros(0, np.int64)

    def look(
        self, since: int, steps: int, runs: Array, place: int, group: Group,
        groups: Mapping[int, Group],
    ) -> bool:  # fmt: skip
        """Return whether no thread can ever go on.

        since: when memory changed last; steps: now, both in executed basic blocks. group: the group
        that runs next, at `place`. groups: all others.
        """
        if since != self._since:
            self._since = since
            self._kept, self._kept_looks, self._most_looks = None, 0, 1
            self._before = runs.copy()
            self._polled = np.zeros(self.batch.alive.size // 32, np.int64)
        if self.polls[place % len(self.kernel.blocks)]:
            self._polled[group.warp if not group.full else slice(None)] = steps
        self._looks += 1
        if self._looks % _LOOK_EVERY:
            return False
        running = {**groups, place: group}
        if steps - since > _POLL_STEPS:
            lanes = np.concatenate([each.lanes for each in running.values()])
            if bool((self._polled[lanes >> 5] > steps - _POLL_STEPS).all()):
                return True
        if self._kept is not None and self._kept.is_that_of(running):
            return True
        # One state is kept, each for twice as many looks as the last. In the end it is one of the
        # loop, and kept for a whole round (Brent, An improved Monte Carlo factorization algorithm,
        # 1980).
        self._kept_looks += 1
        if self._kept is None or self._kept_looks >= self._most_looks:
            self._kept = _State(self.kernel, running)
            self._kept_looks, self._most_looks = 0, 2 * self._most_looks
        return False

    # --- messages -----------------------------------------------------------------------

    def error(self, runs: Array, groups: Mapping[int, Group]) -> RunawayKernel:
        """Return the error to raise when `look` returns true. groups: those that can run."""
        reads = list(self.polling(runs))
        sites = reads or [self._loop(runs)]
        group = next(iter(groups.values()))
        where = sites[0].lane(self.batch, int(group.lanes[0])).location()
        times = int((runs - self._before).max()) // max(1, group.warps)
        message = (
            "the kernel waits for ever in a loop: "
            f"{times:,} rounds and nothing has changed the memory that it reads, and nothing can"
        )
        hint = "some thread has to write what the loop waits for"
        if not reads:
            message = f"the kernel never leaves this loop: {times:,} rounds have changed nothing"
            hint = "the loop's condition never becomes false"
        launch = self.batch.launch
        waiting = len(launch.not_started) * self.batch.cluster_size
        if waiting:
            ctas = math.prod(launch.asked.grid)
            message += f"; {ctas - waiting} of {ctas} CTAs have started"
            hint = "a CTA may not wait for one that starts after it: it may never start"
        error = RunawayKernel(message, where=where, hint=hint)
        error.starved = waiting > 0
        error.endless = not error.starved
        for site in sites[1:_MOST_SHOWN]:
            error.related.append(Related("and in this loop", site.location()))
        return error

    def overtime(self, runs: Array, number: int, group: Group, now: float) -> EmulatorError:
        """Return the error for exceeding the time limit while a group runs block `number`. now: in
        seconds on the monotonic clock."""
        launch = self.batch.launch
        seconds, cpu_s = now - launch.began, time.process_time() - launch.cpu_began
        site = self._loop(runs, number)
        times = int(runs.max()) // max(1, group.warps)
        done = int(self.batch.numbers.min())
        x, y, z = self.batch.launch.asked.grid
        place = f"CTA {done} of {x * y * z}"
        hint = "the shape is too large to be emulated in the time limit"
        if times > 1:
            place = f"{times:,} rounds of this loop, in {place}"
            hint = f"does the loop's condition ever become false? If it does, {hint}"
        return RunawayKernel(
            f"the kernel is still running after {seconds:.0f} s: {place}",
            where=site.lane(self.batch, int(group.lanes[0])).location(),
            hint=hint,
            arguments={"seconds": round(seconds), "cpu_s": round(cpu_s)},
        )

    def _loop(self, runs: Array, number: int | None = None) -> Site:
        """Return the end of the block that has run most often: the loop's branch."""
        if number is None or runs[number] < runs.max() // 2:
            number = int(runs.argmax())
        return self.kernel.blocks[number].end

    def polling(self, runs: Array) -> Iterator[Site]:
        """Yield the instructions that the loops wait at: polls in the blocks that have run, else
        loads."""
        ran = np.flatnonzero(runs - self._before).tolist()
        seen = set()
        for wanted in (_is_poll, lambda each: each.parts[0] == "ld"):
            for number in ran:
                for instruction in self.kernel.blocks[number].code:
                    if wanted(instruction) and place_of(instruction) not in seen:
                        seen.add(place_of(instruction))
                        yield Site(self.kernel.program.kernel, instruction)
            if seen:
                return

    def arrivals(self, runs: Array) -> list[tuple[Site, int]]:
        """Return the instructions that arrive at mbarriers, each with the number of warps that have
        executed it; one for each line."""
        found: dict[object, tuple[Site, int]] = {}
        for number, warps in enumerate(runs.tolist()):
            for instruction in self.kernel.blocks[number].code:
                if _arrives(instruction):
                    site = Site(self.kernel.program.kernel, instruction)
                    found.setdefault(place_of(instruction), (site, warps))
        return list(found.values())

    def deadlock(self, runs: Array, held: list[tuple[Site, Array]]) -> Deadlock:
        """Return an error that names who waits, and where.

        runs: how often each block ran. held: (instruction, lanes held before it). At least one
        thread must be held or in a barrier.
        """
        batch = self.batch
        waits: list[tuple[Site, Array, str]] = []
        for barrier in batch.all_barriers():
            for waiting in barrier.waiting:
                # A barrier ends its block; the threads that it keeps go on with the one behind.
                status = f"at {barrier.status(waiting)}"
                waits.append((self.kernel.site_before(waiting.block), waiting.lanes, status))
        counted, on_mbarrier = bool(waits), False
        for site, lanes in held:
            wait = batch.kept(Waits).latest.get(site.instruction.line)
            on_mbarrier |= wait is not None
            status = wait.status(batch) if wait else f"at {site.instruction.text}"
            waits.append((site, lanes, status))
        site, lanes, status = waits[-1]
        message = f"no thread can go on: {_threads(batch, lanes)} wait {status}"
        ended = _ended(batch, lanes) if counted else ""
        if ended:
            message += f"; {ended} without reaching it"
        where = replace(site.lane(batch, int(lanes[0])).location(), thread=None)
        error = Deadlock(message, where=where)
        for other, some, said in waits[:-1]:
            text = f"{_threads(batch, some)} wait here, {said}"
            error.related.append(Related(text, other.location()))
        if on_mbarrier:
            for site, warps in self.arrivals(runs)[:_MOST_ARRIVALS]:
                often = f"executed by {warps:,} warps" if warps else "never executed"
                where = site.location()
                error.related.append(Related(f"arrivals come from here, {often}", where))
            error.hint = _mbarrier_hint(" ".join(said for _, _, said in waits))
        else:
            error.hint = "every thread that a barrier counts must reach it"
            if len({each.instruction.line for each, _, _ in waits}) > 1:
                error.hint += ", the same one for all of them"
        return error


def _is_poll(instruction: Instruction) -> bool:
    """Whether an instruction reads what other threads may change."""
    parts = instruction.parts
    if parts[0] == "mbarrier":
        return "test_wait" in parts or "try_wait" in parts
    return parts[0] == "atom" or (parts[0] == "ld" and not _STRONG.isdisjoint(parts))


def _leaves_the_cta(instruction: Instruction) -> bool:
    """Return whether it may write to memory that other CTAs see."""
    parts = instruction.parts
    own = any(part in ("shared", "shared::cta", "local") for part in parts)
    return parts[0] == "cp" or (parts[0] == "st" and not own)


def _arrives(instruction: Instruction) -> bool:
    """Return whether an instruction adds arrivals or bytes to an mbarrier."""
    parts = instruction.parts
    if parts[0] == "mbarrier":
        return not {"arrive", "arrive_drop", "complete_tx"}.isdisjoint(parts)
    return parts[0] in ("cp", "st") and any("mbarrier" in part for part in parts)


class _State:
    """The state that decides how threads go on while memory does not change: their places, and the
    live registers there."""

    def __init__(self, kernel: CompiledKernel, groups: Mapping[int, Group]) -> None:
        self.lanes = {place: group.lanes for place, group in groups.items()}
        self.registers = [
            (place, index, group.registers[index].copy())
            for place, group in groups.items()
            for index in register_numbers(kernel.blocks[place % len(kernel.blocks)].live_in)
        ]

    def is_that_of(self, groups: Mapping[int, Group]) -> bool:
        """Whether the threads are there now, and hold these values."""
        if self.lanes.keys() != groups.keys():
            return False
        if not all(np.array_equal(lanes, groups[p].lanes) for p, lanes in self.lanes.items()):
            return False
        for i, (place, index, value) in enumerate(self.registers):
            if not np.array_equal(value, groups[place].registers[index]):
                # What has changed now, such as a loop's counter, will have changed next time.
                self.registers.insert(0, self.registers.pop(i))
                return False
        return True


_MOST_ARRIVALS = 4
_RANGES = 6


def _mbarrier_hint(statuses: str) -> str:
    if "bytes still to come" in statuses:
        return "expect as many bytes as the copies bring, and make sure that they are issued"
    if "not completed since" in statuses:
        return "the parity that is waited for flips each time the mbarrier is used again"
    return "as many threads must arrive as mbarrier_init was told"


def _ended(batch: Batch, lanes: Array) -> str:
    """The threads of the first CTA that have exited."""
    threads = batch.grid.threads
    cta = int(lanes[0]) // threads
    gone = np.flatnonzero(~batch.alive[cta * threads : cta * threads + batch.thread_count])
    return f"threads {ranges(gone, _RANGES)} have ended" if gone.size else ""


def _threads(batch: Batch, lanes: Array) -> str:
    """Describe lanes: those of the first CTA, and how many other CTAs have some."""
    threads = batch.grid.threads
    cta = int(lanes[0]) // threads
    own = lanes[lanes // threads == cta] % threads
    place = batch.coordinates(int(lanes[0]))[0]
    ctas = distinct(lanes // threads).size
    others = f" (and in {ctas - 1} more CTAs)" if ctas > 1 else ""
    return f"threads {ranges(own, _RANGES)} of CTA {place}{others}"
