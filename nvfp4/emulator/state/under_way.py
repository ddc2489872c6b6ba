"""Launches that may still run when a later one of their stream begins.

A programmatic launch need not wait for the one before it. Until a thread has executed
griddepcontrol.wait, writes of the earlier launch may be missing, and may land after the thread's
own. Reads that the earlier launch makes after its trigger may come after the thread's writes.
"""

from dataclasses import replace

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.global_races import GlobalRaces
from nvfp4.emulator.state.memory import READ_LATE, GlobalMemory, contents
from nvfp4.emulator.state.native import SECTOR_BYTES
from nvfp4.records.base import Record
from nvfp4.records.launch import Buffer


class Written(Record):
    """The bytes of a buffer that a launch has written."""

    buffer: Buffer
    where: Array
    """bool[nbytes]."""
    before: Array | None
    """The earlier contents, if the next launch may have seen them."""


class Footprint(Record):
    """The accesses of a launch that may still run when the next one begins."""

    kernel: str
    written: list[Written]
    read: list[tuple[Buffer, Array]]
    """Sectors of each buffer that were read when the next launch might have begun,
    bool[sectors]."""
    waits: bool
    """Whether it has waited for earlier launches."""
    ends: bool = True
    """Whether it has ended once a thread of the launch that overlaps it has waited."""


class UnderWay:
    """Launches that a programmatic launch may overlap, by stream, the latest last."""

    def __init__(self) -> None:
        self._by_stream: dict[int, list[Footprint]] = {}

    def met_by(self, stream: int, programmatic: bool) -> list[Footprint]:
        """The launches that the next launch of a stream may overlap."""
        return list(self._by_stream.get(stream, ())) if programmatic else []

    def ended(self, stream: int, programmatic: bool, left: Footprint, late: bool) -> None:
        """Record that a launch of a stream has run. late: whether the next one begins after it has
        waited, if it waits: otherwise earlier launches are kept."""
        met = self.met_by(stream, programmatic)
        earlier = [] if left.waits and late else [replace(each, ends=left.waits) for each in met]
        self._by_stream[stream] = [*earlier, left]


def footprint(
    kernel: str, memory: GlobalMemory, races: GlobalRaces | None, triggers: bool, waits: bool
) -> Footprint:
    """Return the footprint of a finished launch; without a race check its writes are unknown.

    triggers: whether the launch has let the next one begin; otherwise that begins once its CTAs
    have ended.
    """
    written = []
    for address, where in races.written() if races is not None else ():
        if address in memory.kept:
            buffer, before = memory.kept[address]
            written.append(Written(buffer, where[: buffer.nbytes], before if triggers else None))
    buffers = memory.buffers if triggers else []
    flags = ((buffer, memory.flags(buffer) & READ_LATE != 0) for buffer in buffers)
    read = [(buffer, late) for buffer, late in flags if late.any()]
    return Footprint(kernel, written, read, waits)


class Hazards:
    """Writes of earlier launches that may still be in flight while a launch runs.

    early: whether it runs as early as it may: such writes are invisible until a thread has waited.
    waited, triggered: whether a thread of the launch has waited or triggered. late: whether a CTA
    has waited before it triggered.
    """

    def __init__(self, met: list[Footprint], memory: GlobalMemory, early: bool) -> None:
        alive = {(buffer.address, buffer.nbytes) for buffer in memory.buffers}

        def lives(buffer: Buffer) -> bool:
            return (buffer.address, buffer.nbytes) in alive

        self.waited = self.triggered = self.late = False
        self._parts: list[tuple[Footprint, Written]] = []
        self._read: list[tuple[Footprint, Buffer, Array]] = []
        for launch in met:
            self._parts += [(launch, part) for part in launch.written if lives(part.buffer)]
            self._read += [(launch, buffer, late) for buffer, late in launch.read if lives(buffer)]
        self._landing: list[tuple[Footprint, Written, Array]] = []
        if early:
            for launch, part in self._parts:
                if part.before is not None:
                    memory.keep_contents(part.buffer.address, part.buffer.address)
                    now = contents(part.buffer)
                    self._landing.append((launch, part, now.copy()))
                    now[part.where] = part.before[part.where]

    def __bool__(self) -> bool:
        return bool(self._parts or self._read)

    def land(self, all_of_them: bool = False) -> None:
        """Record that the previous launch has ended, or all earlier ones."""
        late = []
        for launch, part, after in self._landing:
            if all_of_them or launch.ends:
                contents(part.buffer)[part.where] = after[part.where]
            else:
                late.append((launch, part, after))
        self._landing = late

    def find(self, address: Array, nbytes: int, waited: Array) -> tuple[int, str] | None:
        """Return the first of these accesses that touches bytes which a launch is yet to write, and
        that launch's kernel.

        waited: for each access, whether its thread has waited for the previous launch.
        """
        start = address.astype(np.int64)
        for launch, part in self._parts:
            low = start - part.buffer.address
            near = (low < part.buffer.nbytes) & (low + nbytes > 0)
            if launch.ends:
                near &= ~waited
            for i in np.flatnonzero(near).tolist():
                if part.where[max(0, low[i]) : low[i] + nbytes].any():
                    return i, launch.kernel
        return None

    def find_read(self, address: Array, nbytes: int, waited: Array) -> tuple[int, str] | None:
        """Return the first of these writes to bytes that an earlier launch may still read, and the
        name of its kernel. Reads are known by sector only, so only writes of whole sectors
        count."""
        for launch, buffer, late in self._read:
            inside = (address >= buffer.address) & (address < buffer.end)
            if launch.ends:
                inside &= ~waited
            some = np.flatnonzero(inside)
            each = address[some].astype(np.int64)[:, None] + np.arange(nbytes)
            sectors, count = np.unique(np.unique(each) >> 5, return_counts=True)
            whole = sectors[count == SECTOR_BYTES] - (buffer.address >> 5)
            if late[whole[whole < late.size]].any():
                return int(some[0]), launch.kernel
        return None
