"""Which threads run next: groups by place in the program, the furthest behind first.

Threads that diverge at a branch meet again because the group behind runs first; groups at one
place merge. Where the order gives warps turns, a place is a block in a turn: earlier turns run
until all their threads wait or are done. A group in front of an instruction that needs more threads
is held there, as the instruction's gate says; threads at a CTA barrier wait in it until it opens.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.compiler.codegen import CompiledBlock, CompiledKernel
from nvfp4.emulator.execution.experiment import late_blocks
from nvfp4.emulator.execution.standstill import QUIET_STEPS, Standstill
from nvfp4.emulator.instructions.control import Divergence
from nvfp4.emulator.instructions.mbarrier import Waits
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.group import Group, RegisterFile
from nvfp4.emulator.work import ANYWHERE, CHAINED, CHAINED_COPIES, CHAINED_LOADS

# A loop that spins on memory would starve the threads it waits for, if they are further on.
TURN_STEPS = 256
# Where a warp's lanes leave a loop at different times, the first wait for the last on a GPU. Here
# they may go on if the loop has read memory, which they may write, in so many blocks.
READING_STEPS = 64
_BLOCKS_OF_A_POLL = 32
"""The most basic blocks of a round of a loop that is taken to wait."""
MOST_POLLS = 4
"""How often threads may poll in their turn while nothing changes that other CTAs see."""
IDLE_WAKES = 64
PATIENCE = 64
STEP_LIMIT = 5_000_000


class Scheduler:
    """Runs the CTAs of one batch to their end.

    A place is turn * blocks + block. runs: how many warps have run each block. runs_of_warps: how
    often each warp has, int64[blocks, warps]. groups: the threads that are ready to run, by place.
    held: the threads that a block's gate holds back, by place.
    """

    def __init__(self, kernel: CompiledKernel, batch: Batch, together: bool = False) -> None:
        self.kernel = kernel
        self.batch = batch
        shape = (batch.grid.ctas, batch.grid.threads)
        self.file = RegisterFile(shape, kernel.first_values(batch))
        self.runs = np.zeros(len(kernel.blocks), np.int64)
        self.runs_of_warps = np.zeros((len(kernel.blocks), batch.grid.ctas * batch.grid.warps), int)
        self._chained = batch.chained
        self._arrived = self._chained.copy()
        weights = [kernel.sizes, kernel.loads, 0 * kernel.sizes]
        self._weights = np.stack(weights, axis=1)[:, :, None]
        self.groups: dict[int, Group] = {}
        self.held: dict[int, Group] = {}
        grid, order = batch.grid, batch.launch.order
        self._turns = order.turns(
            grid.cta, grid.warp - grid.cta * grid.warps, grid.ctas, grid.warps, batch.cluster_size
        )
        self._place_by_turn(np.flatnonzero(batch.alive), 0)
        # Turns whose threads are not late: of the warps that lead, or of all but the first CTAs.
        self._prompt = range(order.number == 3)
        if order.behind >= 0:
            self._prompt = range(grid.warps, 1 << 40)
        self._stirred = False
        self._progress = False
        self._steps = 0
        self._turn_began = 0
        self._read_at = 0
        self._last_run: dict[int, int] = {}
        self._vain_polls = 0
        self._left = -1  # the place at which a group that has polled in vain goes on, after a sleep
        # Where warps have turns, one that reads what others wrote is not to wait for them.
        self._patience = 0 if order.number == 0 else PATIENCE
        self._late = late_blocks(kernel, order)
        self._random = random.Random(0) if order.late == "told" else None
        self._waiting: set[int] = set()
        self._favoured = False
        # The turn that goes on while another one waits, and the step at which that began.
        self._lent, self._lent_at = -1, 0
        self._standstill = Standstill(kernel, batch)
        self._changed_at = 0
        # When something changed last that other CTAs see, and how often each turn has polled since.
        self._told_at, self._polls = 0, Counter[int]()
        self._may_starve = not together

    def run(self) -> None:
        """Execute all lanes of the batch. Raises the errors of emulator.errors."""
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
                # A try_wait times out eventually: now, since no other thread can run.
                for group in self.groups.values():
                    group.excused = True
            place = self._choose()
            admitted = self._admit(place, self.groups.pop(place))
            if admitted is not None:
                if self._steps - self._changed_at > QUIET_STEPS:
                    self._refuse_standstill(place, admitted)
                if self._may_starve and self._steps - self._told_at > QUIET_STEPS:
                    self._refuse_starvation(place, admitted)
                self._advance(place, admitted)
        if self.held or any(barrier.waiting for barrier in self.batch.all_barriers()):
            held = [(self._block(place).site, group.lanes) for place, group in self.held.items()]
            raise self._standstill.deadlock(self.runs, held)
        if self.batch.launch.work.samples:
            chains = self._chained.reshape(3, -1, self.batch.grid.warps).max(axis=2)
            whats = CHAINED, CHAINED_LOADS, CHAINED_COPIES
            for what, chain in zip(whats, chains, strict=True):
                self.batch.launch.work.spend(what, chain)

    def _choose(self) -> int:
        """Return the block whose group runs next.

        A group that had to wait for its turn gets all of it: the holder of a lock needs more than
        one block.
        """
        self._favoured = False
        if len(self.groups) == 1:
            self._turn_began = self._steps  # no other group can run or waits for its turn
            return next(iter(self.groups))
        place = self._first()
        in_vain = self._polls_in_vain(place) or self._polls[self._turn(place)] > MOST_POLLS
        if in_vain or self._steps - self._turn_began > TURN_STEPS:
            self._turn_began = self._steps
            all_may = in_vain or self._steps - self._read_at < READING_STEPS
            if others := list(self.groups if all_may else self._of_other_warps(place)):
                place = self._next_of(others)
                self._favoured = True
        self._last_run[place] = self._steps
        return place

    def _next_of(self, places: list[int]) -> int:
        """Return the place that goes on while the first one waits: mostly of the turn that did so
        before, so that arrivals come one by one; else the place that has not run for longest."""
        length = len(self.kernel.blocks)
        if self._turns is not None and self._steps - self._lent_at < TURN_STEPS:
            same = [p for p in places if self._turn(p) == self._lent]
            places = [p for p in same if p % length not in self._waiting] or places
        place = min(places, key=lambda p: self._last_run.get(p, -1))
        if self._turn(place) != self._lent:
            self._lent, self._lent_at = self._turn(place), self._steps
        return place

    def _of_other_warps(self, place: int) -> Iterator[int]:
        """Yield the places of the groups that have no lanes of the warps at a place."""
        warps = self.groups[place].each_warp
        for other, group in self.groups.items():
            if not np.isin(group.each_warp, warps).any():
                yield other

    def _first(self) -> int:
        """Return the place whose group is to run next."""
        if self._random is not None:  # a turn is drawn; its lanes meet as in other orders
            early = [place for place in self.groups if not self._rank(place)[0]]
            at = self._random.choice(early or [*self.groups])
            return min(p for p in early or [at] if self._turn(p) == self._turn(at))
        return min(self.groups, key=self._rank) if self._late else min(self.groups)

    def _comes_first(self, place: int) -> bool:
        """Return whether a group that goes on at a place comes before all others."""
        if self._random is not None:
            beside = (each for each in self.groups if self._turn(each) == self._turn(place))
            first = place < min(beside, default=place + 1) and not self._rank(place)[0]
            return first and self._random.random() < 0.5
        return self._rank(place) < self._rank(self._first())

    def _turn(self, place: int) -> int:
        return place // len(self.kernel.blocks)

    def _rank(self, place: int) -> tuple[bool, int]:
        late = place % len(self.kernel.blocks) in self._late
        late = late and self._turn(place) not in self._prompt
        return late, -place if late else place

    def _polls_in_vain(self, place: int) -> bool:
        """Return whether this group has polled memory since the last change, so that other groups
        run first."""
        number = place % len(self.kernel.blocks)
        in_vain = self._last_run.get(place, -1) > self._changed_at and self._is_long(number)
        polls = place == self._left or self._standstill.polls[number]
        if in_vain and polls:
            self._waiting.add(number)
        return in_vain and polls

    def _is_long(self, number: int) -> bool:
        """Return whether memory has been polled in vain more often than a group at a block may
        poll it: where one has given up its turn before, the next time is enough."""
        return self._vain_polls > (0 if number in self._waiting else self._patience)

    def _advance(self, place: int, group: Group) -> None:
        """Run an admitted group from `place` until it diverges, meets others or waits."""
        blocks, batch, signals = self.kernel.blocks, self.batch, self.batch.signals
        number = place % len(blocks)
        turn = place - number
        tally = batch.launch.tally
        spent = 0
        while True:
            block = blocks[number]
            self._count(number, group)
            spent += 1
            now = self._steps + spent
            group.dirty |= block.writes
            divided_before = batch.traffic.divergent_branches
            following = block.run(batch, group, group.registers)
            if following is None:
                # The lanes exited, or wait in a barrier: they come back in other groups.
                group.write_back(block.live_out)
            self._look_for_changes(place, now)
            if type(following) is Divergence:
                if tally is not None:
                    divided = batch.traffic.divergent_branches - divided_before
                    tally.site(block.end.instruction).divergences += divided
                spent += 1
                following = self._diverge(group, following, block, turn, now)
            if type(following) is not int:
                break
            changed = self._changed_at == now
            polled = bool(self.groups) and not changed and self._standstill.polls[number]
            self._vain_polls = self._vain_polls + polled if not changed else 0
            polled = polled and self._is_long(number)
            number = following
            place = turn + number
            alone = not self.groups or self._comes_first(place)
            goes_on = alone or (self._favoured and place not in self.groups)
            goes_on = goes_on and not polled
            if not goes_on or place in self.held or self._stirred or spent >= TURN_STEPS:
                self._left = place if polled else -1
                self._place(group, place)
                break
            if blocks[number].gate is not None:
                admitted = self._admit(place, group)
                if admitted is None:
                    break
                group = admitted
        if self._stirred:
            self._wake()
        signals.ticks += spent
        self._steps += spent
        deadline = batch.launch.asked.deadline
        at = time.monotonic()
        if self._steps > STEP_LIMIT or (deadline is not None and at > deadline):
            raise self._standstill.overtime(self.runs, number, group, at)

    def _count(self, number: int, group: Group) -> None:
        """Count that a group runs a block."""
        self.runs[number] += group.warps
        warps = slice(None) if group.full else group.each_warp
        self.runs_of_warps[number, warps] += 1
        if self.batch.launch.work.samples:
            self._chained[:, warps] += self._weights[number]
        tally = self.batch.launch.tally
        if tally is not None:
            tally.lanes[number] += group.lanes.size

    def _follow_barriers(self) -> None:
        """Carry the chains of warps over the barriers where they have arrived or met."""
        signals = self.batch.signals
        for warps in signals.arrived:
            self._arrived[:, warps] = self._chained[:, warps]
        # What warps execute after a barrier follows the longest chain of those that came.
        for warps, came, stayed, went_on in signals.met:
            chained = self._chained[:, warps]
            told = np.where(went_on, self._arrived[:, warps], chained)
            longest = np.where(came, told, 0).max(axis=2, keepdims=True)
            self._chained[:, warps] = np.where(stayed, np.maximum(chained, longest), chained)
        signals.arrived.clear()
        signals.met.clear()

    def _look_for_changes(self, place: int, now: int) -> None:
        """Handle what a block may have changed that other threads wait for, at a step; note whether
        it reads."""
        number = place % len(self.kernel.blocks)
        if self._standstill.reads[number]:
            self._read_at = now
        signals = self.batch.signals
        if signals.arrived or signals.met:
            self._follow_barriers()
        if self._standstill.polls[number]:
            self._polls[self._turn(place)] += 1
        if self._standstill.tells[number] or (signals.changed and not signals.released):
            self._told_at = now
            self._polls.clear()
        if signals.changed:
            # A change that held threads may wait for, and lanes that were released.
            signals.changed = False
            self._progress = True
            self._stirred = bool(self.held)
            released, signals.released = signals.released, []
            for lanes, block in released:
                self._place_by_turn(lanes, block)
            self._changed_at = now
        elif self._standstill.changes[number]:
            self._changed_at = now

    def _refuse_starvation(self, place: int, group: Group) -> None:
        """Raise if threads poll, between barriers or stores to shared memory, what CTAs that have
        not begun may write."""
        if self._polls.total() * _BLOCKS_OF_A_POLL > self._steps - self._told_at:
            error = self._standstill.error(self.runs, {place: group, **self.groups})
            if error.starved:
                raise error
        self._told_at = self._steps
        self._polls.clear()

    def _refuse_standstill(self, place: int, group: Group) -> None:
        """Raise if threads still run and none of them can make progress."""
        steps = self._changed_at, self._steps
        if not self._standstill.look(*steps, self.runs, place, group, self.groups):
            return
        waits = self.batch.kept(Waits).latest
        polling = [
            (site, group.lanes) for site in self._standstill.polling(self.runs)
            if site.instruction.line in waits
        ]  # fmt: skip
        if polling:
            raise self._standstill.deadlock(self.runs, polling)
        raise self._standstill.error(self.runs, {place: group, **self.groups})

    # --- groups ---------------------------------------------------------------------------

    def _group(self, lanes: Array, ways: dict[int, int] | None = None) -> Group:
        return Group(self.batch.grid, lanes, self.file, ways or {})

    def _block(self, place: int) -> CompiledBlock:
        return self.kernel.blocks[place % len(self.kernel.blocks)]

    def _place_by_turn(self, lanes: Array, block: int) -> None:
        """Put lanes at a block, each in its turn."""
        if self._turns is None:
            self._place(self._group(lanes), block)
            return
        turns = self._turns[lanes]
        for turn in distinct(turns).tolist():
            place = turn * len(self.kernel.blocks) + block
            self._place(self._group(lanes[turns == turn]), place)

    def _diverge(
        self, group: Group, divergence: Divergence, block: CompiledBlock, turn: int, now: int
    ) -> int | None:
        """Let the lanes of a group go different ways, each in a group of its own.

        Where the ways meet at once and no other lanes have to run before that, as many groups run
        until then, and this one goes on with all lanes at the block that is returned. now: the
        step.
        """
        blocks, meeting = self.kernel.blocks, block.meeting
        if self._late or (self.groups and min(self.groups) <= turn + (meeting or 0)):
            meeting = None
        needed = 0 if meeting is None else blocks[meeting].live_in
        for _, way in divergence.ways:
            needed |= blocks[way].live_in
        group.write_back(needed)
        sides = sorted(divergence.ways, key=lambda each: each[1])
        if meeting is None:
            parts = [(self._group(group.lanes[mask], group.ways), way) for mask, way in sides]
            parting = sum(part.warps for part, _ in parts) > group.warps
            for part, way in parts:
                if parting:
                    part.ways = {**group.ways, block.code[-1].start: way}
                self._place(part, turn + way)
            return None
        for mask, way in sides:
            if way == meeting:
                continue
            part = self._group(group.lanes[mask])
            self._count(way, part)
            blocks[way].run(self.batch, part, part.registers)
            part.dirty = blocks[way].writes
            part.write_back(blocks[meeting].live_in)
            group.take_over(blocks[way].writes)
            self._look_for_changes(turn + way, now)
        return meeting

    def _place(self, group: Group, place: int) -> None:
        """Put a group at a block, together with those that are there already."""
        if group.lanes.size == 0:
            return
        needed, work = self._block(place).live_in, self.batch.launch.work
        for others in (self.groups, self.held):
            other = others.pop(place, None)
            if other is not None:
                ways, others_ways = group.ways.items(), other.ways.items()
                if work.samples and np.isin(group.each_warp, other.each_warp).any():
                    parted_at = {branch for branch, _ in ways ^ others_ways} or {ANYWHERE}
                    work.rejoined[place % len(self.kernel.blocks)] |= parted_at
                group.write_back(needed)
                other.write_back(needed)
                lanes = np.sort(np.concatenate((group.lanes, other.lanes)))
                group = self._group(lanes, dict(ways & others_ways))
        self.groups[place] = group

    def _admit(self, place: int, group: Group) -> Group | None:
        """Return the lanes that the block's gate lets through, and hold the others."""
        block = self._block(place)
        if block.gate is None:
            return group
        ready = block.gate(self.batch, group, group.registers)
        group.excused = False
        if ready is None or ready.all():
            return group
        group.write_back(block.live_in)
        if not ready.any():
            self.held[place] = group
            return None
        self.held[place] = self._group(group.lanes[~ready], group.ways)
        return self._group(group.lanes[ready], group.ways)

    def _wake(self) -> None:
        """Put the held groups back at their places, so that the gates decide again."""
        self._stirred = False
        held, self.held = self.held, {}
        for place, group in held.items():
            self._place(group, place)
