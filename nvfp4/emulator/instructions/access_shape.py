"""What an instruction reads or writes at each address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array, register_class
from nvfp4.emulator.state.memory import WRITTEN

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "mmio"))


def verb(flag: int) -> str:
    """What an access does, for messages."""
    return "write" if flag == WRITTEN else "read"


@dataclass(frozen=True)
class Access:
    """`elements` of `size` bytes at each address.

    space: global, shared, local, or generic. counted: whether it is traffic of global memory.
    """

    site: Site
    space: str
    size: int
    elements: int
    counted: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes at each address."""
        return self.size * self.elements

    @property
    def alignment(self) -> int:
        """What a global address must be a multiple of: the largest power of two in the bytes."""
        return self.nbytes & -self.nbytes

    @property
    def strong(self) -> bool:
        """Whether other threads may access the same bytes at the same time."""
        return not _STRONG.isdisjoint(self.site.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of an element."""
        return REGISTER_DTYPES[register_class(self.size)]


def data_of(access: Access, lanes: int) -> Array:
    """An empty array for the data of so many lanes: [elements, lanes]."""
    return np.empty((access.elements, lanes), access.dtype)


def count_runs(request: Array) -> int:
    """How many runs of equal neighbours there are."""
    return 1 + int(np.count_nonzero(request[1:] != request[:-1]))
