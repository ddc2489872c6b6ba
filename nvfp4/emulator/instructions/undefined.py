"""Undefined bits where they matter: the findings about them, and where they may come from."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

from nvfp4.emulator.errors import Related, UninitialisedRegister, UninitialisedShared
from nvfp4.emulator.instructions.access_shape import Access, by_space, data_of
from nvfp4.emulator.instructions.action import Site
from nvfp4.emulator.ptx.syntax import Instruction
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch, Execution, Origin
from nvfp4.emulator.state.group import select
from nvfp4.emulator.state.memory import in_window
from nvfp4.emulator.state.races import writer_of
from nvfp4.records.base import Record

_REGISTER_HINT = (
    "usual causes: a fragment that is only partly filled, or a load under a predicate that "
    "leaves its register unset where the predicate is false"
)
_NAMES = 3
_REGISTER = re.compile(r"^(?:register|predicate) \S+")
_SHARED_HINT = "write all of what is read, or wait for the copy that does"


class Passage(Record):
    """An instruction that may pass on undefined bits."""

    index: int
    sources: tuple[int, ...]
    line: int | None
    """The line of a load; None for other instructions."""


class Origins(Record):
    """Where a kernel's undefined bits may come from."""

    passages: Mapping[int, Sequence[Passage]]
    """By register, the instructions that may have passed undefined bits on to it."""
    unset: Mapping[int, str]
    """Names of the registers that some path reads before they are set, by number."""
    code: Sequence[Instruction] = ()

    def first_reads(self, register: int, passed: Container[int]) -> list[Instruction]:
        """Return the instructions through which an unset register's bits came to this one, in
        order."""
        unset, behind = self.unset.keys(), self._behind(register, passed)
        reads = {passage.index for passage in behind if not unset.isdisjoint(passage.sources)}
        return [self.code[i] for i in sorted(reads)]

    def of(self, register: int, passed: Container[int]) -> tuple[list[int], list[int]]:
        """Return the unset registers and the lines of loads that may have caused a register's
        undefined bits.

        passed: the instructions that have passed some on.
        """
        behind = list(self._behind(register, passed))
        registers = {register}.union(*(passage.sources for passage in behind))
        lines = {passage.line for passage in behind if passage.line is not None}
        return sorted(registers & self.unset.keys()), sorted(lines)

    def _behind(self, register: int, passed: Container[int]) -> Iterator[Passage]:
        """Yield the instructions through which undefined bits reached a register."""
        found, work = {register}, [register]
        while work:
            for passage in self.passages.get(work.pop(), ()):
                if passage.index in passed:
                    yield passage
                    work += [source for source in passage.sources if source not in found]
                    found.update(passage.sources)


class Use(Record):
    """A use of a register in which every bit matters."""

    site: Site
    what: str
    """The use, as a clause."""
    register: int
    origins: Origins

    def check(self, ex: Execution, shadow: Array) -> None:
        """Note undefined bits in lanes that take part."""
        if not shadow.any():
            return
        flat = ex.group.spread(shadow)
        bad = np.flatnonzero((flat != 0) & ex.mask())
        if bad.size:
            bits = _in_words(int(flat[bad[0]]), 8 * flat.itemsize if flat.dtype != bool else 1)
            kind, cause, hint, related = self._cause(ex, bits)
            at = self.site.lane(ex.batch, ex.group.lanes[bad[0]])
            what = _REGISTER.sub("a value", self.what) if self.site.instruction.user else self.what
            if issubclass(kind, UninitialisedRegister):
                related = tuple(self._first_reads(ex))
            at.note(kind, f"{what}, but {cause}", hint, bad.size, related=related)

    def _first_reads(self, ex: Execution) -> Iterator[Related]:
        """Yield the places, on other lines of the user's, where unset values were first read."""
        own, seen = self.site.instruction.user, set[tuple[str, int]]()
        reads = self.origins.first_reads(self.register, ex.batch.launch.undefined_results)
        for instruction in reads:
            site = Site(self.site.kernel, instruction)
            user = instruction.user
            if user is None or user.near or (user.file, user.line) in seen:
                continue
            seen.add((user.file, user.line))
            if own is None or (user.file, user.line) != (own.file, own.line):
                yield Related("it is read here first, when nothing has set it", site.location())
            if len(seen) == _NAMES:
                return

    def _cause(self, ex: Execution, bits: str) -> Origin:
        """Return the origin of undefined bits, whose place is a clause."""
        launch = ex.batch.launch
        unset, lines = self.origins.of(self.register, launch.undefined_results)
        origins = launch.undefined_memory
        loaded = [origins[line] for line in lines if line in origins]
        plural = bits.startswith("bits")
        whose = f"its {bits} {'come' if plural else 'comes'} from" if bits else "it comes from"
        if loaded:
            kind, place, hint, related = loaded[0]
            if hint is None:
                hint = _SHARED_HINT if issubclass(kind, UninitialisedShared) else _REGISTER_HINT
            return Origin(kind, f"{whose} {place}", hint, related)
        if unset in ([], [self.register]):
            cause = f"nothing has set {'its ' + bits if bits else 'it'}"
        else:
            names = [self.origins.unset[r] for r in unset if r != self.register]
            if self.site.instruction.user:
                text = f"{whose} what nothing has set"
                return Origin(UninitialisedRegister, text, _REGISTER_HINT)
            cause = f"{whose} {' or '.join(names[:_NAMES])}, which nothing has set"
        return Origin(UninitialisedRegister, cause, _REGISTER_HINT)


def _in_words(shadow: int, width: int) -> str:
    """Return the bits that are set in a shadow as text, such as `bits 3, 16-31`; empty if all are
    set."""
    if shadow == (1 << width) - 1:
        return ""
    bits = [bit for bit in range(width) if shadow >> bit & 1]
    return f"bit{'s' if len(bits) > 1 else ''} {ranges(np.array(bits), 4)}"


def ranges(numbers: Array, most: int) -> str:
    """Return ascending numbers in words, `3, 16-31`, with `most` ranges at most."""
    found = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    words = [f"{r[0]}" if r.size == 1 else f"{r[0]}-{r[-1]}" for r in found[:most]]
    return ", ".join(words) + (", ..." if len(found) > most else "")


def passing(batch: Batch, index: int, shadows: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return the shadows of an instruction's results, and note whether anything is undefined."""
    if any(shadow.any() for shadow in shadows):
        batch.launch.undefined_results.add(index)
    return shadows


def merge(
    batch: Batch, index: int, unsure: Array, when: Array, value: Array, old: Array, shadow: Array,
    old_shadow: Array
) -> Array:  # fmt: skip
    """Return the shadow of a register that was set under a guard which may be undefined.

    If the guard is undefined, a bit is defined only if it has the same defined value with and
    without the assignment.
    """
    chosen = select(when, shadow, old_shadow)
    if not unsure.any():
        return chosen
    batch.launch.undefined_results.add(index)
    return np.where(unsure, shadow | old_shadow | (value ^ old), chosen)


def loaded(ex: Execution, access: Access, address: Array) -> tuple[Array, ...]:
    """Return the shadows of the `elements` that a load has read. Its addresses have been
    checked."""
    batch, group = ex.batch, ex.group
    out = np.zeros((access.elements, group.lanes.size), access.dtype)
    for space, at in _parts(ex, access, address):
        lanes, flat = group.lanes[at], group.spread(address)[at]
        out[:, at] = fetch(batch, access, space, lanes, flat)
    if not out.any():
        return tuple(np.zeros((access.elements, 1), access.dtype))
    return tuple(group.fold(row) for row in out)


def stored(ex: Execution, access: Access, address: Array, shadows: Sequence[Array]) -> Array:
    """Store shadows in shared or local memory along with the data. Return the guard of the lanes
    that wrote to global memory instead."""
    batch, group = ex.batch, ex.group
    mine = np.zeros(group.lanes.size, np.bool_)
    data = np.stack([group.spread(shadow) for shadow in shadows])
    for space, at in _parts(ex, access, address):
        mine[at] = True
        lanes, flat = group.lanes[at], group.spread(address)[at]
        keep(batch, access, space, lanes, flat, np.ascontiguousarray(data[:, at]))
    return group.fold(ex.mask() & ~mine)


def fetch(batch: Batch, access: Access, space: str, lanes: Array, address: Array) -> Array:
    """Return shadow[element, i] of what lanes[i] has read at address[i]."""
    memory, offset = _located(batch, access, space, lanes, address)
    assert memory is not None
    shadow = data_of(access, lanes.size)
    native.gather(offset + np.uint64(memory.ctypes.data), shadow)
    found = np.flatnonzero(shadow.any(axis=0))
    if found.size:
        bits = np.ascontiguousarray(shadow[:, found[0]]).view(np.uint8)
        origin = _origin(batch, space, int(offset[found[0]]) + int(np.flatnonzero(bits)[0]))
        batch.launch.undefined_memory.setdefault(access.site.instruction.line, origin)
    return shadow


def keep(
    batch: Batch, access: Access, space: str, lanes: Array, address: Array, shadow: Array
) -> None:
    """Keep shadow[element, i] of what lanes[i] has written to address[i]."""
    memory, offset = _located(batch, access, space, lanes, address)
    line = access.site.instruction.line
    if shadow.any():
        batch.launch.undefined_stores.setdefault(space, line)
        if memory is None:
            batch.launch.undefined_memory.setdefault(line, _stored_by(space, line))
    if memory is not None:
        native.scatter(offset + np.uint64(memory.ctypes.data), shadow)


def _parts(ex: Execution, access: Access, address: Array) -> Iterator[tuple[str, Array]]:
    """Yield each state space but global memory, with the positions in the group of its lanes."""
    for space, mask in by_space(ex, access, address):
        if space != "global":
            yield space, ex._replace(guard=mask).positions()


def _located(
    batch: Batch, access: Access, space: str, lanes: Array, address: Array
) -> tuple[Array | None, Array]:
    """Return the shadow of shared or local memory, and the place in it of these lanes' addresses,
    which have been checked."""
    plain, nbytes = in_window(address), access.nbytes
    if space == "shared":
        shared = batch.shared
        offset, (bad, *_) = shared.visit(plain, lanes, nbytes, 1, abroad=True)
        found = shared.undefined
    else:
        offset, bad = batch.local.locate(plain, lanes, nbytes)
        found = batch.local.undefined
    if bad >= 0:
        raise IndexError(f"{space} address {int(plain[bad]):#x} has not been checked")
    return found, offset


def _origin(batch: Batch, space: str, byte: int) -> Origin:
    """Return the origin of an undefined byte."""
    if space == "shared":
        place = f"shared address {batch.shared.address(byte):#x}"
        if not writer_of(batch.shared.stamps, byte):
            return Origin(UninitialisedShared, f"{place}, which nothing has written")
        return _stored_by(place, batch.launch.undefined_stores.get(space))
    place = f"byte {batch.local.address(byte)} of the thread's local memory"
    line = batch.launch.undefined_stores.get(space)
    if line is None:
        return Origin(UninitialisedRegister, f"{place}, which nothing has written")
    return _stored_by(place, line)


def _stored_by(place: str, line: int | None) -> Origin:
    who = "a store" if line is None else f"PTX line {line}"
    return Origin(UninitialisedRegister, f"{place}, where {who} has stored what nothing has set")
