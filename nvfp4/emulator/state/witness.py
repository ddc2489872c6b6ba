"""Places of the accesses that race.

The stamps of a race check record the thread of an access, not its place. A launch whose result
depends on a race therefore runs again with a `Witness`, which records accesses to its bytes only.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nvfp4.emulator.errors import Related, Seen, SourceLocation
from nvfp4.emulator.ptx.types import Array

_MOST = 4096


class Event(NamedTuple):
    """An access to the bytes of a race."""

    line: int
    cta: int
    """Linear number of the CTA."""
    thread: int
    """Linear number of the thread; see Seen."""
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
        """Record that lanes of (linear CTAs, threads) access `nbytes` at each address.

        where: returns a place by position. homes: the linear CTAs whose shared memory it is.
        """
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
        """Return the other access of the race; None if it was not seen."""
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
