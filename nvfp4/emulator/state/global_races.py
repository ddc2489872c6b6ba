"""The last accesses to each byte of global memory, and whether a later one is ordered after them.

Only buffers that the launch writes are watched, from their first write on: what is only read costs
nothing. `GlobalRaces.missed` tells when reads before that write may matter.

A cell is two bytes. It remembers its last plain writer and two readers, of two warps if there are;
an atomic access counts as a reader that other atomics may join. A stamp is 0 for none, else
(CTA + 1) << 36 | clock << 18 | bytes of the cell << 16 | atomic << 15 | thread, with the linear
number in the grid of the cluster's first CTA, and the thread in the cluster. Below, a CTA is a
cluster.

Within a CTA the clocks of `races` order accesses. Between CTAs atomics do: an atomic tells its
location what its warp knows (release) and tells the warp what the location was told (acquire).
Locations share a few channels, drawn for each launch, so a race can go unnoticed but none is
reported wrongly. A release
is recorded with the warp's clocks and the channel's epoch; a warp has heard of it if it knows that
epoch, which is a column of `Clocks.known`.

Most atomics are relaxed: earlier accesses need not be visible to a thread that sees the atomic,
unless a fence lies between. Hardware hardly ever makes a difference, so this is no race. A release
keeps, beside its clocks, the clocks that a fence has published, which tell the two cases apart.
"""

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.memory import READ, WRITTEN, GlobalMemory
from nvfp4.emulator.state.native import load, store
from nvfp4.emulator.state.races import CHANNELS, Clocks, is_drawn
from nvfp4.records.launch import Buffer

ATOMIC = 1 << 15
FENCED = ATOMIC
"""Set in a writer's stamp if its warp executed a fence before the store, as to raise a flag."""
THREAD = (1 << 15) - 1
_CLOCK, _OWNER, _BYTES = 18, 36, 16
FENCES = 0
"""The channel that fences release to; no location uses it."""
_LATEST = (1 << 18) - 1
WORD = np.uint64(8)


@loop
def _ordered(stamp, cta, thread, row, releases, latest):  # type: ignore[no-untyped-def]
    """Return whether the stamped access happened before what a thread of a CTA does now.

    row: the clocks that the thread's warp knows of. releases: see `GlobalRaces`.
    """
    owner = (stamp >> _OWNER) - 1
    other = stamp & THREAD
    clock = (stamp >> _CLOCK) & _LATEST
    its = other >> 5
    if owner == cta:
        if other == thread:
            return True
        if its == thread >> 5:
            if clock < row[its]:
                return True
        elif clock <= row[its]:
            return True
    return _told(owner, clock, 3 + its, row, releases, latest)


@loop
def _told(owner, clock, column, row, releases, latest):  # type: ignore[no-untyped-def]
    """Return whether a warp has heard of a release by a CTA that has this clock in a column."""
    warps = row.shape[0] - CHANNELS
    i = latest[owner]
    while i >= 0:
        if releases[i, 1] <= row[warps + releases[i, 2]] and clock <= releases[i, column]:
            return True
        i = releases[i, 0]
    return False


@loop
def _published(stamp, cta, row, releases, latest):  # type: ignore[no-untyped-def]
    """Return whether a fence lies between an access that is `_ordered` and the release after it."""
    owner = (stamp >> _OWNER) - 1
    if owner == cta:
        return True
    clock = (stamp >> _CLOCK) & _LATEST
    column = 3 + row.shape[0] - CHANNELS + ((stamp & THREAD) >> 5)
    return _told(owner, clock, column, row, releases, latest)


@loop
def _holder(address, starts, ends, near):  # type: ignore[no-untyped-def]
    """Return the index of the watched buffer that holds an address, or -1. near: the index to try
    first."""
    if near >= 0 and starts[near] <= address < ends[near]:
        return near
    for i in range(starts.shape[0]):
        if starts[i] <= address < ends[i]:
            return i
    return -1


@loop
def _near(stamp, other):  # type: ignore[no-untyped-def]
    """Return whether two stamps are of the same warp; a stamp of 0 is of none."""
    same_owner = stamp >> _OWNER == other >> _OWNER
    return stamp != 0 and same_owner and (stamp ^ other) & (THREAD & ~31) == 0


@loop
def _of(stamp):  # type: ignore[no-untyped-def]
    """Return a number of the warp that left a stamp."""
    return (stamp >> _OWNER << 10) + ((stamp & THREAD) >> 5)


@loop
def _worse(stamp, than, mine):  # type: ignore[no-untyped-def]
    """Choose between two stamps that race with mine: prefer that of another warp; 0 is none."""
    return stamp if than == 0 or _near(than, mine) else than


@loop
def unwatched(address, starts, ends):  # type: ignore[no-untyped-def]
    """The first position whose address no watched buffer holds, or -1."""
    near = -1
    for i in range(address.shape[0]):
        near = _holder(address[i], starts, ends, near)
        if near < 0:
            return i
    return -1


@loop
def watched(address, starts, ends):  # type: ignore[no-untyped-def]
    """Whether a watched buffer holds one of the addresses."""
    low, high = starts.min(), ends.max()
    for i in range(address.shape[0]):
        if low <= address[i] < high and _holder(address[i], starts, ends, -1) >= 0:
            return True
    return False


@loop
def _bytes_of(cell, first, end):  # type: ignore[no-untyped-def]
    """Which bytes of a cell lie in [first, end): bit set << _BYTES."""
    low = cell << 1
    both = np.int64(0)
    if first <= low < end:
        both |= 1 << _BYTES
    if first <= low + 1 < end:
        both |= 2 << _BYTES
    return both


@loop
def note_reads(  # type: ignore[no-untyped-def]
    address, nbytes, number, row, thread, known, starts, ends, shadows, releases, latest, atomic,
    nc, strong, flagged, salt
):  # fmt: skip
    """Record reads of `nbytes` at each address, or atomics. number: linear CTA numbers. row: places
    of the CTAs in the batch. nc: by the cache of what is never written. strong: loads that race
    with plain stores before them which are not FENCED, and leave no stamp for those that follow.
    flagged: gets for each strong load the CTA of the FENCED store that it reads of. salt: see
    `is_drawn`. Returns the first (lane, other's stamp) that race and how many do, the first that
    may read what was there before."""
    first, other, own, count = -1, np.int64(0), np.int64(0), 0
    early, writer_of_early = -1, np.int64(0)
    near = -1
    for i in range(address.shape[0]):
        begin = np.int64(address[i])
        near = _holder(address[i], starts, ends, near)
        if near < 0:
            continue
        end = begin + nbytes
        low = np.int64(starts[near]) >> 1
        each = np.uint64(((np.int64(ends[near]) + 1) >> 1) - low) * WORD
        cta, t = number[i], thread[i]
        mine = known[row[i], t >> 5]
        now = min(np.int64(mine[t >> 5]), _LATEST)
        stamp = ((cta + 1) << _OWNER) | (now << _CLOCK) | t
        if atomic:
            stamp |= ATOMIC
        racing = np.int64(0)
        fine = np.int64(0)
        for cell in range(begin >> 1, ((end - 1) >> 1) + 1):
            which = _bytes_of(cell, begin, end)
            at = shadows[near] + np.uint64(cell - low) * WORD
            writer = np.int64(load(at, np.uint64))
            if writer & which != 0 and writer != fine:
                if _ordered(writer, cta, t, mine, releases, latest):
                    fine = writer
                    late = nc or not _published(writer, cta, mine, releases, latest)
                    if early < 0 and late and not atomic:
                        early, writer_of_early = i, writer
                elif strong and writer & FENCED != 0:
                    flagged[i] = (writer >> _OWNER) - 1
                else:
                    racing = _worse(writer, racing, stamp)
            placed = False
            before = np.int64(0)
            for _ in range(0 if strong else 2):
                at += each
                reader = np.int64(load(at, np.uint64))
                known_before = reader == 0 or _ordered(reader, cta, t, mine, releases, latest)
                if not known_before and (reader & ATOMIC != 0) != atomic and reader & which != 0:
                    racing = _worse(reader, racing, stamp)
                second = before != 0 and not _near(before, stamp)
                drawn = second and is_drawn(_of(stamp), _of(reader), cell, salt)
                crowded = (_near(before, reader) or drawn) and not _near(reader, stamp)
                if (known_before or crowded) and not placed:
                    store(at, np.uint64(stamp | which))
                    store(shadows[near] - WORD, WORD)
                    placed = True
                before = reader
        if racing != 0:
            count += 1
            if first < 0 or (_near(other, own) and not _near(racing, stamp)):
                first, other, own = i, racing, stamp
    return first, other, count, early, writer_of_early


@loop
def note_writes(  # type: ignore[no-untyped-def]
    address, new, number, row, thread, known, starts, ends, shadows, releases, latest, published
):
    """Write new[lane, byte] at each address, all of them watched, and record that; a value that is
    there already is no race with another writer. Returns as `note_reads`."""
    first, other, own, count = -1, np.int64(0), np.int64(0), 0
    near = -1
    nbytes = new.shape[1]
    for i in range(address.shape[0]):
        begin = np.int64(address[i])
        near = _holder(address[i], starts, ends, near)
        end = begin + nbytes
        low = np.int64(starts[near]) >> 1
        each = np.uint64(((np.int64(ends[near]) + 1) >> 1) - low) * WORD
        cta, t = number[i], thread[i]
        mine = known[row[i], t >> 5]
        now = min(np.int64(mine[t >> 5]), _LATEST)
        stamp = ((cta + 1) << _OWNER) | (now << _CLOCK) | t
        if published[row[i], t >> 5] != 0:
            stamp |= FENCED
        racing = np.int64(0)
        fine = np.int64(0)
        readers = 2 if load(shadows[near] - WORD, np.uint64) else 0
        for cell in range(begin >> 1, ((end - 1) >> 1) + 1):
            which = _bytes_of(cell, begin, end)
            at = shadows[near] + np.uint64(cell - low) * WORD
            writer = np.int64(load(at, np.uint64))
            store(at, np.uint64(stamp | which))
            if writer & which != 0 and writer != fine:
                same = True
                for byte in range(max(begin, cell << 1), min(end, (cell << 1) + 2)):
                    same = same and load(np.uint64(byte), np.uint8) == new[i, byte - begin]
                if _ordered(writer, cta, t, mine, releases, latest):
                    fine = writer
                elif not same:
                    racing = _worse(writer, racing, stamp)
            for _ in range(readers):
                at += each
                reader = np.int64(load(at, np.uint64))
                if reader & which != 0 and not _ordered(reader, cta, t, mine, releases, latest):
                    racing = _worse(reader, racing, stamp)
                if reader != 0:  # what is not written takes no memory
                    store(at, np.uint64(0))
        for b in range(nbytes):
            store(address[i] + np.uint64(b), new[i, b])
        if racing != 0:
            count += 1
            if first < 0 or (_near(other, own) and not _near(racing, stamp)):
                first, other, own = i, racing, stamp
    return first, other, count


@loop
def _row(channel, cta, releases, latest, epochs, used):  # type: ignore[no-untyped-def]
    """Return a CTA's row of `releases` for a channel's epoch, and how many rows are in use then.
    Its fences have one row."""
    k = latest[cta]
    while k >= 0 and channel == FENCES and releases[k, 2] != FENCES:
        k = releases[k, 0]
    if k >= 0 and releases[k, 1] == epochs[channel] and releases[k, 2] == channel:
        return k, used
    releases[used, 0], releases[used, 1], releases[used, 2] = k, epochs[channel], channel
    releases[used, 3:] = 0
    latest[cta] = used
    return used, used + 1


@loop
def _heard(fence, owner, mine, releases, latest):  # type: ignore[no-untyped-def]
    """Return whether a warp has heard of all that a CTA has released by fences, in that row."""
    warps = mine.shape[0] - CHANNELS
    i = latest[owner]
    while i >= 0:
        newer = releases[i, 2] != FENCES and releases[i, 1] <= mine[warps + releases[i, 2]]
        for v in range(3, 3 + 2 * warps):
            newer = newer and releases[i, v] >= releases[fence, v]
        if newer:
            return True
        i = releases[i, 0]
    return False


@loop
def pass_on(  # type: ignore[no-untyped-def]
    channel, owner, row, warp, known, releases, latest, heard, epochs, used
):
    """Release to channels what CTAs have released by fences, where a reader that has not heard of
    it has found the flag that a plain store behind one of these has set. owner: the number of each
    lane's CTA, or -1, which it becomes where nothing is passed on. Returns as `exchange`."""
    for i in range(channel.shape[0]):
        fence = latest[owner[i]] if owner[i] >= 0 else -1
        while fence >= 0 and releases[fence, 2] != FENCES:
            fence = releases[fence, 0]
        if fence < 0 or _heard(fence, owner[i], known[row[i], warp[i]], releases, latest):
            owner[i] = -1
            continue
        k, used = _row(channel[i], owner[i], releases, latest, epochs, used)
        for v in range(3, releases.shape[1]):
            releases[k, v] = max(releases[k, v], releases[fence, v])
        for c in range(CHANNELS):
            told = releases[fence, releases.shape[1] - CHANNELS + c]
            heard[channel[i], c] = max(heard[channel[i], c], told)
    return used


@loop
def exchange(  # type: ignore[no-untyped-def]
    channel, number, row, warp, known, published, releases, latest, heard, epochs, used, tells,
    publishes, acquires
):  # fmt: skip
    """Let lanes release to channels (if tells) and acquire from them (if acquires), one after
    another.

    publishes: whether the release needs no fence. heard[channel]: the epochs of all channels that
    were known to those who told it. used: how many rows of `releases` are in use. Returns the new
    `used`.
    """
    warps = known.shape[2] - CHANNELS
    for i in range(channel.shape[0]):
        b, cta, w = channel[i], number[i], warp[i]
        if i > 0 and b == channel[i - 1] and cta == number[i - 1] and w == warp[i - 1]:
            continue
        mine = known[row[i], w]
        if tells:
            k, used = _row(b, cta, releases, latest, epochs, used)
            for v in range(warps):
                releases[k, 3 + v] = max(releases[k, 3 + v], mine[v])
                seen = mine[v] if publishes else min(mine[v], published[row[i], v])
                releases[k, 3 + warps + v] = max(releases[k, 3 + warps + v], seen)
            for c in range(CHANNELS):
                heard[b, c] = max(heard[b, c], mine[warps + c])
                known_then = releases[k, 3 + 2 * warps + c]
                releases[k, 3 + 2 * warps + c] = max(known_then, mine[warps + c])
            mine[w] += 1
        if acquires:
            for c in range(CHANNELS):
                mine[warps + c] = max(mine[warps + c], heard[b, c])
            mine[warps + b] = epochs[b]
            epochs[b] += 1
    return used


class GlobalRaces:
    """The watched buffers of a launch, and what its CTAs have released to each other by atomics.

    starts, ends: uint64[buffers]. shadows: uint64[buffers], host addresses of the stamps: the last
    writers of all cells, then their first readers, then their second ones. The word before them is
    0 while there are no readers. releases: int32[n, 3 + 2 * clocks + CHANNELS]: the CTA's previous
    row or -1, epoch, channel, clocks, published ones, and the epochs it had heard of. latest:
    int32[CTAs of the grid], a CTA's last row or -1. heard: as of `exchange`. epochs:
    int32[CHANNELS], how often each channel was listened to, and 1.
    """

    def __init__(self, memory: GlobalMemory, ctas: int, clocks: int, watch: list[Buffer]) -> None:
        """clocks: of a CTA. watch: buffers to watch from the start."""
        self._memory = memory
        self.starts = self.ends = np.zeros(0, np.uint64)
        self.shadows = np.zeros(0, np.uint64)
        self._stamps: list[Array] = []
        self.releases = np.zeros((64, 3 + 2 * clocks + CHANNELS), np.int32)
        self.latest = np.full(ctas, -1, np.int32)
        self.heard = np.zeros((CHANNELS, CHANNELS), np.int32)
        self.epochs = np.ones(CHANNELS, np.int32)
        self._salt = secrets.randbits(30)
        self._used = 0
        # Buffers that were read before they were watched, and the sectors read.
        self._early: list[tuple[Buffer, Array]] = []
        for buffer in watch:
            self._watch(buffer)

    def watch(self, address: Array) -> None:
        """Watch the buffers that hold these addresses from now on."""
        while (i := unwatched(address, self.starts, self.ends)) >= 0:
            found = self._memory.nearest(int(address[i]))
            assert found is not None
            buffer = found[0]
            read = self._memory.flags(buffer) & READ
            if read.any():
                self._early.append((buffer, read.copy()))
            self._watch(buffer)

    def _watch(self, buffer: Buffer) -> None:
        # Fresh pages cost nothing until they are touched.
        stamps = np.zeros(1 + 3 * (((buffer.end + 1) >> 1) - (buffer.address >> 1)), np.int64)
        self._stamps.append(stamps)
        self.starts = np.append(self.starts, np.uint64(buffer.address))
        self.ends = np.append(self.ends, np.uint64(buffer.end))
        self.shadows = np.append(self.shadows, np.uint64(stamps[1:].ctypes.data))

    def written(self) -> list[tuple[int, Array]]:
        """Return for each buffer its address and which of its bytes were written, atomics included,
        as bool[nbytes]."""
        found = []
        ranges = self.starts.tolist(), self.ends.tolist()
        for start, end, stamps in zip(*ranges, self._stamps, strict=True):
            first = start >> 1
            whole = np.zeros((((end + 1) >> 1) - first, 2), np.bool_)
            buffer, _ = self._memory.nearest(start) or (None, 0)
            assert buffer is not None
            # An eighth of what stamps would take.
            by_byte = stamps[1:].view(np.uint8).reshape(3, -1, 8)[: 3 if stamps[0] else 1]
            sectors = np.flatnonzero(self._memory.flags(buffer) & WRITTEN)
            if sectors.size:
                ends = int(sectors[0]), int(sectors[-1]) + 1
                begin, stop = ((((start >> 5) + each) << 4) - first for each in ends)
                cells = slice(max(begin, 0), stop)
                bits, *others = by_byte[:, cells, _BYTES // 8] & 3
                atomics = by_byte[1:, cells, 1] & (ATOMIC >> 8) != 0
                for reader, atomic in zip(others, atomics, strict=True):
                    bits |= reader * atomic
                whole[cells, 0], whole[cells, 1] = bits & 1, bits >> 1
            found.append((start, whole.reshape(-1)[start & 1 :]))
        return found

    def missed(self) -> bool:
        """Whether sectors were read before their buffer was watched, and written at any time."""
        flags = self._memory.flags
        return any(bool((flags(b) & WRITTEN)[read > 0].any()) for b, read in self._early)

    def concerns(self, address: Array) -> bool:
        """Return whether a read of these addresses has to be recorded."""
        return bool(self.starts.size) and watched(address, self.starts, self.ends)

    def reads(
        self, address: Array, nbytes: int, who: "Who", atomic: bool = False, nc: bool = False,
        strong: bool = False,
    ) -> "Found":  # fmt: skip
        """Record reads or atomics; see `note_reads`. A strong load of a flag that a plain store has
        set behind a fence acquires what that fence has released."""
        flagged = np.full(address.size if strong else 0, -1)
        found = self._note(
            note_reads, address, nbytes, who, atomic, nc, strong, flagged, self._salt
        )
        if strong and (flagged >= 0).any():
            channel, (_, row, thread, clocks) = self.channels(address), who
            self._make_room(channel.size)
            self._used = pass_on(
                channel, flagged, row, thread >> 5, clocks.known, self.releases, self.latest,
                self.heard, self.epochs, self._used
            )  # fmt: skip
            if (flagged >= 0).any():
                self.exchange(channel, who, tells=False, acquires=True)
        return found

    def writes(self, address: Array, data: Array, who: "Who") -> "Found":
        """Write data[lane, byte] to watched buffers; see `note_writes`."""
        return self._note(note_writes, address, data, who, who[3].published)

    def _note(
        self, note: Callable[..., Any], address: Array, what: Any, who: "Who", *more: Any
    ) -> "Found":
        number, row, thread, clocks = who
        found = note(
            address, what, number, row, thread, clocks.known, self.starts, self.ends, self.shadows,
            self.releases, self.latest, *more
        )  # fmt: skip
        return Found(*map(int, found))

    def channels(self, address: Array) -> Array:
        """Return the channel of each location, int64[n], never FENCES. Which locations share one
        cannot be foreseen."""
        word = (address >> np.uint64(2)).astype(np.int64) * (self._salt | 1)
        return (word ^ (word >> 7) ^ (word >> 13)) % (CHANNELS - 1) + 1

    def exchange(
        self, channel: Array, who: "Who", tells: bool, acquires: bool, publishes: bool = False
    ) -> None:
        """Let these lanes release to channels, acquire from them, or both, one after the other."""
        number, row, thread, clocks = who
        self._make_room(channel.size)
        self._used = exchange(
            channel, number, row, thread >> 5, clocks.known, clocks.published, self.releases,
            self.latest, self.heard, self.epochs, self._used, tells, publishes, acquires
        )  # fmt: skip

    def _make_room(self, rows: int) -> None:
        while self._used + rows > self.releases.shape[0]:
            self.releases = np.concatenate((self.releases, np.zeros_like(self.releases)))


Who = tuple[Array, Array, Array, Clocks]
"""The lanes that access: the numbers of their clusters, the rows of these in their batch, the
threads in them; and the batch's clocks."""


def who_left(stamp: int) -> tuple[int, int]:
    """Return the number of the cluster, and the thread in it, that left a stamp."""
    return (stamp >> _OWNER) - 1, stamp & THREAD


class Found(NamedTuple):
    """The first race among lanes; -1 stands for none."""

    first: int
    """The first lane that races."""
    other: int
    """The stamp of the access that it races with."""
    lanes: int
    """How many lanes race."""
    early: int = -1
    """The first lane that reads what its writer has not published."""
    writer_of_early: int = 0
