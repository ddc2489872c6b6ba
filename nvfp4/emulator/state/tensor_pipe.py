"""The tensor pipe of each CTA: what its instructions touch, in order, and who may rely on it.

The pipe executes tcgen05.mma, cp and shift in the order in which they were issued, on its own time.
Operations of a CTA are counted from 1. A warp knows an operation to be complete if it has waited
for an mbarrier that a tcgen05.commit behind it has arrived at, or has heard of a warp that has.
Warps' own accesses (tcgen05.ld and st) are complete once the warp has waited for them.

Between two warps the pipe keeps the order only if the first has executed
tcgen05.fence::before_thread_sync behind its operation, the other tcgen05.fence::after_thread_sync
before its own, and something orders the two fences. What is known to be complete needs neither,
as waits acquire; a relaxed wait needs the second. Source: PTX ISA, Pipelined tcgen05 Instructions,
and Canonical synchronization patterns.

Each word of tensor memory remembers its last writer, the warp that read it last and the operation
of the pipe that did. A stamp is clock << 16 | agent: a warp + 1 with the warp's clock, or the pipe
with the operation's number; 0 is nobody. Each 16 bytes of shared memory remember the last operation
that read them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.tensor_memory import COLUMNS, LANES

PIPE = 0xFFFF
_AGENT = 0xFFFF
_UNDER_WAY = 0x7FFFFFFF
"""The clock of a warp's access that it has not waited for."""
CHUNK_BYTES = 16

_MOST_STAMPS = 64
"""Different stamps of one access's words that are looked at."""


@loop
def _other(stamps, start, stop, lanes, fine, count):  # type: ignore[no-untyped-def]
    """A stamp among some words that is neither 0 nor among the first `count` of `fine`, or 0."""
    last = np.int64(0)
    for column in range(start, stop):
        for i in range(lanes.shape[0]):
            stamp = stamps[column, lanes[i]]
            if stamp == last:
                continue
            known = stamp == 0
            for j in range(count):
                known |= stamp == fine[j]
            if not known:
                return stamp
            last = stamp
    return np.int64(0)


@loop
def _stamp(stamps, start, stop, lanes, new):  # type: ignore[no-untyped-def]
    """Give some words a stamp."""
    for column in range(start, stop):
        for i in range(lanes.shape[0]):
            stamps[column, lanes[i]] = new


@loop
def _restamp(stamps, start, stop, lanes, old, new):  # type: ignore[no-untyped-def]
    """The same where they have another one."""
    for column in range(start, stop):
        for i in range(lanes.shape[0]):
            if stamps[column, lanes[i]] == old:
                stamps[column, lanes[i]] = new


@dataclass(frozen=True)
class Issued:
    """An operation of the pipe. warp, clock: who issued it, when. place: its LaneSite."""

    warp: int
    clock: int
    place: Any


@dataclass(frozen=True)
class Conflict:
    """Why an access races with an earlier one: in words, with the place of the other one. unfenced:
    whether they are in order but for a tcgen05.fence."""

    what: str
    hint: str
    place: Any
    unfenced: bool = False


@dataclass
class _Pending:
    """A warp's access that is under way: its words in one of the arrays of stamps."""

    stamps: Array
    columns: slice
    lanes: Array


@dataclass
class CtaPipe:
    """Of one CTA. issued: operations, the first has number 1. waiting: operations that are to be
    performed later, with their numbers. seen: by warp, (operations known to be complete, clock of
    the warp when it learned that), growing. sealed: by warp, (operations of the CTA issued before a
    tcgen05.fence::before_thread_sync, clock of the warp then), growing. opened: by warp, the clocks
    that it knew at its last tcgen05.fence::after_thread_sync. relaxed: by warp, (operations known
    to be complete from a relaxed wait alone, clock of the warp then). pending: those under way by
    (warp, whether they write). places: who left the stamp of a warp. reads: int32[16 bytes of
    shared memory].
    """

    issued: list[Issued] = field(default_factory=list)
    performed: int = 0
    waiting: list[Callable[[], None]] = field(default_factory=list)
    seen: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    sealed: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    opened: dict[int, Array] = field(default_factory=dict)
    relaxed: dict[int, tuple[int, int]] = field(default_factory=dict)
    pending: dict[tuple[int, bool], list[_Pending]] = field(default_factory=dict)
    places: dict[int, Any] = field(default_factory=dict)
    writers: Array | None = None
    readers: Array | None = None

    def perform(self, count: int) -> None:
        """Perform what waits, up to the operation with this number."""
        while self.waiting and self.performed < count:
            self.waiting.pop(0)()
            self.performed += 1


class TensorPipe:
    """The pipes of a batch. reads: the operation that has read each 16 bytes of shared memory last,
    0 where they have been written since."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.checked = batch.shared.checked
        self.late = batch.launch.order.bulk_copies_late
        self.rows: dict[int, CtaPipe] = {}
        chunks = batch.shared.data.size // CHUNK_BYTES if self.checked else 0
        self.reads = np.zeros(chunks, np.int32)
        self._fine = np.zeros(_MOST_STAMPS, np.int64)

    def of(self, row: int) -> CtaPipe:
        """Of a CTA, by its place in the batch."""
        found = self.rows.get(row)
        if found is None:
            found = self.rows[row] = CtaPipe()
            if self.checked:
                found.writers = np.zeros((COLUMNS, LANES), np.int64)
                found.readers = np.zeros((2, COLUMNS, LANES), np.int64)
        return found

    # --- who knows what -------------------------------------------------------------------

    def _knowledge(self, lane: int) -> tuple[Array, int, int]:
        """(the clocks known to the warps of a lane's CTA, the CTA's row, the warp of the lane)."""
        row, thread = divmod(lane, self.batch.grid.threads)
        return self.batch.shared.clocks.known[row], row, thread >> 5

    def issue(self, lane: int, place: Any) -> int:
        """A lane issues an operation; its number."""
        known, row, warp = self._knowledge(lane)
        pipe = self.of(row)
        pipe.issued.append(Issued(warp, int(known[warp, warp]), place))
        return len(pipe.issued)

    def submit(self, lane: int, perform: Callable[[], None]) -> None:
        """Perform an operation that has been issued, now or late."""
        pipe = self.of(lane // self.batch.grid.threads)
        if self.late:
            pipe.waiting.append(perform)
        else:
            perform()

    def learn(self, lane: int, count: int, relaxed: bool = False) -> None:
        """A lane's warp knows that so many operations are complete. relaxed: its wait did not
        acquire."""
        known, row, warp = self._knowledge(lane)
        if not count:
            return
        if relaxed and not self.complete_for(lane, count):
            known[warp, warp] += 1  # a fence comes before the wait or behind it
            self.of(row).relaxed[warp] = count, int(known[warp, warp])
        counts, clocks = self.of(row).seen.setdefault(warp, ([], []))
        if not counts or counts[-1] < count:
            counts.append(count)
            clocks.append(int(known[warp, warp]))

    def complete_for(self, lane: int, count: int) -> bool:
        """Whether a lane's warp knows that so many operations are complete."""
        known, row, warp = self._knowledge(lane)
        for other, (counts, clocks) in self.of(row).seen.items():
            at = bisect_left(counts, count)
            if at < len(counts) and (other == warp or clocks[at] <= known[warp, other]):
                return True
        return False

    def fence_before(self, lane: int) -> None:
        """A lane's warp executes tcgen05.fence::before_thread_sync."""
        known, row, warp = self._knowledge(lane)
        pipe = self.of(row)
        counts, clocks = pipe.sealed.setdefault(warp, ([], []))
        if not counts or counts[-1] < len(pipe.issued):
            counts.append(len(pipe.issued))
            clocks.append(int(known[warp, warp]))

    def fence_after(self, lane: int) -> None:
        """A lane's warp executes tcgen05.fence::after_thread_sync."""
        known, row, warp = self._knowledge(lane)
        pipe = self.of(row)
        pipe.opened[warp] = known[warp].copy()
        pipe.relaxed.pop(warp, None)

    # --- accesses -------------------------------------------------------------------------

    def note_warp(
        self, lane: int, place: Any, columns: slice, lanes: Array, writes: bool
    ) -> Conflict | None:
        """A lane's warp reads or writes words; the access is under way until `wait`."""
        known, row, warp = self._knowledge(lane)
        pipe = self.of(row)
        assert pipe.writers is not None and pipe.readers is not None
        mine, stamp = known[warp], _UNDER_WAY << 16 | (warp + 1)
        new = stamp if writes else 0
        found = self._worst(pipe, mine, lane, warp, pipe.writers, columns, lanes, new, "written")
        if writes:
            for stamps in pipe.readers:
                found = found or self._worst(
                    pipe, mine, lane, warp, stamps, columns, lanes, 0, "read"
                )
        else:
            _stamp(pipe.readers[0], columns.start, columns.stop, lanes, stamp)
        array = pipe.writers if writes else pipe.readers[0]
        pipe.pending.setdefault((warp, writes), []).append(_Pending(array, columns, lanes))
        pipe.places[stamp] = place
        return found

    def wait(self, lane: int, writes: bool) -> None:
        """The warp of a lane waits for its accesses of a kind."""
        known, row, warp = self._knowledge(lane)
        pipe = self.of(row)
        old = _UNDER_WAY << 16 | (warp + 1)
        new = int(known[warp, warp]) << 16 | (warp + 1)
        for each in pipe.pending.pop((warp, writes), []):
            _restamp(each.stamps, each.columns.start, each.columns.stop, each.lanes, old, new)
        if old in pipe.places:
            pipe.places[new] = pipe.places[old]

    def note_pipe(
        self, lane: int, number: int, columns: slice, lanes: Array, writes: bool
    ) -> Conflict | None:
        """An operation that a lane issued reads or writes words."""
        known, row, warp = self._knowledge(lane)
        pipe = self.of(row)
        assert pipe.writers is not None and pipe.readers is not None
        mine, stamp = known[warp], number << 16 | PIPE
        new = stamp if writes else 0
        found = self._worst(
            pipe, mine, lane, warp, pipe.writers, columns, lanes, new, "written", True
        )
        if writes:
            for stamps in pipe.readers:
                found = found or self._worst(
                    pipe, mine, lane, warp, stamps, columns, lanes, 0, "read", True
                )
        else:
            _stamp(pipe.readers[1], columns.start, columns.stop, lanes, stamp)
        return found

    def _worst(
        self, pipe: CtaPipe, mine: Array, lane: int, warp: int, stamps: Array, columns: slice,
        lanes: Array, new: int, verb: str, by_pipe: bool = False,
    ) -> Conflict | None:  # fmt: skip
        """The first earlier access among the stamps of some words that is not in order with what a
        warp, or the pipe on its behalf, does now. new: the stamp that they get, 0 for none."""
        found = None
        for count in range(_MOST_STAMPS):
            stamp = int(_other(stamps, columns.start, columns.stop, lanes, self._fine, count))
            if not stamp:
                break
            found = self._unordered(pipe, mine, lane, warp, stamp, verb, by_pipe)
            if found is not None:
                break
            self._fine[count] = stamp
        if new:
            _stamp(stamps, columns.start, columns.stop, lanes, new)
        return found

    def _unordered(
        self, pipe: CtaPipe, mine: Array, lane: int, warp: int, stamp: int, verb: str, by_pipe: bool
    ) -> Conflict | None:
        agent, clock = stamp & _AGENT, stamp >> 16
        if not agent:
            return None
        if agent == PIPE:
            return self._behind(pipe, mine, lane, warp, clock, verb, by_pipe)
        other = agent - 1
        place = pipe.places.get(stamp)
        opcode = "tcgen05.st" if verb == "written" else "tcgen05.ld"
        wait = "wait::st" if verb == "written" else "wait::ld"
        whose = "the warp's own" if other == warp else f"warp {other}'s"
        if clock == _UNDER_WAY:
            said = f"{whose} {opcode} may still be under way: it has not been waited for"
            return Conflict(said, f"put tcgen05.{wait}.sync.aligned behind it", place)
        if other == warp or clock <= mine[other]:
            return None
        said = f"{whose} {opcode} has {verb} it, and nothing orders the two warps"
        return Conflict(said, "put a barrier between the two", place)

    def _behind(
        self,
        pipe: CtaPipe,
        mine: Array,
        lane: int,
        warp: int,
        number: int,
        verb: str,
        by_pipe: bool,
    ) -> Conflict | None:
        before = pipe.issued[number - 1]
        if by_pipe and before.warp == warp:
            return None  # the pipe keeps the order in which it is given operations
        opcode, verbs = before.place.site.opcode, ("writing", "written")
        if verb != "written":
            verbs = ("reading", "read")
        if self.complete_for(lane, number):
            if not self._only_relaxed(pipe, lane, warp, number):
                return None
            said = f"that {opcode} has {verbs[1]} it is known from a relaxed wait alone"
            hint = "put a tcgen05.fence::after_thread_sync behind the wait"
            return Conflict(said, hint, before.place, unfenced=True)
        if not by_pipe:
            said = f"{opcode} may still be {verbs[0]} it: no wait for a tcgen05.commit behind it"
            hint = "wait for the mbarrier that tcgen05.commit arrives at"
            return Conflict(f"{said} lies between", hint, before.place)
        said = f"{opcode} of warp {before.warp} has {verbs[1]} it, and "
        if before.clock > mine[before.warp]:
            hint = "put a barrier between the two, or issue both by one thread"
            return Conflict(said + "nothing orders the two warps", hint, before.place)
        if not self._sealed(pipe, number, mine):
            fence, where = "before", "behind that, before the barrier"
        elif not self._sealed(pipe, number, pipe.opened.get(warp)):
            fence, where = "after", "behind the barrier, before this"
        else:
            return None
        said += f"no tcgen05.fence::{fence}_thread_sync lies between it and the next warp's"
        hint = f"put a tcgen05.fence::{fence}_thread_sync {where}, or issue both by one thread"
        return Conflict(said, hint, before.place, unfenced=True)

    def _only_relaxed(self, pipe: CtaPipe, lane: int, warp: int, number: int) -> bool:
        """Whether a warp knows from a relaxed wait alone that an operation is complete, and has
        neither fenced nor told anybody since."""
        if warp not in pipe.relaxed:
            return False
        known, row, _ = self._knowledge(lane)
        count, clock = pipe.relaxed[warp]
        fenced = self.batch.shared.clocks.ordered[row, warp, warp] >= clock
        told = known[warp, warp] > clock
        return number <= count and not fenced and not told

    def _sealed(self, pipe: CtaPipe, number: int, clocks: Array | None) -> bool:
        """Whether these clocks tell of a tcgen05.fence::before_thread_sync that the warp of an
        operation has executed behind it."""
        warp = pipe.issued[number - 1].warp
        counts, fenced = pipe.sealed.get(warp, ([], []))
        at = bisect_left(counts, number)
        return clocks is not None and at < len(counts) and fenced[at] <= clocks[warp]

    # --- shared memory --------------------------------------------------------------------

    def overwritten(self, offset: Array, nbytes: int, lanes: Array) -> tuple[int, Issued] | None:
        """Lanes write bytes of the batch's shared memory: the position of one that does while an
        operation may still read them, and that operation."""
        first = offset.astype(np.int64) // CHUNK_BYTES
        if first.size == 1:
            last = (int(offset[0]) + nbytes - 1) // CHUNK_BYTES + 1
            numbers = self.reads[int(first[0]) : last].max(keepdims=True)
            self.reads[int(first[0]) : last] = 0
        else:
            numbers = self.reads[first]
            self.reads[first] = 0
        some = np.flatnonzero(numbers)
        if not some.size:
            return None
        rows = offset[some].astype(np.int64) // self.batch.shared.stride
        cases = np.stack([rows, lanes[some] >> 5, numbers[some]])
        _, where = np.unique(cases, axis=1, return_index=True)
        for i in where.tolist():
            number, lane = int(numbers[some[i]]), int(lanes[some[i]])
            if not self.complete_for(lane, number):
                return int(some[i]), self.of(int(rows[i])).issued[number - 1]
        return None
