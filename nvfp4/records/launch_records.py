"""What a submission's process says of its launches, as the judge reads it.

The other side is `capture.recording`. Everything is checked here: what comes out can be forged, but
not malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

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


class Malformed(Exception):
    """A record is not what it must be; ``str`` says which field."""


@dataclass(frozen=True)
class Span:
    """Bytes in the outbox."""

    nbytes: int
    offset: int


@dataclass(frozen=True)
class View:
    """As ``capture.launch.View``, for messages."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Region:
    """Memory of the submission's process that launches may touch."""

    name: str
    address: int
    nbytes: int
    writable: bool
    view: View | None


@dataclass(frozen=True)
class Write:
    """What host code has set, or what a new region holds."""

    address: int
    data: Span


@dataclass(frozen=True)
class Variable:
    """A variable of a module. text: the number of the module's PTX."""

    text: int
    name: str
    data: Span


@dataclass(frozen=True)
class RecordedLaunch:
    """As ``capture.launch.Launch``. text: the number of the PTX. notes: code, message, hint, file
    and line."""

    text: int
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    shared_bytes: int
    stream: int
    programmatic: bool
    parameters: tuple[bytes, ...]
    notes: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Step:
    """Memory as it is at a launch, and the launch; None for the end of the call. regions: None if
    they are those of the step before."""

    regions: tuple[Region, ...] | None
    writes: tuple[Write, ...]
    variables: tuple[Variable, ...]
    launch: RecordedLaunch | None


@dataclass(frozen=True)
class RecordedCall:
    """A call of custom_kernel. base: where the case's buffers lie in the submission's process.
    texts: new PTX. output: what was returned, [m, 1, l], as address, dtype and strides in bytes."""

    base: int
    texts: tuple[Span, ...]
    steps: tuple[Step, ...]
    output: int
    dtype: str
    strides: tuple[int, ...]

    @property
    def launches(self) -> int:
        """How many launches there are."""
        return sum(step.launch is not None for step in self.steps)


def read_call(said: object) -> RecordedCall:
    """Raises Malformed for anything but a call's plain values."""
    fields = _Fields(said, "call", ("base", "texts", "steps", "output", "dtype", "strides"))
    base = fields.address("base")
    if base % _page_bytes:
        raise Malformed("call.base is not the start of a page")
    call = RecordedCall(
        base,
        fields.listed("texts", most_texts, _span),
        fields.listed("steps", most_steps, _step),
        fields.address("output"),
        fields.text("dtype", 20),
        fields.numbers("strides", 3, 1 << 40),
    )
    if not call.steps or call.steps[0].regions is None or call.steps[-1].launch is not None:
        raise Malformed("call.steps has no beginning or no end")
    if sum(span.nbytes for span in _handed_over(call)) > outbox_bytes:
        raise Malformed("call hands over more bytes than there are")
    return call


def _handed_over(call: RecordedCall) -> Iterator[Span]:
    """Each of them lies in the outbox, and no two in the same place."""
    yield from call.texts
    for step in call.steps:
        yield from (write.data for write in step.writes)
        yield from (variable.data for variable in step.variables)


class _Fields:
    """The fields of one JSON object, or the items of a JSON list by name."""

    def __init__(self, said: object, where: str, names: tuple[str, ...]) -> None:
        self._where = where
        if isinstance(said, list) and len(said) == len(names):
            self._values: dict[str, Any] = dict(zip(names, said, strict=True))
        elif isinstance(said, dict) and set(said) == set(names):
            self._values = said
        else:
            raise Malformed(f"{where} does not have the fields {', '.join(names)}")

    def value(self, name: str) -> Any:
        return self._values[name]

    def wrong(self, name: str) -> Malformed:
        return Malformed(f"{self._where}.{name} is malformed: {str(self._values[name])[:40]!r}")

    def number(self, name: str, most: int) -> int:
        value = self._values[name]
        if type(value) is not int or not 0 <= value <= most:
            raise self.wrong(name)
        return value

    def address(self, name: str) -> int:
        value = self.number(name, _end_of_addresses - 1)
        if value < _lowest_address:
            raise self.wrong(name)
        return value

    def flag(self, name: str) -> bool:
        value = self._values[name]
        if type(value) is not bool:
            raise self.wrong(name)
        return value

    def text(self, name: str, longest: int) -> str:
        value = self._values[name]
        if type(value) is not str or len(value) > longest or not _encodable(value):
            raise self.wrong(name)
        return value

    def numbers(self, name: str, count: int, most: int) -> tuple[int, ...]:
        """So many numbers from 0 to `most`."""
        value = self._values[name]
        if not isinstance(value, list) or len(value) != count:
            raise self.wrong(name)
        if any(type(each) is not int or not 0 <= each <= most for each in value):
            raise self.wrong(name)
        return tuple(value)

    def listed(self, name: str, most: int, read: Callable[[object], T]) -> tuple[T, ...]:
        value = self._values[name]
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(name)
        return tuple(read(each) for each in value)


def _encodable(text: str) -> bool:
    """Whether it has no lone surrogates, which JSON can say and UTF-8 cannot."""
    return text.isascii() or not any(0xD800 <= ord(each) < 0xE000 for each in text)


def _span(said: object) -> Span:
    return _span_of(_Fields(said, "span", ("nbytes", "offset")))


def _span_of(fields: _Fields) -> Span:
    nbytes, offset = fields.number("nbytes", outbox_bytes), fields.number("offset", outbox_bytes)
    if offset + nbytes > outbox_bytes:
        raise fields.wrong("offset")
    return Span(nbytes, offset)


def _view(said: object) -> View | None:
    if said is None:
        return None
    fields = _Fields(said, "view", ("shape", "strides", "offset"))
    shape = fields.value("shape")
    count = len(shape) if isinstance(shape, list) and len(shape) <= 16 else 0
    return View(
        fields.numbers("shape", count, 1 << 40),
        fields.numbers("strides", count, 1 << 40),
        fields.number("offset", 1 << 40),
    )


def _region(said: object) -> Region:
    fields = _Fields(said, "region", ("name", "address", "nbytes", "writable", "view"))
    address, nbytes = fields.address("address"), fields.number("nbytes", most_region_bytes)
    if nbytes == 0 or address + nbytes > _end_of_addresses:
        raise fields.wrong("nbytes")
    return Region(
        fields.text("name", _longest_name),
        address,
        nbytes,
        fields.flag("writable"),
        _view(fields.value("view")),
    )


def _write(said: object) -> Write:
    fields = _Fields(said, "write", ("address", "nbytes", "offset"))
    return Write(fields.address("address"), _span_of(fields))


def _variable(said: object) -> Variable:
    fields = _Fields(said, "variable", ("text", "name", "nbytes", "offset"))
    text = fields.number("text", most_texts * most_steps)
    return Variable(text, fields.text("name", _longest_name), _span_of(fields))


def _note(said: object) -> tuple[Any, ...]:
    fields = _Fields(said, "note", ("code", "message", "hint", "file", "line"))
    texts = [
        None if fields.value(name) is None else str(fields.value(name))[:_longest_note]
        for name in ("code", "message", "hint", "file")
    ]
    line = fields.value("line")
    if not all(text is None or _encodable(text) for text in texts) or texts[:2].count(None):
        raise fields.wrong("message")
    return (*texts, None if line is None else fields.number("line", 1 << 31))


def _parameter(said: object) -> bytes:
    if not isinstance(said, str) or len(said) > 2 * most_parameter_bytes:
        raise Malformed("a parameter is malformed")
    try:
        return bytes.fromhex(said)
    except ValueError:
        raise Malformed("a parameter is malformed") from None


_launch_fields = (
    *("text", "kernel", "grid", "block", "cluster"),
    *("shared_bytes", "stream", "programmatic", "parameters", "notes"),
)


def _launch(said: object) -> RecordedLaunch:
    fields = _Fields(said, "launch", _launch_fields)
    return RecordedLaunch(
        fields.number("text", most_texts * most_steps),
        fields.text("kernel", _longest_name),
        fields.numbers("grid", 3, _most_threads),
        fields.numbers("block", 3, _most_threads),
        fields.numbers("cluster", 3, _most_threads),
        fields.number("shared_bytes", _most_shared_bytes),
        fields.number("stream", _end_of_addresses - 1),
        fields.flag("programmatic"),
        fields.listed("parameters", most_parameters, _parameter),
        fields.listed("notes", most_notes, _note),
    )


def _step(said: object) -> Step:
    fields = _Fields(said, "step", ("regions", "writes", "variables", "launch"))
    regions = None
    if fields.value("regions") is not None:
        regions = fields.listed("regions", most_regions, _region)
        if sum(region.nbytes for region in regions) > most_region_bytes:
            raise Malformed("step.regions are too large")
    launch = fields.value("launch")
    return Step(
        regions,
        fields.listed("writes", most_writes, _write),
        fields.listed("variables", most_regions, _variable),
        None if launch is None else _launch(launch),
    )


def within(address: int, nbytes: int, regions: Iterable[tuple[int, int]]) -> bool:
    """Whether a range lies in one of these, each as (address, nbytes)."""
    return any(start <= address and address + nbytes <= start + n for start, n in regions)
