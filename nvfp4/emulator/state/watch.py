"""Who writes a few watched bytes of global memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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
