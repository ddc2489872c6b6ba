"""What a submission's process says of its launches, as the judge reads it.

The other side is `capture.recording`. Everything is checked here: what comes out can be forged, but
not malformed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

outbox_bytes = 256 << 20
"""Of the memory through which a call's bytes are handed over."""

most_region_bytes = 1 << 30
"""Of all memory of a submission that its launches may touch."""

most_texts, most_steps, most_regions, most_writes = 256, 1024, 2048, 1 << 14
most_parameters, most_parameter_bytes, most_notes = 1024, 4096, 16

_lowest_address, _end_of_addresses = 1 << 16, 1 << 47
_page_bytes = 1 << 12
_longest_name, _longest_note = 4096, 300
_most_threads, _most_shared_bytes = 1 << 31, 1 << 20
_most_dimensions = 16


class Malformed(Exception):
    """A record is not what it must be; ``str`` says which field."""


Read = Callable[[Any], Any]
"""Gives a field's value for one of JSON. Raises ValueError for what it must not be."""


def _inline(value: Any) -> Any:
    """Marks a record whose own fields stand in its place."""
    raise NotImplementedError


def _number(most: int, least: int = 0) -> Read:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError
        return value

    return read


_address = _number(_end_of_addresses - 1, _lowest_address)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _text(longest: int) -> Read:
    def read(value: Any) -> str:
        if type(value) is not str or len(value) > longest or not _encodable(value):
            raise ValueError
        return value

    return read


def _encodable(text: str) -> bool:
    """Whether it has no lone surrogates, which JSON can say and UTF-8 cannot."""
    return text.isascii() or not any(0xD800 <= ord(each) < 0xE000 for each in text)


def _listed(each: Read, most: int, least: int = 0) -> Read:
    """So many values."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise ValueError
        return tuple(map(each, value))

    return read


def _triple(most: int) -> Read:
    return _listed(_number(most), 3, 3)


def _or_none(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _record(kind: type) -> Read:
    return lambda value: _read(kind, value)


def _parameter(value: Any) -> bytes:
    if not isinstance(value, str) or len(value) > 2 * most_parameter_bytes:
        raise ValueError
    return bytes.fromhex(value)


def _note(value: Any) -> tuple[Any, ...]:
    *said, line = _values(value, ("code", "message", "hint", "file", "line"), "note")
    texts = [None if each is None else str(each)[:_longest_note] for each in said]
    if not all(each is None or _encodable(each) for each in texts) or None in texts[:2]:
        raise ValueError
    return (*texts, _or_none(_number(1 << 31))(line))


@dataclass(frozen=True)
class Span:
    """Bytes in the outbox."""

    nbytes: Annotated[int, _number(outbox_bytes)]
    offset: Annotated[int, _number(outbox_bytes)]

    def __post_init__(self) -> None:
        if self.offset + self.nbytes > outbox_bytes:
            raise Malformed("span.offset is beyond the outbox")


@dataclass(frozen=True)
class View:
    """As ``capture.launch.View``, for messages."""

    shape: Annotated[tuple[int, ...], _listed(_number(1 << 40), _most_dimensions)]
    strides: Annotated[tuple[int, ...], _listed(_number(1 << 40), _most_dimensions)]
    offset: Annotated[int, _number(1 << 40)]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise Malformed("view.strides are not as many as the extents")


@dataclass(frozen=True)
class Region:
    """Memory of the submission's process that launches may touch."""

    name: Annotated[str, _text(_longest_name)]
    address: Annotated[int, _address]
    nbytes: Annotated[int, _number(most_region_bytes, 1)]
    writable: Annotated[bool, _flag]
    view: Annotated[View | None, _or_none(_record(View))]

    def __post_init__(self) -> None:
        if self.address + self.nbytes > _end_of_addresses:
            raise Malformed("region.nbytes are more than there are addresses")


@dataclass(frozen=True)
class Write:
    """What host code has set, or what a new region holds."""

    address: Annotated[int, _address]
    data: Annotated[Span, _inline]


@dataclass(frozen=True)
class Variable:
    """A variable of a module. text: the number of the module's PTX."""

    text: Annotated[int, _number(most_texts * most_steps)]
    name: Annotated[str, _text(_longest_name)]
    data: Annotated[Span, _inline]


@dataclass(frozen=True)
class RecordedLaunch:
    """As ``capture.launch.Launch``. text: the number of the PTX. notes: code, message, hint, file
    and line."""

    text: Annotated[int, _number(most_texts * most_steps)]
    kernel: Annotated[str, _text(_longest_name)]
    grid: Annotated[tuple[int, ...], _triple(_most_threads)]
    block: Annotated[tuple[int, ...], _triple(_most_threads)]
    cluster: Annotated[tuple[int, ...], _triple(_most_threads)]
    shared_bytes: Annotated[int, _number(_most_shared_bytes)]
    stream: Annotated[int, _number(_end_of_addresses - 1)]
    programmatic: Annotated[bool, _flag]
    parameters: Annotated[tuple[bytes, ...], _listed(_parameter, most_parameters)]
    notes: Annotated[tuple[tuple[Any, ...], ...], _listed(_note, most_notes)]


@dataclass(frozen=True)
class Step:
    """Memory as it is at a launch, and the launch; None for the end of the call. regions: None if
    they are those of the step before."""

    regions: Annotated[tuple[Region, ...] | None, _or_none(_listed(_record(Region), most_regions))]
    writes: Annotated[tuple[Write, ...], _listed(_record(Write), most_writes)]
    variables: Annotated[tuple[Variable, ...], _listed(_record(Variable), most_regions)]
    launch: Annotated[RecordedLaunch | None, _or_none(_record(RecordedLaunch))]

    def __post_init__(self) -> None:
        if sum(region.nbytes for region in self.regions or ()) > most_region_bytes:
            raise Malformed("step.regions are too large")


@dataclass(frozen=True)
class RecordedCall:
    """A call of custom_kernel. base: where the case's buffers lie in the submission's process.
    texts: new PTX. output: what was returned, [m, 1, l], as address, dtype and strides in bytes."""

    base: Annotated[int, _address]
    texts: Annotated[tuple[Span, ...], _listed(_record(Span), most_texts)]
    steps: Annotated[tuple[Step, ...], _listed(_record(Step), most_steps)]
    output: Annotated[int, _address]
    dtype: Annotated[str, _text(20)]
    strides: Annotated[tuple[int, ...], _triple(1 << 40)]

    def __post_init__(self) -> None:
        if self.base % _page_bytes:
            raise Malformed("call.base is not the start of a page")
        if not self.steps or self.steps[0].regions is None or self.steps[-1].launch is not None:
            raise Malformed("call.steps has no beginning or no end")
        if sum(span.nbytes for span in self._handed_over()) > outbox_bytes:
            raise Malformed("call hands over more bytes than there are")

    def _handed_over(self) -> Iterator[Span]:
        """Each of them lies in the outbox, and no two in the same place."""
        yield from self.texts
        for step in self.steps:
            yield from (write.data for write in step.writes)
            yield from (variable.data for variable in step.variables)


def read_call(said: object) -> RecordedCall:
    """Raises Malformed for anything but a call's plain values."""
    call: RecordedCall = _read(RecordedCall, said)
    return call


def _read(kind: Any, said: object) -> Any:
    """A record from the fields of a JSON object, or from the items of a list in their order."""
    where = kind.__name__.lower()
    return _made(kind, iter(_values(said, _names(kind), where)), where)


@cache
def _readers(kind: Any) -> dict[str, tuple[Any, Read]]:
    """By field: its type, and what reads it."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: (each.__origin__, each.__metadata__[0]) for name, each in hints.items()}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Those of the fields in JSON."""
    named = [
        _names(of) if read is _inline else (name,) for name, (of, read) in _readers(kind).items()
    ]
    return tuple(itertools.chain.from_iterable(named))


def _values(said: object, names: tuple[str, ...], where: str) -> list[Any]:
    if isinstance(said, list) and len(said) == len(names):
        return said
    if isinstance(said, dict) and set(said) == set(names):
        return [said[name] for name in names]
    raise Malformed(f"{where} does not have the fields {', '.join(names)}")


def _made(kind: Any, values: Iterator[Any], where: str) -> Any:
    given: dict[str, Any] = {}
    for name, (of, read) in _readers(kind).items():
        if read is _inline:
            given[name] = _made(of, values, where)
            continue
        value = next(values)
        try:
            given[name] = read(value)
        except ValueError:
            raise Malformed(f"{where}.{name} is malformed: {str(value)[:40]!r}") from None
    return kind(**given)


def within(address: int, nbytes: int, regions: Iterable[tuple[int, int]]) -> bool:
    """Whether a range lies in one of these, each as (address, nbytes)."""
    return any(start <= address and address + nbytes <= start + n for start, n in regions)
