"""The record of one kernel launch: all that an executor needs to run it."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Protocol

from nvfp4.records.base import Record

Dim3 = tuple[int, int, int]

_GPCS, _MULTIPROCESSORS_OF_A_GPC = 8, 20
"""At most, on a B200."""


PTXAS_OPTIONS = "// ptxas: "
"""Begins the last line of a PTX text that is to be assembled with options."""


def resident_ctas(multiprocessors: int, each: int, cluster: int) -> int:
    """Return how many CTAs in clusters of this size a GPU holds at most, with ``each`` on a
    multiprocessor; all CTAs of a cluster lie in one GPC."""
    by_gpcs = _GPCS * (_MULTIPROCESSORS_OF_A_GPC * each // cluster)
    return min(multiprocessors * each // cluster, by_gpcs) * cluster


class View(Record):
    """The layout of a tensor in a buffer, and what its elements are."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    offset: int = 0
    """The offset of the first element."""
    dimensions: tuple[tuple[str, str], ...] = ()
    """The words for an index and for the extent of each dimension: ("row", "m")."""
    dtype: str = ""
    """Such as float16; "" if nothing is known of it."""

    def outermost_first(self) -> list[int]:
        """Return the dimensions of more than one element, by falling stride."""
        wide = [d for d, size in enumerate(self.shape) if size > 1 and self.strides[d] > 0]
        return sorted(wide, key=lambda d: -self.strides[d])

    def index(self, offset: int) -> tuple[int, ...] | None:
        """Return the index of the element that holds a byte of the buffer.

        Outside the tensor the outermost index continues. None for a tensor without dimensions.
        """
        order = self.outermost_first() or [d for d in range(len(self.shape)) if self.strides[d]][:1]
        if not order:
            return None
        found, rest = [0] * len(self.shape), offset - self.offset
        for d in order:
            found[d], rest = divmod(rest, self.strides[d])
        return tuple(found)


class Buffer(Record):
    """A live range of memory: [address, address + nbytes). `name` is for messages, as is `view`."""

    name: str
    address: int
    nbytes: int
    writable: bool = True
    view: View | None = field(default=None, compare=False)

    @property
    def end(self) -> int:
        """The first address past the buffer."""
        return self.address + self.nbytes

    def meets(self, other: "Buffer") -> bool:
        """Return whether the two share memory."""
        return self.address < other.end and other.address < self.end


class Memory(Protocol):
    """The global memory that a launch may touch."""

    def freed(self) -> list[Buffer]:
        """Return the known buffers that were freed, the latest first; for messages."""

    def known(self) -> list[Buffer]:
        """Return the buffers that are known without a search."""

    def search(self) -> Iterator[list[Buffer]]:
        """Yield all buffers, repeatedly, after a search that goes farther each time."""


class ListedMemory:
    """Global memory all of which is known."""

    def __init__(self, buffers: Sequence[Buffer] = (), freed: Sequence[Buffer] = ()) -> None:
        self._buffers, self._freed = list(buffers), list(freed)

    def freed(self) -> list[Buffer]:
        """Return the buffers that were freed."""
        return self._freed

    def known(self) -> list[Buffer]:
        """Return all buffers."""
        return self._buffers

    def search(self) -> Iterator[list[Buffer]]:
        """Return an empty iterator: all buffers are known."""
        return iter(())


class Note(Record):
    """A remark on a launch by the code that captured it; it becomes a finding in the report."""

    code: str
    message: str
    hint: str | None = None
    file: str | None = None
    """The user's source file."""
    line: int | None = None
    """Line of the user's source file."""


Examine = Callable[[str, str], None]
"""Takes a module's PTX and a kernel's name, and raises the reason if the kernel cannot be judged at
all.

It is called before a launch is refused as CUDA would: if it raises, too little is known to say that
the launch is wrong.
"""


def anything_goes(ptx: str, kernel: str) -> None:
    """Accept every kernel."""


class Launch(Record):
    """A kernel launch as the host code requested it."""

    ptx: str
    """The text of the module."""
    kernel: str
    grid: Dim3
    block: Dim3
    parameters: Sequence[bytes]
    """The bytes of each kernel parameter in order, little-endian. Pointers are host addresses,
    tensor maps the hardware's 128 bytes (`records.tensormap`)."""
    shared_bytes: int = 0
    """Dynamic shared memory."""
    cluster: Dim3 = (1, 1, 1)
    memory: Memory = field(default_factory=ListedMemory)
    notes: tuple[Note, ...] = ()
    trial: bool = False
    """Whether host code only tries whether this runs; then its writes count, but its report does
    not."""
    deadline: float | None = None
    """When to give up, on the monotonic clock."""
    stream: int = 0
    """The handle of the stream."""
    programmatic: bool = False
    """Whether it may begin while the previous launch in the stream still runs (programmatic
    dependent launch)."""
    waited: int = 0
    """How often the host has waited for the device since the launch before."""
    alongside: bool = False
    """Whether launches in other streams may still run."""
    with_suffix: str = ""
    """The module compiled for the GPU's own architecture, such as sm_100a; empty if unknown.

    It differs if `ptx` is for sm_100 and does in software what sm_100a has instructions for.
    """
    registers: int = 0
    """Registers of a thread, by the assembler; 0 if unknown."""
    samples: bool = False
    """Whether to keep the accesses of a few thread blocks, for a prediction."""
    progress: Callable[[float], None] = lambda share: None
    """Called now and then with the share of the thread blocks that have run."""
    salt: int = field(default_factory=lambda: secrets.randbits(30))
    """Decides what no kernel may foresee: where clocks and multiprocessors begin, and which of many
    readers of a place are remembered."""
