"""The record of one kernel launch: all that an executor needs to run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Buffer:
    """A live range of memory: [address, address + nbytes). `name` is for messages."""

    name: str
    address: int
    nbytes: int
    writable: bool = True

    @property
    def end(self) -> int:
        """The first address past the buffer."""
        return self.address + self.nbytes


class Memory(Protocol):
    """The global memory that a launch may touch."""

    def known(self) -> list[Buffer]:
        """What can be told without a search."""

    def search(self) -> Iterator[list[Buffer]]:
        """Everything again, after a search that goes farther each time."""


class ListedMemory:
    """Global memory that is known completely."""

    def __init__(self, buffers: Sequence[Buffer] = ()) -> None:
        self._buffers = list(buffers)

    def known(self) -> list[Buffer]:
        """All of it."""
        return self._buffers

    def search(self) -> Iterator[list[Buffer]]:
        """Nothing more is to be found."""
        return iter(())


@dataclass(frozen=True)
class Note:
    """What whoever captured a launch has to say about it; it becomes a finding of the report.

    file, line: in the user's source.
    """

    code: str
    message: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Launch:
    """One kernel launch as the host code asked for it.

    ptx: the text of the module. parameters: the bytes of each kernel parameter in order,
    little-endian; pointers are host addresses, tensor maps the hardware's 128 bytes
    (`capture.tensormap`). shared_bytes: dynamic shared memory. trial: host code only tries whether
    this runs; what it leaves in memory counts, a report does not.
    """

    ptx: str
    kernel: str
    grid: Dim3
    block: Dim3
    parameters: Sequence[bytes]
    shared_bytes: int = 0
    cluster: Dim3 = (1, 1, 1)
    memory: Memory = field(default_factory=ListedMemory)
    notes: tuple[Note, ...] = ()
    trial: bool = False
