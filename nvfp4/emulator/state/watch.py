"""Who touches a few watched bytes.

A `Watch` notes who writes some of global memory. The stamps of a race check tell who, not where: a
launch whose result depends on a race runs once more with a `Witness`, which records the accesses to
its bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nvfp4.emulator.errors import Related, Seen, SourceLocation
from nvfp4.emulator.ptx.types import Array
from nvfp4.records.launch import Dim3

MOST_WRITERS = 8


@dataclass(frozen=True)
class Writer:
    """A thread that has executed an instruction on the watched bytes.

    file: as messages call it; None where no line of the user's is known. text: that line, or the
    instruction.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    cta: Dim3
    thread: Dim3
    file: str | None
    line: int | None
    text: str


@dataclass
class Watch:
    """Bytes [address, end) and who wrote them, the last one last; each writer once."""

    address: int
    end: int
    writers: list[Writer] = field(default_factory=list)

    def covers(self, address: Array, nbytes: int) -> Array:
        """Which accesses of ``nbytes`` at these addresses touch the bytes: bool."""
        start = address.astype("int64")
        inside: Array = (start < self.end) & (start + nbytes > self.address)
        return inside

    def note(self, writer: Writer) -> None:
        """The last writer so far."""
        if writer in self.writers:
            self.writers.remove(writer)
        self.writers.append(writer)
        del self.writers[:-MOST_WRITERS]


_current: list[Watch] = []


def current() -> Watch | None:
    """The watch that is on."""
    return _current[-1] if _current else None


@contextmanager
def watching(address: int, nbytes: int) -> Iterator[Watch]:
    """Have all launches note who writes these bytes."""
    watch = Watch(address, address + nbytes)
    _current.append(watch)
    try:
        yield watch
    finally:
        _current.remove(watch)


_MOST = 4096


class Event(NamedTuple):
    """An access to the watched bytes. cta, thread: linear, as in Seen."""

    line: int
    cta: int
    thread: int
    writes: bool
    atomic: bool
    where: SourceLocation


class Witness:
    """Records the accesses to the bytes of one race, in order."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.events: list[Event] = []

    def saw(
        self,
        space: str,
        address: Array,
        nbytes: int,
        who: tuple[Array, Array],
        line: int,
        writes: bool,
        where: Callable[[int], SourceLocation],
        atomic: bool = False,
        homes: Array | None = None,
    ) -> None:
        """Lanes of (linear CTAs, threads) access `nbytes` at each address. where: by position.
        homes: the linear CTAs whose shared memory it is."""
        seen = self.seen
        if space != seen.space or len(self.events) > _MOST:
            return
        ctas, threads = who
        start = address.astype(np.int64)
        hit = (start < seen.address + seen.nbytes) & (start + nbytes > seen.address)
        if space == "shared":
            hit &= homes == seen.home
        for i in np.flatnonzero(hit)[:_MOST].tolist():
            event = Event(line, int(ctas[i]), int(threads[i]), writes, atomic, where(i))
            self.events.append(event)

    def other(self) -> Related | None:
        """The other access of the race; None if it was not seen."""
        seen = self.seen
        own = next(
            (
                i
                for i, e in enumerate(self.events)
                if (e.line, e.cta, e.thread) == (seen.line, seen.cta, seen.thread)
            ),
            None,
        )
        if own is None:
            return None
        mine = self.events[own]
        order = [*range(own - 1, -1, -1), *range(own + 1, len(self.events))]
        for i in order:
            event = self.events[i]
            if event.atomic and mine.atomic:  # these two do not race
                continue
            if (event.cta, event.thread) == seen.other and (event.writes or mine.writes):
                verb = "written" if event.writes else "read"
                return Related(f"the same bytes are {verb} here", event.where)
        return None
