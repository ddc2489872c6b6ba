"""The bytes that a memory instruction accesses at each address, and its modifiers: state spaces,
cache hints, orders and scopes."""

from typing import Any

import numpy as np

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.instructions.action import Site
from nvfp4.emulator.ptx.syntax import LocalAddress, Memory, SymbolAddress
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array, register_class, type_bits
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.memory import SHARED_WINDOW, WINDOW_SHIFT, WRITTEN
from nvfp4.records.base import Record

# A state space, and the lanes whose addresses point there (None: all).
Part = tuple[str, "Array | None"]

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "mmio"))


def verb(flag: int) -> str:
    """Return "read" or "write", for messages."""
    return "write" if flag == WRITTEN else "read"


class Access(Record):
    """The accesses of an instruction: `elements` of `size` bytes at each address."""

    site: Site
    space: str
    """global, shared, local or generic."""
    size: int
    elements: int
    counted: bool = True
    """Whether they count as traffic of global memory."""
    only: str | None = None
    """param or const if the instruction can access nothing else in global memory, else None."""

    @property
    def nbytes(self) -> int:
        """Bytes at each address."""
        return self.size * self.elements

    @property
    def alignment(self) -> int:
        """Alignment of a global address: the largest power of two that divides `nbytes`."""
        return self.nbytes & -self.nbytes

    @property
    def abroad(self) -> bool:
        """Whether the instruction reaches shared memory of other CTAs of the cluster."""
        return self.space == "generic" or "shared::cluster" in self.site.parts

    @property
    def strong(self) -> bool:
        """Whether other threads may access the same bytes at the same time."""
        return not _STRONG.isdisjoint(self.site.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of an element."""
        return REGISTER_DTYPES[register_class(self.size)]


def data_of(access: Access, lanes: int) -> Array:
    """Return an uninitialised array for the data of `lanes` lanes: [elements, lanes]."""
    return np.empty((access.elements, lanes), access.dtype)


_SPACES = ("global", "shared", "local", "const", "param")
# Orders, scopes and caches: threads run in one order here, and there is no cache to advise.
_HARMLESS = (
    "weak volatile relaxed acquire release acq_rel seq_cst mmio unified nc cta cluster gpu sys "
    "ca cg cs lu cv wb wt v2 v4 v8 hints"
)


def spaces_of(site: Site) -> list[str]:
    """The state spaces that an opcode names, in order, without `::cta` or `::cluster`."""
    spaces = (part.split("::")[0] for part in site.parts[1:])
    return [space for space in spaces if space in _SPACES]


def space_of(site: Site) -> str:
    """global, shared, local, const, param or generic."""
    return next(iter(spaces_of(site)), "generic")


def known_modifiers(site: Site, *more: str) -> None:
    """Refuse modifiers other than harmless ones, hints, spaces, types, and those in `more`."""
    spaces = (part for part in site.parts if part.split("::")[0] in _SPACES)
    site.only(*_HARMLESS.split(), *spaces, site.type(), *more)


_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def elements_of(site: Site, operand: int) -> int:
    """How many elements the opcode names, which the operand must have. Raises PtxSyntaxError."""
    named = next((_VECTORS[part] for part in site.parts if part in _VECTORS), 1)
    given = len(site.items(operand))
    if given != named:
        message = f"{site.opcode} takes {named} elements, not {given}"
        raise PtxSyntaxError(message, where=site.location())
    return named


def access_of(site: Site, memory: Memory, elements: int) -> Access:
    """Return the access of a site to its memory operand."""
    bits = type_bits(site.type())
    if not 8 <= bits <= 64:
        raise site.unsupported(f"{site.opcode}: elements of {bits} bits are not emulated")
    space, only = space_of(site), None
    if space in ("param", "const"):
        only = space
        space = "local" if isinstance(memory.base, LocalAddress) else "global"
    elif isinstance(memory.base, SymbolAddress) and space == "generic":
        space = "global" if memory.base.space != "shared" else space
    return Access(site, space, bits // 8, elements, only is None, only)


def split_windows(address: Array) -> list[Part]:
    """Return generic addresses by the space that they point into."""
    if address.max() < SHARED_WINDOW:
        return [("global", None)]
    window = address >> np.uint64(WINDOW_SHIFT)
    found: list[Part] = []
    for number, space in ((0, "global"), (1, "shared"), (2, "local")):
        mask = window == number
        if mask.all():
            return [(space, None)]
        if mask.any():
            found.append((space, mask))
    other = window > 2
    if other.any():
        found.append(("global", other))
    return found


def by_space(ex: Execution, access: Access, address: Array) -> list[Part]:
    """The state spaces that the lanes' addresses point into."""
    if access.space != "generic":
        return [(access.space, ex.guard)]
    chosen = ex.some_positions()
    if chosen is not None:
        # Lanes that take no part may hold any address.
        live = ex.group.spread(address)[chosen]
        spaces = split_windows(live) if live.size else [("global", None)]
        if len(spaces) == 1:
            return [(spaces[0][0], ex.guard)]
    parts = split_windows(address)
    if ex.guard is None:
        return parts
    return [(space, ex.guard if mask is None else ex.guard & mask) for space, mask in parts]
