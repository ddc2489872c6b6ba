"""The tensor pipe of each CTA: the accesses of its operations, and which warps may rely on them.

The pipe executes tcgen05.mma, cp and shift in the order in which they were issued, on its own time;
products of different shapes (M, N, K) only if the first is complete when the second is issued.
With cta_group::2 a pair of CTAs, whose ranks differ in the last bit, has one pipe. Its operations
are counted from 1. A warp knows an operation to be complete if it has waited for an mbarrier that a
tcgen05.commit behind it has arrived at, or has heard of a warp that has. Warps' own accesses
(tcgen05.ld and st) are complete once the warp has waited for them, or has used what it loaded.

16 lanes of each column of tensor memory remember their last writer and, since then, the warp that
read them last and the operation of the pipe that did. A stamp is clock << 16 | agent: a warp of the
cluster + 1 with the warp's clock, or the pipe with the operation's number; 0 is none. A column has
one cell until an access touches some of its lanes only, and then one for each 16. Each 16 bytes
of shared memory remember the last operation that read them.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.tensor_memory import COLUMNS, LANES
from nvfp4.records.base import Record


class TensorFences:
    """The tcgen05 fences that the warps of a batch executed, by (cluster, warp in it).

    Between two warps the tensor pipe keeps the order only if the first has executed
    tcgen05.fence::before_thread_sync behind its operation, the other
    tcgen05.fence::after_thread_sync before its own, and something orders the two fences. What is
    known to be complete needs neither, as waits acquire; a relaxed wait needs the second. Source:
    PTX ISA, Pipelined tcgen05 Instructions, and Canonical synchronization patterns.
    """

    def __init__(self, batch: Batch) -> None:
        self.clocks = batch.shared.clocks
        self._before: dict[tuple[int, int], list[int]] = {}
        self._after: dict[tuple[int, int], Array] = {}
        self._relaxed: dict[tuple[int, int], tuple[int, int]] = {}

    def before(self, cluster: int, warp: int) -> None:
        """Record that a warp executes tcgen05.fence::before_thread_sync."""
        mine = self.clocks.known[cluster, warp]
        self._before.setdefault((cluster, warp), []).append(int(mine[warp]))
        mine[warp] += 1

    def after(self, cluster: int, warp: int) -> None:
        """Record that a warp executes tcgen05.fence::after_thread_sync."""
        self._after[cluster, warp] = self.clocks.known[cluster, warp].copy()
        self._relaxed.pop((cluster, warp), None)

    def missing(self, cluster: int, warp: int, clock: int, reader: int) -> str | None:
        """Return which fence is missing between two operations, given that something orders the
        fences.

        The first was issued by a warp at its clock, the second is issued by another warp now.
        """
        fences = self._before.get((cluster, warp), [])
        first = bisect_left(fences, clock)
        if first == len(fences) or fences[first] >= self.clocks.known[cluster, reader, warp]:
            return "before"
        since = self._after.get((cluster, reader))
        return None if since is not None and fences[first] < since[warp] else "after"

    def relax(self, cluster: int, warp: int, count: int) -> None:
        """Record that a warp sees `count` operations complete by a wait that does not acquire."""
        mine = self.clocks.known[cluster, warp]
        mine[warp] += 1  # a fence comes before the wait or after it
        self._relaxed[cluster, warp] = count, int(mine[warp])

    def only_relaxed(self, cluster: int, warp: int, number: int) -> bool:
        """Return whether a warp knows only from such a wait that an operation is complete, with no
        fence or release since."""
        if (cluster, warp) not in self._relaxed:
            return False
        count, clock = self._relaxed[cluster, warp]
        fenced = self.clocks.ordered[cluster, warp, warp] >= clock
        told = self.clocks.known[cluster, warp, warp] > clock
        return bool(number <= count and not fenced and not told)


PIPE = 0xFFFF
_AGENT = 0xFFFF
_UNDER_WAY = 0x7FFFFFFF
"""The clock of a warp's access that it has not waited for."""
CHUNK_BYTES = 16

LANES_OF_STAMP = 16
_PARTS = LANES // LANES_OF_STAMP
ALL_PARTS = np.arange(_PARTS)
"""All groups of lanes with one stamp."""
_WRITERS, _WARPS_READ, _PIPE_READ = range(3)
_SPLIT = -1
"""The writer of a column whose groups of lanes have cells of their own."""
_MOST_STAMPS = 64
"""The most different stamps of one access's words that are examined."""


@loop
def _cell(stamps, column, part):  # type: ignore[no-untyped-def]
    """Return the cell of a column, or of its part if the column is divided."""
    if stamps[_WRITERS, column] != _SPLIT:
        return column
    return COLUMNS + column * _PARTS + part


@loop
def _other(stamps, kind, start, stop, parts, fine, count):  # type: ignore[no-untyped-def]
    """Return a stamp among some words that is neither 0 nor among the first `count` of `fine`, or
    0."""
    last = np.int64(0)
    for column in range(start, stop):
        for i in range(parts.shape[0]):
            stamp = stamps[kind, _cell(stamps, column, parts[i])]
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
def _stamp(stamps, start, stop, parts, kind, new):  # type: ignore[no-untyped-def]
    """Stamp some words of a CTA as written or read. A writer's stamp removes those of readers."""
    every = parts.shape[0] == _PARTS
    for column in range(start, stop):
        divided = stamps[_WRITERS, column] == _SPLIT
        if every and (kind == _WRITERS or not divided):
            stamps[kind, column] = new
            if kind == _WRITERS:
                stamps[_WARPS_READ, column] = stamps[_PIPE_READ, column] = 0
            continue
        first = COLUMNS + column * _PARTS
        for each in range(0 if divided else 3):
            stamps[each, first : first + _PARTS] = stamps[each, column]
        stamps[_WRITERS, column] = _SPLIT
        for i in range(parts.shape[0]):
            stamps[kind, first + parts[i]] = new
            if kind == _WRITERS:
                stamps[_WARPS_READ, first + parts[i]] = 0
                stamps[_PIPE_READ, first + parts[i]] = 0


@loop
def _restamp(stamps, kind, start, stop, parts, old, new):  # type: ignore[no-untyped-def]
    """Replace one stamp of some words by another one."""
    for column in range(start, stop):
        for i in range(parts.shape[0]):
            cell = _cell(stamps, column, parts[i])
            if stamps[kind, cell] == old:
                stamps[kind, cell] = new


@loop
def _stamp_in_order(  # type: ignore[no-untyped-def]
    stamps, rows, numbers, own, alike, start, stop, parts, writes, suspects
):
    """Stamp words that operations of the pipes of some CTAs access. The CTAs where an earlier
    access may not be in order with that are suspects, and their words keep their stamps.

    own: the first operation from which on the same warp has issued all. alike: the first from which
    on all products have the same shape."""
    for i in range(rows.shape[0]):
        words = stamps[rows[i]]
        bad = False
        first = max(own[i], alike[i])
        last = np.int64(0)
        for column in range(start, stop):
            for j in range(parts.shape[0] if words[_WRITERS, column] == _SPLIT else 1):
                cell = _cell(words, column, parts[j])
                writer = words[_WRITERS, cell]
                if writer != last:
                    bad |= writer != 0 and (writer & _AGENT != PIPE or writer >> 16 < first)
                    last = writer
                if writes:
                    bad |= words[_WARPS_READ, cell] != 0
                    reader = words[_PIPE_READ, cell]
                    bad |= reader != 0 and reader >> 16 < own[i]
        suspects[i] = bad
        if not bad:
            stamp = np.int64(numbers[i]) << 16 | PIPE
            _stamp(words, start, stop, parts, _WRITERS if writes else _PIPE_READ, stamp)


@loop
def _take_readers(reads, first, last, numbers):  # type: ignore[no-untyped-def]
    """Set numbers[i] to the last operation that read any of the chunks first[i] to last[i], and
    forget these reads."""
    for i in range(first.shape[0]):
        numbers[i] = 0
        for chunk in range(first[i], last[i] + 1):
            numbers[i] = max(numbers[i], reads[chunk])
    for i in range(first.shape[0]):
        reads[first[i] : last[i] + 1] = 0


Shape = tuple[int, int, int]


class Issued(NamedTuple):
    """An operation of the pipe."""

    warp: int
    """The warp of the cluster that issued it."""
    clock: int
    """The clock of that warp at the time."""
    place: Any
    """Its LaneSite."""
    shape: Shape | None = None
    """M, N and K of a product; None for other operations."""


class _Together(NamedTuple):
    """Operations of different pipes that lanes issued together; see `Issued`."""

    site: Any
    lanes: Array
    warps: Array
    clocks: Array
    shape: Shape | None


class Conflict(Record):
    """A race of an access with an earlier one."""

    what: str
    """The reason in words."""
    hint: str
    place: Any
    """The place of the earlier access."""
    unfenced: bool = False
    """Whether only a tcgen05.fence is missing."""


class _Pending(Record, frozen=False):
    """An access of a warp in progress: its words, and the kind of stamps that it leaves."""

    kind: int
    columns: slice
    parts: Array


class Pipe(Record, frozen=False):
    """The tensor pipe of a CTA or of a pair of CTAs."""

    performed: int = 0
    """Number of operations performed so far."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Operations yet to be performed, in order."""
    pending: dict[tuple[int, bool], list[_Pending]] = field(default_factory=dict)
    """Accesses in flight, by (warp, whether they write)."""
    places: dict[int, Any] = field(default_factory=dict)
    """By stamp of a warp, the place of the access that left it."""

    def perform(self, count: int) -> None:
        """Perform the waiting operations up to the one numbered `count`."""
        while self.waiting and self.performed < count:
            self.waiting.pop(0)()
            self.performed += 1


class TensorPipe:
    """The pipes of a batch. A CTA is named by its place in the batch, its row; a pair by that of
    its first CTA. reads: the operation that has read each 16 bytes of shared memory last, 0 where
    they have been written since. latest: by lane, the number of the operation that it has issued
    last. group: CTAs of a pipe, None until an instruction says so.

    _own: of each pipe, the first operation from which on one warp, _warp, has issued all. _alike:
    the first from which on all products have one shape, that with the number _shape."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.checked = batch.shared.checked
        self.late = batch.launch.order.late_pipe
        self.group: int | None = None
        self._pipes: defaultdict[int, Pipe] = defaultdict(Pipe)
        self._issued: list[_Together] = []
        # By pipe: how many operations, and of each its place among `_issued` and its index there.
        self._count = np.zeros(batch.grid.ctas, np.int64)
        self._places = np.zeros((2, batch.grid.ctas, 64), np.int32)
        self.latest = np.zeros(batch.grid.lane.size, np.int64)
        self.collected = np.zeros(batch.grid.ctas, np.int64)
        self._own, self._alike, self._warp, self._shape = np.zeros((4, batch.grid.ctas), np.int64)
        self._shapes: dict[Shape, int] = {}
        cells = (batch.grid.ctas if self.checked else 0, 3, COLUMNS * (1 + _PARTS))
        self._stamps = batch.launch.lend("tensor stamps", cells, np.int64)
        self._stamps[:, :, :COLUMNS] = 0
        chunks = batch.shared.data.size // CHUNK_BYTES if self.checked else 0
        self.reads = batch.launch.lend("tensor reads", (chunks,), np.int32)
        self.reads[:] = 0
        self.fences = TensorFences(batch)
        self._fine = np.zeros(_MOST_STAMPS, np.int64)

    def unit(self, row: Any) -> Any:
        """Return the name of the pipe of a CTA, or of each of several."""
        return row & ~1 if self.group == 2 else row

    def of(self, row: int) -> Pipe:
        """Return the pipe of a CTA."""
        return self._pipes[self.unit(row)]

    def of_lane(self, lane: int) -> Pipe:
        """Return the pipe of a lane's CTA."""
        return self.of(lane // self.batch.grid.threads)

    def forget(self, row: int, columns: slice) -> None:
        """Clear the stamps of these columns of a CTA, which have just been allocated again."""
        if self.checked:
            self._stamps[row, :, columns] = 0  # of the columns as a whole

    # --- who knows what -------------------------------------------------------------------

    def _knowledge(self, lane: int) -> tuple[Array, int]:
        """Return (the clocks known to a lane's warp, the warp in its cluster)."""
        cluster, thread = divmod(lane, self.batch.clusters.threads)
        return self.batch.shared.clocks.known[cluster, thread >> 5], thread >> 5

    def _warp_name(self, warp: int) -> str:
        """Return the name of a warp of a cluster for messages."""
        rank, own = divmod(warp, self.batch.grid.warps)
        return f"warp {own}" + (f" of the CTA with rank {rank}" if rank else "")

    def issue(self, site: Any, lanes: Array, shape: Shape | None = None) -> Array:
        """Issue one operation for each lane, all of different pipes, and return their numbers.

        shape: of a product.
        """
        cluster, thread = np.divmod(lanes, self.batch.clusters.threads)
        warps = thread >> 5
        clocks = self.batch.shared.clocks.known[cluster, warps, warps]
        units = self.unit(lanes // self.batch.grid.threads)
        numbers = self._count[units] + 1
        self._count[units] = numbers
        if numbers.max() > self._places.shape[2]:
            self._places = np.concatenate((self._places, np.zeros_like(self._places)), axis=2)
        self._places[0, units, numbers - 1] = len(self._issued)
        self._places[1, units, numbers - 1] = np.arange(lanes.size)
        self._issued.append(_Together(site, lanes, warps, clocks, shape))
        self.latest[lanes] = numbers
        other = self._warp[units] != warps
        self._own[units[other]], self._warp[units] = numbers[other], warps
        if shape is not None:
            kind = self._shapes.setdefault(shape, len(self._shapes) + 1)
            other = (self._shape[units] != kind) & (self._shape[units] != 0)
            self._alike[units[other]], self._shape[units] = numbers[other], kind
        return numbers

    def issued(self, row: int, number: int) -> Issued:
        """Return the operation of a CTA's pipe with this number."""
        together, i = self._places[:, self.unit(row), number - 1].tolist()
        site, lanes, warps, clocks, shape = self._issued[together]
        return Issued(int(warps[i]), int(clocks[i]), site.lane(self.batch, lanes[i]), shape)

    def submit(self, lanes: Array, perform: Callable[[Array], None]) -> None:
        """Perform operations that lanes have issued, now or later. perform: called with their
        positions."""
        if not self.late:
            perform(np.arange(lanes.size))
            return
        for i, lane in enumerate(lanes.tolist()):
            self.of_lane(lane).waiting.append(partial(perform, np.array([i])))

    def column(self, row: Any) -> Any:
        """Return which of its cluster's clocks is that of a CTA's pipe, or of each of several."""
        return self.batch.first_pipe + self.unit(row) % self.batch.cluster_size

    def complete_for(self, lane: int, row: int, count: int) -> bool:
        """Return whether a lane's warp knows `count` operations of a CTA's pipe to be complete."""
        return bool(self._knowledge(lane)[0][self.column(row)] >= count)

    def relax(self, cluster: Array, warp: Array, told: Array) -> None:
        """Record that warps hear clocks without acquiring: they know which operations of the pipes
        are complete, and need a fence all the same."""
        first, known = self.column(0), self.batch.shared.clocks.known
        pipes = slice(first, first + self.batch.cluster_size)
        for i, rank in np.argwhere(told[:, pipes] > known[cluster, warp, pipes]).tolist():
            self.fences.relax(int(cluster[i]), int(warp[i]), int(told[i, first + rank]))
            known[cluster[i], warp[i], first + rank] = told[i, first + rank]

    # --- accesses -------------------------------------------------------------------------

    def note_warp(
        self, lane: int, place: Any, columns: slice, lanes: Array, writes: bool,
        complete: bool = False,
    ) -> Conflict | None:  # fmt: skip
        """Record that a lane's warp reads or writes words of its CTA; the access is under way until
        `wait`, unless it is complete."""
        row, (mine, warp) = lane // self.batch.grid.threads, self._knowledge(lane)
        pipe, parts = self.of(row), _parts(lanes)
        stamp = (int(mine[warp]) if complete else _UNDER_WAY) << 16 | (warp + 1)
        found = self.conflict(lane, row, columns, parts, writes)
        kind = _WRITERS if writes else _WARPS_READ
        _stamp(self._stamps[row], columns.start, columns.stop, parts, kind, stamp)
        if not complete:
            pipe.pending.setdefault((warp, writes), []).append(_Pending(kind, columns, parts))
        pipe.places[stamp] = place
        return found

    def wait(self, lane: int, writes: bool) -> None:
        """Record that the warp of a lane has waited for its loads or its stores."""
        mine, warp = self._knowledge(lane)
        row = lane // self.batch.grid.threads
        pipe = self.of(row)
        old = _UNDER_WAY << 16 | (warp + 1)
        new = int(mine[warp]) << 16 | (warp + 1)
        for each in pipe.pending.pop((warp, writes), []):
            start, stop = each.columns.start, each.columns.stop
            _restamp(self._stamps[row], each.kind, start, stop, each.parts, old, new)
        if old in pipe.places:
            pipe.places[new] = pipe.places[old]

    def note_pipe(
        self, lanes: Array, rows: Array, numbers: Array, columns: slice, reached: Array,
        writes: bool,
    ) -> list[tuple[int, Conflict]]:  # fmt: skip
        """Record that operations that lanes issued read or write words of a CTA each, in `reached`
        lanes of tensor memory. Returns which of them race, and how."""
        units = self.unit(rows)
        product = self._issued[-1].shape is not None
        own = self._own[units]
        alike = self._alike[units] if product else np.zeros_like(own)
        start, stop, parts = columns.start, columns.stop, _parts(reached)
        suspects = np.empty(rows.size, np.bool_)
        _stamp_in_order(
            self._stamps, rows, numbers, own, alike, start, stop, parts, writes, suspects
        )
        conflicts = []
        for i in np.flatnonzero(suspects).tolist():
            row = int(rows[i])
            found = self.conflict(int(lanes[i]), row, columns, parts, writes, True)
            if found is not None:
                conflicts.append((i, found))
            stamp, kind = int(numbers[i]) << 16 | PIPE, _WRITERS if writes else _PIPE_READ
            _stamp(self._stamps[row], start, stop, parts, kind, stamp)
        return conflicts

    def conflict(
        self, lane: int, row: int, columns: slice, parts: Array, writes: bool, by_pipe: bool = False
    ) -> Conflict | None:
        """Return the earliest conflict of an access with an earlier one that is not ordered before
        it; None if there is none.

        The access is by a lane's warp, or by the pipe on its behalf, to some words of a CTA.
        """
        for kind in (_WRITERS, _WARPS_READ, _PIPE_READ) if writes else (_WRITERS,):
            stamps, verb = self._stamps[row], "read" if kind else "written"
            start, stop = columns.start, columns.stop
            for count in range(_MOST_STAMPS):
                stamp = int(_other(stamps, kind, start, stop, parts, self._fine, count))
                if not stamp:
                    break
                found = self._unordered(lane, row, stamp, verb, by_pipe)
                if found is not None:
                    return found
                self._fine[count] = stamp
        return None

    def _unordered(
        self, lane: int, row: int, stamp: int, verb: str, by_pipe: bool
    ) -> Conflict | None:
        agent, clock = stamp & _AGENT, stamp >> 16
        if not agent:
            return None
        if agent == PIPE:
            return self._behind(lane, row, clock, verb, by_pipe)
        other, (mine, warp) = agent - 1, self._knowledge(lane)
        place = self.of(row).places.get(stamp)
        kind = "st" if verb == "written" else "ld"
        whose = "the warp's own " if other == warp else ""
        by = "" if other == warp else f" of {self._warp_name(other)}"
        if clock == _UNDER_WAY:
            said = f"{whose}tcgen05.{kind}{by} may still be under way: it has not been waited for"
            return Conflict(said, f"put tcgen05.wait::{kind}.sync.aligned behind it", place)
        if other == warp or clock <= mine[other]:
            return None
        said = f"tcgen05.{kind}{by} has {verb} it, and nothing orders the two warps"
        return Conflict(said, "put a barrier between the two", place)

    def _behind(
        self, lane: int, row: int, number: int, verb: str, by_pipe: bool
    ) -> Conflict | None:
        cluster = lane // self.batch.clusters.threads
        complete = self.complete_for(lane, row, number)
        mine, warp = self._knowledge(lane)
        if complete and not self.fences.only_relaxed(cluster, warp, number):
            return None
        before = self.issued(row, number)
        if by_pipe and before.warp == warp:
            return self._of_other_shape(lane, row, number) if verb == "written" else None
        opcode = before.place.site.opcode
        if complete:
            said = f"that {opcode} has {verb} it is known only from a relaxed wait"
            hint = "put a tcgen05.fence::after_thread_sync behind the wait"
            return Conflict(said, hint, before.place, unfenced=True)
        if not by_pipe:
            does = "may still be writing" if verb == "written" else "may still be reading"
            said = f"{opcode} {does} it: no wait for a tcgen05.commit behind it lies between"
            hint = "wait for the mbarrier that tcgen05.commit arrives at"
            return Conflict(said, hint, before.place)
        said = f"{opcode} of {self._warp_name(before.warp)} has {verb} it, and "
        if before.clock > mine[before.warp]:
            hint = "put a barrier between the two, or issue both by one thread"
            return Conflict(said + "nothing orders the two warps", hint, before.place)
        fence = self.fences.missing(cluster, before.warp, before.clock, warp)
        if fence is None:
            return self._of_other_shape(lane, row, number) if verb == "written" else None
        said += f"no tcgen05.fence::{fence}_thread_sync lies between"
        where = "behind that, before" if fence == "before" else "before this, behind"
        hint = f"put a tcgen05.fence::{fence}_thread_sync {where} the barrier, or issue both by "
        return Conflict(said, hint + "one thread", before.place, unfenced=True)

    def _of_other_shape(self, lane: int, row: int, number: int) -> Conflict | None:
        """Return the race between the latest operation and an earlier one whose result it uses, if
        both are products of different shapes: the pipe does not keep these in order."""
        before, now = (self.issued(row, each) for each in (number, self._count[self.unit(row)]))
        alike = None in (before.shape, now.shape) or before.shape == now.shape
        if alike or self.complete_for(lane, row, number):
            return None
        shapes = [" x ".join(map(str, shape)) for shape in (before.shape, now.shape) if shape]
        said = f"{before.place.site.opcode} of shape {shapes[0]} has written it and may still be "
        said += f"under way: this one of shape {shapes[1]} may overtake it, as only "
        said += "products of the same shape stay in order"
        hint = "wait for the mbarrier that tcgen05.commit behind the first arrives at"
        return Conflict(said, hint, before.place)

    # --- shared memory --------------------------------------------------------------------

    def overwritten(self, offset: Array, nbytes: int, lanes: Array) -> tuple[int, Issued] | None:
        """Lanes write bytes of the batch's shared memory. Returns the position of a lane that does
        so while an operation may still read them, and that operation."""
        start = offset.astype(np.int64)
        numbers = np.empty(offset.size, np.int32)
        last = (start + nbytes - 1) // CHUNK_BYTES
        _take_readers(self.reads, start // CHUNK_BYTES, last, numbers)
        rows, grid = start // self.batch.shared.stride, self.batch.clusters
        warps = grid.thread[lanes] >> 5
        known = self.batch.shared.clocks.known[grid.cta[lanes], warps, self.column(rows)]
        some = np.flatnonzero(numbers > known)
        if not some.size:
            return None
        i = int(some[np.lexsort((numbers[some], warps[some], rows[some]))[0]])
        return i, self.issued(int(rows[i]), int(numbers[i]))


def _parts(lanes: Array) -> Array:
    """Return the groups of lanes with one stamp that hold some lanes."""
    return np.flatnonzero(np.bincount(lanes // LANES_OF_STAMP))
