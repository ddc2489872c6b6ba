"""The last accesses to each byte of shared memory, and whether a barrier orders a later one.

Each cluster, which mostly is one CTA, has a clock for each of its warps, those of its first CTA
first, and behind them one for the asynchronous copy engine of each of its CTAs, then one for the
tensor pipe of each, which is the number of operations that are complete.
`known[cluster, w, v]` is the latest clock of v that warp w has heard of through barriers; a warp's
own clock is `known[cluster, w, w]` and moves on at each synchronisation. The last columns of
`known` are for synchronisation between clusters through global memory (see `global_races`). Warps
synchronise as a whole, so that a race can go unnoticed when part of a warp takes part, but none is
reported wrongly.

Each cell remembers its last writer and two readers, of two warps if there are: the first, and one
that is drawn among all others. A cell is a chunk of 16 bytes, until an access touches some of its
bytes only: then each word of four bytes has a cell of its own, and likewise each byte of a word.
The writer of what is divided is SPLIT, until one access writes all of it. A stamp is
clock << 32 | atomic << 31 | first << 16 | thread + 1, and 0 is none. Threads are counted through
the cluster, and the copy engine of a CTA acts as a warp behind them. first tells of an atomic on
what nothing had written. An atomic is in order with other atomics anyway, but not with the plain
write before it, which stays in place of the first reader. A read whose value may still be in flight
has the same bit as an atomic.

The copy engine accesses memory through another proxy than threads: `fenced[cluster, w]` is the
latest clock of warp w that a proxy fence of any warp has covered.
"""

from functools import cached_property

import numpy as np

from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array

ATOMIC = 1 << 31
_UNDER_WAY_READ = ATOMIC
THREAD = (1 << 16) - 1
_FIRST = 1 << 16
UNDER_WAY = np.int64(0x7FFFFFFF)
"""The clock of a copy that no thread has waited for: no access is ordered after it."""
WRITTEN_BEFORE = 1
"""The stamp of bytes that were written before any thread ran."""
SPLIT = -1
"""Stands for the writer of a chunk or word whose parts have separate cells."""
CELLS_OF_CHUNK = 1 + 4 + 16
"""Cells are int64[3, chunks, then words, then bytes], the writers and then the two readers. 0 is
unwritten; those of parts need no value until the whole is split."""
CHANNELS = 8
"""Columns of `known` for synchronisation between CTAs."""

# Only the worst fault of an instruction is reported.
NO_FAULT, OVERTAKEN, UNFENCED, RACE_IN_WARP, UNINITIALISED, RACE = range(6)


@loop
def _chunks(stamps):  # type: ignore[no-untyped-def]
    """Return the number of chunks, which is the index of the first word's cell."""
    return np.uint64(stamps.shape[1] // CELLS_OF_CHUNK)


@loop
def _cell(stamps, byte, nbytes=16):  # type: ignore[no-untyped-def]
    """Return the index of the cell that holds a byte, and how many bytes it holds. nbytes: of an
    access for which `split` was called."""
    if nbytes & 15 == 0:
        chunk = np.uint64(byte >> 4)  # unsigned, so that Numba need not ask whether it is negative
        if stamps[0, chunk] != SPLIT:
            return chunk, 16
    word = _chunks(stamps) + np.uint64(byte >> 2)
    if stamps[0, word] != SPLIT:
        return word, 4
    return np.uint64(5) * _chunks(stamps) + np.uint64(byte), 1


@loop
def _divide(stamps, cell, first):  # type: ignore[no-untyped-def]
    """Split a cell into four, the first of which is `first`."""
    for k in range(3):
        for part in range(first, first + np.uint64(4)):
            if stamps[k, part] != stamps[k, cell]:  # what stays 0 takes no memory
                stamps[k, part] = stamps[k, cell]
    stamps[0, cell] = SPLIT


@loop
def split(stamps, offset, nbytes):  # type: ignore[no-untyped-def]
    """Give the parts of the chunks that hold these bytes their own cells, for accesses whose place
    and length are multiples of the powers of two in `nbytes`."""
    chunks, whole = _chunks(stamps), False
    two, four = np.uint64(2), np.uint64(4)
    for i in range(offset.shape[0]):
        whole |= stamps[0, offset[i] >> four] != SPLIT
    for i in range(offset.shape[0] if whole else 0):
        chunk = offset[i] >> four
        if stamps[0, chunk] != SPLIT:
            _divide(stamps, chunk, chunks + (chunk << two))
    for i in range(offset.shape[0] if nbytes & 3 else 0):
        word = chunks + (offset[i] >> two)
        if stamps[0, word] != SPLIT:
            _divide(stamps, word, chunks + (word << two))


@loop
def _join(stamps, begin, end, stamp):  # type: ignore[no-untyped-def]
    """Join what is split within [begin, end): one access has written it, with no read since."""
    chunks = np.int64(_chunks(stamps))
    for chunk in range(begin >> 4, (end + 15) >> 4):
        if stamps[0, chunk] == SPLIT:
            first, last = max((begin + 3) >> 2, chunk << 2), min(end >> 2, (chunk << 2) + 4)
            for word in range(first, last):
                if stamps[0, chunks + word] == SPLIT:
                    stamps[0, chunks + word] = stamp
                    stamps[1, chunks + word] = stamps[2, chunks + word] = 0
            if last - first == 4:
                stamps[0, chunk] = stamp
                stamps[1, chunk] = stamps[2, chunk] = 0


@loop
def writer_of(stamps, byte):  # type: ignore[no-untyped-def]
    """The stamp of the last writer of a byte."""
    return stamps[0, _cell(stamps, byte)[0]]


@loop
def first_unwritten(stamps, offset):  # type: ignore[no-untyped-def]
    """Return the first of these bytes that nothing has written, or -1, and how many there are."""
    first, count = -1, 0
    for i in range(offset.shape[0]):
        if writer_of(stamps, np.int64(offset[i])) == 0:
            first = i if first < 0 else first
            count += 1
    return first, count


@loop
def ordered(stamp, thread, row):  # type: ignore[no-untyped-def]
    """Whether the stamped access happened before what `thread` does now. row: what its warp
    knows."""
    if stamp == 0:
        return True
    other = (stamp & THREAD) - 1
    its = other >> 5
    if its == thread >> 5:
        return other == thread or stamp >> 32 < row[its]
    return stamp >> 32 <= row[its]


@loop
def in_warp(stamp, thread):  # type: ignore[no-untyped-def]
    """Return whether a thread of `thread`'s warp left the stamp."""
    return stamp != 0 and ((stamp & THREAD) - 1) >> 5 == thread >> 5


@loop
def is_drawn(reader, other, cell, salt):  # type: ignore[no-untyped-def]
    """Return whether a warp and not the other one is remembered as a reader of a cell. Among many
    warps, each is as likely. salt: drawn for the launch, so that no kernel can foresee it."""
    place = np.int64(cell) + np.int64(salt)
    return _ticket(reader, place) > _ticket(other, place)


@loop
def _ticket(warp, place):  # type: ignore[no-untyped-def]
    """Return a number for a warp; with one product alone, neighbours would not be as likely."""
    mixed = ((np.int64(warp) * 40503 + place) * 2654435761) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF


@loop
def _gives_way(second, reader, thread, cell, salt):  # type: ignore[no-untyped-def]
    """Return whether a cell forgets its second reader for a read by `thread`."""
    if in_warp(second, thread) or in_warp(second, (reader & THREAD) - 1):
        return not in_warp(second, thread)
    drawn = is_drawn(thread >> 5, ((second & THREAD) - 1) >> 5, cell, salt)
    return drawn and not in_warp(reader, thread)


@loop
def worse(stamp, than, thread):  # type: ignore[no-untyped-def]
    """Choose between two stamps that race with `thread`: prefer that of another warp; 0 is none."""
    return stamp if than == 0 or in_warp(than, thread) else than


@loop
def note_reads(  # type: ignore[no-untyped-def]
    offset, nbytes, lanes, threads, known, touched, stamps, under_way, flag, salt
):
    """Record reads of `nbytes` at each offset. threads: of a cluster. under_way: whether the lanes
    arrive at a barrier before they use the values. flag: whether atomics may write at the same
    time. salt: see `is_drawn`. Returns the first (lane, fault, other's stamp), how many lanes are
    at fault, and the first lane that reads what nothing has written, or -1."""
    first, kind, other = -1, NO_FAULT, np.int64(0)
    unwritten = -1
    count = 0
    warp = cluster = np.int64(-1)
    row = known[0, 0]
    fine = stamp = reader = second = np.int64(0)
    settled = False
    for i in range(offset.shape[0]):
        if lanes[i] >> 5 != warp:
            warp = lanes[i] >> 5
            cluster = lanes[i] // threads
            mine = warp - cluster * (threads >> 5)
            row = known[cluster, mine]
            touched[cluster, mine] = row[mine]
            stamp = np.int64(row[mine]) << 32
            if under_way:
                stamp |= _UNDER_WAY_READ
            fine = np.int64(0)
            settled = False
        t = lanes[i] - cluster * threads
        # Two lanes of the warp have read this cell: a third one makes no difference.
        one_of_them = t + 1 == reader & THREAD or t + 1 == second & THREAD
        if settled and offset[i] == offset[i - 1] and not one_of_them:
            continue
        settled = False
        mark = stamp | (t + 1)
        older = np.int64(0)
        fault = NO_FAULT
        b = np.int64(offset[i])
        end = b + nbytes
        while b < end:
            cell, size = _cell(stamps, b, nbytes)
            b += size
            writer = stamps[0, cell]
            # Neighbours mostly have one history: look at it once.
            if writer == 0:
                unwritten = i if unwritten < 0 else unwritten
            elif writer != fine:
                meant = flag and writer & ATOMIC != 0
                if not meant and not ordered(writer, t, row):
                    fault = max(fault, RACE_IN_WARP if in_warp(writer, t) else RACE)
                    if fault > kind:
                        first, kind, other = i, fault, writer
                elif writer >> 32 < stamp >> 32 or not in_warp(writer, t):
                    fine = writer
            if flag:
                continue
            reader, second = stamps[1, cell], stamps[2, cell]
            if reader == older or ordered(reader, t, row):
                older = reader
                stamps[1, cell] = mark
            elif ordered(second, t, row) or _gives_way(second, reader, t, cell, salt):
                stamps[2, cell] = mark
            elif writer == fine and nbytes == size:
                settled = in_warp(reader, t) and in_warp(second, t)
        if fault != NO_FAULT:
            count += 1
    return first, kind, other, count, unwritten


@loop
def unwritten_flag(offset, nbytes, lanes, threads, known, stamps):  # type: ignore[no-untyped-def]
    """Return the first of these lanes whose read of a flag may come before its first write, or
    -1."""
    for i in range(offset.shape[0]):
        cluster = lanes[i] // threads
        t = lanes[i] - cluster * threads
        for b in range(np.int64(offset[i]), np.int64(offset[i]) + nbytes):
            writer = writer_of(stamps, b)
            first = writer & ATOMIC != 0 and writer & _FIRST != 0
            if first and not ordered(writer, t, known[cluster, t >> 5]):
                return i
    return -1


@loop
def _in_one_instruction(i, byte, writer, offset, nbytes, lanes, thread):  # type: ignore[no-untyped-def]
    """Return whether another lane of the warp left the stamp at a byte by the same instruction as
    lane i's: which of the lanes writes is then undefined, but no synchronisation is missing."""
    for j in range(i - 1, -1, -1):
        if lanes[j] >> 5 != lanes[i] >> 5:
            return False
        start = np.int64(offset[j])
        by = thread + lanes[j] - lanes[i]
        if by + 1 == writer & THREAD and start <= byte < start + nbytes:
            return True
    return False


@loop
def note_writes(  # type: ignore[no-untyped-def]
    offset, nbytes, lanes, threads, known, touched, stamps, atomic, engine, memory, new
):
    """Write, and record it; new[lane, byte] against memory tells repeated writes of one value
    apart, which are no race. Atomics are recorded only. So are copies that these lanes issue,
    which will write at a time of their own; `engine` is who their stamps name, 0 if there are none.
    Returns the first (lane, fault, other's stamp) and how many lanes race.
    """
    stores = not atomic and engine == 0
    first, kind, other = -1, NO_FAULT, np.int64(0)
    count = 0
    warp = cluster = now = np.int64(-1)
    row = known[0, 0]
    for i in range(offset.shape[0]):
        if lanes[i] >> 5 != warp:
            warp = lanes[i] >> 5
            cluster = lanes[i] // threads
            mine = warp - cluster * (threads >> 5)
            row = known[cluster, mine]
            now = np.int64(row[mine])
            touched[cluster, mine] = now
        t = lanes[i] - cluster * threads
        stamp = (now << 32) | (t + 1)
        if atomic:
            stamp |= ATOMIC
        if engine:
            stamp = (UNDER_WAY << 32) | (engine + 1)
        start = np.int64(offset[i])
        end = start + nbytes
        fine = np.int64(0)
        older = np.int64(0)
        racing = np.int64(0)
        b = start
        while b < end:
            cell, size = _cell(stamps, b, nbytes)
            writer = stamps[0, cell]
            if writer != fine:
                if ordered(writer, t, row):
                    fine = writer
                elif not atomic or (writer & ATOMIC) == 0:
                    same = stores
                    for byte in range(b, b + size if stores else b):
                        same = same and memory[byte] == new[i, byte - start]
                    if not same:
                        if _in_one_instruction(i, b, writer, offset, nbytes, lanes, t):
                            fine = writer
                        else:
                            racing = worse(writer, racing, t)
            for reader in (stamps[1, cell], stamps[2, cell]):
                if reader != older and reader != 0:
                    if not ordered(reader, t, row):
                        racing = worse(reader, racing, t)
                    older = reader
            stamps[0, cell] = stamp | _FIRST if atomic and writer == 0 else stamp
            kept = np.int64(0)
            if atomic:  # other warps' atomics have to be in order with the plain write, too
                kept = stamps[1, cell] if writer & ATOMIC != 0 else writer
            if stamps[1, cell] != 0 or kept != 0:  # what is not written takes no memory
                stamps[1, cell], stamps[2, cell] = kept, 0
            b += size
        if not atomic:
            _join(stamps, start, end, stamp)
        if racing != 0:
            count += 1
            fault = RACE_IN_WARP if in_warp(racing, t) else RACE
            if fault > kind:
                first, kind, other = i, fault, racing
        if stores:
            for b in range(start, end):
                memory[b] = new[i, b - start]
    return first, kind, other, count


@loop
def _unfenced(stamp, engine, fenced):  # type: ignore[no-untyped-def]
    """Return whether a thread left the stamp, and no proxy fence has covered its access."""
    other = (stamp & THREAD) - 1
    by_engine = other == engine or other >> 5 >= fenced.shape[0]
    return stamp != 0 and not by_engine and stamp >> 32 > fenced[other >> 5]


@loop
def _alike(stamps, first, last):  # type: ignore[no-untyped-def]
    """Return whether these chunks have one writer each, the same one, and no readers."""
    writer, other = stamps[0, first], np.int64(0)
    for cell in range(first, last):
        other |= stamps[0, cell] ^ writer | stamps[1, cell] | stamps[2, cell]
    return other == 0 and writer != SPLIT


@loop
def note_engine(  # type: ignore[no-untyped-def]
    offset, nbytes, lanes, threads, engines, known, fenced, stamps, write, by_threads, found
):
    """Stamp ranges for copy engines; lanes[i] issued the copy, so what it knows of is in order.
    engines: who their stamps name. known, fenced: see `Clocks`. by_threads: whether the access is
    in the proxy of threads. found[i]: gets (byte, fault, other's stamp) of the worst."""
    for i in range(offset.shape[0]):
        start, engine = np.int64(offset[i]), engines[i]
        end = start + nbytes
        unit = start | nbytes
        if unit & 15:
            split(stamps, offset[i : i + 1], unit)
            split(stamps, offset[i : i + 1] + np.uint64(nbytes - 1), unit)
        cluster = lanes[i] // threads
        thread = lanes[i] - cluster * threads
        row = known[cluster, thread >> 5]
        covered = row if by_threads else fenced[cluster]
        first, kind, other = np.int64(-1), NO_FAULT, np.int64(0)
        stamp = (np.int64(known[cluster, engine >> 5, engine >> 5]) << 32) | (engine + 1)
        fine = np.int64(0)
        older = np.int64(0)
        alike = write and unit & 15 == 0 and _alike(stamps, start >> 4, end >> 4)
        b = start
        while b < end:
            cell, size = _cell(stamps, b)
            writer = stamps[0, cell]
            fault = NO_FAULT
            racing = writer
            if writer == 0 and not write:
                fault = UNINITIALISED
            elif writer != fine:
                if not ordered(writer, thread, row):
                    fault = RACE
                elif _unfenced(writer, engine, covered):
                    fault = UNFENCED
                else:
                    fine = writer
            if write:
                for reader in (stamps[1, cell], stamps[2, cell]):
                    if reader != 0 and fault < RACE and reader != older:
                        if not ordered(reader, thread, row):
                            fault, racing = RACE, reader
                        elif not reader & _UNDER_WAY_READ or not _unfenced(reader, engine, covered):
                            older = reader
                        elif fault == NO_FAULT:
                            fault, racing = OVERTAKEN, reader
                stamps[0, cell] = stamp
                if stamps[1, cell] != 0:
                    stamps[1, cell] = stamps[2, cell] = 0
            elif ordered(stamps[1, cell], thread, row):
                stamps[1, cell] = stamp
            else:
                stamps[2, cell] = stamp
            if fault > kind:
                first, kind, other = b, fault, racing
            b += size
            if alike:  # the first chunk tells all
                stamps[0, b >> 4 : end >> 4] = stamp
                break
        if write:
            _join(stamps, start, end, stamp)
        found[i, 0], found[i, 1], found[i, 2] = first, kind, other


@loop
def note_tensor_reads(  # type: ignore[no-untyped-def]
    offsets, starts, clusters, agents, threads, known, fenced, stamps, numbers, reads, widths,
    width, data_bytes, worst, unwritten
):  # fmt: skip
    """Operations of tensor cores read the first bytes of a chunk of 16 at each offset behind each
    start, on behalf of a thread of a cluster, which has `threads`. Nothing is stamped, but `reads`,
    by chunk, gets their numbers. worst[i]: gets (byte, fault, other's stamp) of the worst that one
    of them does, and the first byte that an engine wrote by another swizzle than one of `width`, or
    -1. unwritten: which of the reads meet a byte that nothing has written."""
    for i in range(starts.shape[0]):
        first, kind, other, mismatch = np.int64(-1), NO_FAULT, np.int64(0), np.int64(-1)
        thread = agents[i]
        row = known[clusters[i], thread >> 5]
        fine = np.int64(0)
        for j in range(offsets.shape[0]):
            unwritten[i, j] = False
            b = starts[i] + offsets[j]
            chunk, end = b >> 4, b + data_bytes
            reads[chunk] = numbers[i]
            if widths[chunk] != 0 and widths[chunk] != width and mismatch < 0:
                # Behind the cluster's threads are its copy engines.
                mismatch = b if (writer_of(stamps, b) & THREAD) > threads else mismatch
            while b < end and (fine == 0 or stamps[0, chunk] != fine):
                cell, size = _cell(stamps, b)
                writer = stamps[0, cell]
                fault = NO_FAULT
                if writer == 0:
                    unwritten[i, j] = True
                elif writer != fine:
                    if not ordered(writer, thread, row):
                        fault = RACE
                    elif _unfenced(writer, threads, fenced[clusters[i]]):
                        fault = UNFENCED
                    else:
                        fine = writer
                if fault > kind:
                    first, kind, other = b, fault, writer
                b += size
        worst[i, 0], worst[i, 1], worst[i, 2], worst[i, 3] = first, kind, other, mismatch


@loop
def note_landing(offset, nbytes, lanes, threads, at, touched, stamps):  # type: ignore[no-untyped-def]
    """Stamp bytes that copies of these lanes have written, each at a clock of its warp."""
    if nbytes & 15:
        split(stamps, offset, nbytes)  # another write may have joined them since the copies' issue
    for i in range(offset.shape[0]):
        c = lanes[i] // threads
        t = lanes[i] - c * threads
        when = np.int64(at[i])
        touched[c, t >> 5] = max(touched[c, t >> 5], when)
        b = np.int64(offset[i])
        end = b + nbytes
        while b < end:
            cell, size = _cell(stamps, b, nbytes)
            stamps[0, cell] = (when << 32) | (t + 1)
            b += size


ENGINES, OF_MBARRIERS = 11, 7
"""The copy engines that a CTA counts as, so that a wait for one copy is none for all. The first
complete mbarriers, by their addresses, the others none, by the warps of the threads."""


def clocks_of(ctas: int, warps: int) -> int:
    """Return how many clocks a cluster has: of all warps, copy engines and tensor pipes."""
    return ctas * (warps + ENGINES + 1)


class Clocks:
    """The clocks of a batch of clusters: known[cluster, warp, warp], int32; the copy engines and
    then the tensor pipes are the last warps, and CHANNELS more columns follow. touched[cluster,
    warp], int32: the clock of the warp's latest access to shared memory. fenced[cluster, warp],
    int32, and published, the same for fences that order accesses before those of other clusters."""

    def __init__(self, clusters: int, ctas: int, warps: int) -> None:
        """Set up clocks for `clusters` clusters of `ctas` CTAs of `warps` warps each."""
        self._ctas = ctas
        self._warps_of_cta = warps
        self.warps = ctas * warps
        self.columns = clocks_of(ctas, warps)
        self._told: dict[int, Array] = {}
        self.known = np.zeros((clusters, self.columns, self.columns + CHANNELS), np.int32)
        own = np.arange(self.columns)
        self.known[:, own, own] = 1
        self.touched = np.zeros((clusters, self.warps), np.int32)
        self.fenced = np.zeros((clusters, self.warps), np.int32)
        self.published = np.zeros((clusters, self.columns), np.int32)

    @cached_property
    def ordered(self) -> Array:
        """Return the clocks that each warp's fence ordered before its later relaxed arrivals, in
        the form of `known`."""
        return np.zeros_like(self.known[:, : self.warps])

    @cached_property
    def seen(self) -> Array:
        """Return the clocks seen by relaxed waits of each warp, known from its next fence on, in
        the form of `known`."""
        return np.zeros_like(self.known[:, : self.warps])

    def learn_seen(self, cluster: Array, warp: Array) -> None:
        """Record that these warps executed a fence after their relaxed waits."""
        if "seen" in self.__dict__:
            known, seen = self.known[cluster, warp], self.seen[cluster, warp]
            self.known[cluster, warp] = np.maximum(known, seen)

    def order(self, cluster: Array, warp: Array) -> None:
        """Record that these warps executed a fence, which orders every access they know of."""
        self.learn_seen(cluster, warp)
        self.ordered[cluster, warp] = self.known[cluster, warp]

    def of_cta(self, cta: int) -> Array:
        """Return the latest clocks that any thread of a CTA of the batch knows: int32[clocks]."""
        cluster, rank = divmod(cta, self._ctas)
        first = rank * self._warps_of_cta
        return self.known[cluster, first : first + self._warps_of_cta].max(axis=0)

    def meet_all(self) -> None:
        """Record that every warp of every CTA met at a barrier of its CTA."""
        mine = self.known[:, : self.warps]
        by_cta = mine.reshape(len(mine), self._ctas, self._warps_of_cta, -1)
        heard = np.broadcast_to(by_cta.max(axis=2, keepdims=True), by_cta.shape)
        mine[:] = heard.reshape(mine.shape)
        own = np.arange(self.warps)
        mine[:, own, own] += 1

    def meet(self, ctas: Array, came: Array, stay: Array) -> None:
        """Record a barrier of CTAs. came, stay: warps that arrived, and warps that waited,
        bool[ctas, warps]."""
        cluster = (ctas // self._ctas)[:, None]
        warp = (ctas % self._ctas * self._warps_of_cta)[:, None] + np.arange(self._warps_of_cta)
        known = self.known[cluster, warp]
        told = np.where(came[:, :, None], known, 0).max(axis=1)
        heard = np.maximum(known, told[:, None, :])
        self.known[cluster, warp] = np.where(stay[:, :, None], heard, known)
        self.known[cluster, warp, warp] += came

    def meet_by_atomics(
        self, offset: Array, cluster: Array, warp: Array, hears: bool = True, tells: bool = True,
        relaxed: bool = False
    ) -> None:  # fmt: skip
        """Record that warps execute atomics at the same places of shared memory, one after the
        other, so that later ones acquire what earlier ones release.

        hears: False for atomics that return nothing and so acquire nothing. tells: False for loads
        of flags, which release nothing. relaxed: each releases only what a fence has ordered.
        """
        places = np.unique(np.stack([offset.astype(np.int64), cluster, warp]), axis=1)
        for place, row, number in places.T.tolist():
            mine = self.known[row, number]
            told = self._told.get(place)
            if told is not None and hears:
                np.maximum(mine, told, out=mine)
            if tells:
                tale = self.ordered[row, number] if relaxed else mine
                self._told[place] = tale.copy() if told is None else np.maximum(tale, told)
                mine[number] += 1

    def fence_proxies(self, cluster: Array, warp: Array) -> None:
        """Record that these warps executed a proxy fence. It covers all accesses they know of, but
        not those that they make later at the same clock."""
        covered = self.known[cluster, warp, : self.warps]
        covered[np.arange(warp.size), warp] = self.touched[cluster, warp]
        np.maximum.at(self.fenced, cluster, covered)

    def publish(self, cluster: Array, warp: Array) -> None:
        """Record a fence of these warps for other clusters, which covers all that they know of."""
        np.maximum.at(self.published, cluster, self.known[cluster, warp, : self.columns])

    def step_warps(self, cluster: Array, warp: Array) -> None:
        """Record that the threads of each of these warps synchronised."""
        self.known[cluster, warp, warp] += 1
