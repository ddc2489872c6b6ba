"""Places of the accesses that race.

The stamps of a race check record the thread of an access, not its place. A launch whose result
depends on a race therefore runs again with a `Witness`, which records accesses to its bytes only.
"""

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

    def hits(self, space: str, address: Array, nbytes: int, homes: Array | None) -> list[int]:
        """Return which accesses to `nbytes` at each address are to the bytes of the race. homes:
        the linear CTAs whose shared memory it is."""
        seen = self.seen
        if space != seen.space or len(self.events) > _MOST:
            return []
        start = address.astype(np.int64)
        hit = (start < seen.address + seen.nbytes) & (start + nbytes > seen.address)
        if space == "shared":
            hit &= homes == seen.home
        found: list[int] = np.flatnonzero(hit)[:_MOST].tolist()
        return found

    def other(self) -> Related | None:
        """Return the other access of the race; None if it was not seen."""
        seen = self.seen
        its = seen.line, seen.cta, seen.thread
        found = [i for i, e in enumerate(self.events) if (e.line, e.cta, e.thread) == its]
        if not found:
            return None
        own, mine = found[0], self.events[found[0]]
        for event in (*reversed(self.events[:own]), *self.events[own + 1 :]):
            if event.atomic and mine.atomic:  # these two do not race
                continue
            if (event.cta, event.thread) == seen.other and (event.writes or mine.writes):
                verb = "written" if event.writes else "read"
                return Related(f"the same bytes are {verb} here", event.where)
        return None
