"""Failures and findings as records that programs read.

They may come from the submission's process. ``read_failure`` and ``read_findings`` check them:
afterwards every value has its type and a limited length.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, fields
from pathlib import PurePath
from typing import Any, TypeVar

from nvfp4.records.base import Record

T = TypeVar("T")

LONGEST_BYTES, LONGEST_CAUSES = 1200, 1700
"""Limits on a failure as JSON without its causes, and on the causes, since the bot's pipe is
small."""

LONGEST_TEXT, LONGEST_NAME = 300, 60
MOST_ARGUMENTS, MOST_CAUSES, MOST_PLACES = 16, 4, 4
LARGEST = 2**53
"""JSON readers that use float64 represent every whole number up to this exactly."""

OPTIONAL = ("failure", "error", "emulation", "predicted", "findings", "output", "samples")
"""Fields of a case's results, the most important first; dropped when the bot's pipe is full."""

UNKNOWN = "unknown"

BY_JUDGE, BY_SUBMISSION = "judge", "submission"
"""The source of a failure or a finding; the latter is the submission's own process."""

ADVICE = frozenset({"software_conversion", "own_stream"})
"""Codes of findings that never fail a case, whatever the options: they report no mistake."""

_code = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")


class Place(Record):
    """Another place that belongs to a failure or a finding."""

    message: str | None = None
    file: str | None = None
    line: int | None = None
    ptx_line: int | None = None
    cta: list[int] | None = None
    """[x, y, z]."""
    thread: list[int] | None = None
    """[x, y, z]."""


class _Report(Record):
    """The fields of a failure and of a finding; docs/json.md explains each."""

    code: str
    message: str = ""
    kernel: str | None = None
    file: str | None = None
    hint: str | None = None
    rule: str | None = None
    line: int | None = None
    cta: list[int] | None = None
    thread: list[int] | None = None
    related: list[Place] = field(default_factory=list)
    told_by: str = BY_JUDGE
    """The source, which is set by the process that reads a record of another one."""


class Failure(_Report):
    """Why a case did not pass."""

    column: int | None = None
    ptx_line: int | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    causes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def own_s(self) -> float | None:
        """Seconds after which a call or a kernel was given up, without those of compiling and
        emulating; None if it failed for another reason."""
        spent_s = self.arguments.get("cpu_s", self.arguments.get("seconds"))
        ours_s = self.arguments.get("not_its_own_s", 0)
        known = isinstance(spent_s, int | float) and isinstance(ours_s, int | float)
        return float(spent_s - ours_s) if known else None

    def as_plain(self) -> dict[str, Any]:
        """Return every field that is set."""
        return {name: each for name, each in asdict(self).items() if each not in (None, {}, [])}

    def as_json(self) -> str:
        """Return the JSON text for the bot's pipe. Fields that make it too long are left out, a
        hint first."""
        plain = self.as_plain()
        causes = plain.pop("causes", [])
        for name in ("hint", "rule", "related", "arguments", "message", "kernel", "file"):
            if len(json.dumps(plain)) > LONGEST_BYTES:
                plain.pop(name, None)
        if causes and len(json.dumps(causes)) <= LONGEST_CAUSES:
            plain["causes"] = causes
        return json.dumps(plain)


class Finding(_Report):
    """An action of a kernel that the manual forbids and hardware tolerates."""

    count: int | None = None
    """How often it was found."""


def read_failure(value: object) -> Failure | None:
    """Read a failure from a JSON value; None if it has no code. Fields of another type are left
    out, long ones cut."""
    return _read(Failure, value)


def read_findings(value: object) -> list[Finding]:
    """Read a list of findings; those without a code or a message are left out."""
    found = (_read(Finding, each) for each in (value if isinstance(value, list) else []))
    return [each for each in found if each is not None and each.message]


def _read(kind: type[T], value: object) -> T | None:
    if not isinstance(value, Mapping) or _is_code(value.get("code")) is None:
        return None
    return _record(kind, value)


def _record(kind: type[T], value: Mapping[Any, Any]) -> T:
    """Make a record of those fields that are of their type."""
    found = {
        each.name: _readers[each.type](value.get(each.name))
        for each in fields(kind)  # type: ignore[arg-type]
    }
    if found.get("file"):
        found["file"] = PurePath(found["file"]).name
    return kind(**{name: each for name, each in found.items() if each is not None})


def _is_code(value: object) -> str | None:
    short = isinstance(value, str) and len(value) <= LONGEST_NAME
    return str(value) if short and _code.fullmatch(str(value)) else None


def _text(value: object) -> str | None:
    return value[:LONGEST_TEXT] if isinstance(value, str) and value else None


def _whole_number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < LARGEST else None


def _numbers(value: object) -> list[int] | None:
    if not isinstance(value, (list, tuple)) or len(value) > MOST_ARGUMENTS:
        return None
    return list(value) if all(type(v) is int and abs(v) < LARGEST for v in value) else None


def _triple(value: object) -> list[int] | None:
    numbers = _numbers(value)
    return numbers if numbers is not None and len(numbers) == 3 else None


def _argument(value: object) -> Any:
    """Return a text, a flag, a number, or a short list of whole numbers; None for anything else."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, (bool, int, float)):
        return value if abs(value) < LARGEST else None
    return _numbers(value)


def _arguments(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    known = {str(name)[:LONGEST_NAME]: _argument(each) for name, each in value.items()}
    kept = [(name, each) for name, each in known.items() if each is not None]
    return dict(kept[:MOST_ARGUMENTS])


def _causes(value: object) -> list[dict[str, Any]]:
    """Read causes: objects with a code and its arguments; `or` lists others that explain the same
    equally well."""
    return [
        {**_cause(each), "or": [_cause(other) for other in _with_code(each.get("or"))]}
        for each in _with_code(value)
    ]


def _with_code(value: object) -> list[Mapping[Any, Any]]:
    listed = value[:MOST_CAUSES] if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, Mapping) and _is_code(each.get("code"))]


def _cause(value: Mapping[Any, Any]) -> dict[str, Any]:
    known = {name: each for name, each in value.items() if name not in ("code", "or")}
    return {"code": value["code"], **_arguments(known)}


def _places(value: object) -> list[Place]:
    listed = value[:MOST_PLACES] if isinstance(value, list) else []
    return [_record(Place, each) for each in listed if isinstance(each, Mapping)]


_readers: dict[Any, Callable[[object], Any]] = {
    str: _text,
    str | None: _text,
    int | None: _whole_number,
    list[int] | None: _triple,
    dict[str, Any]: _arguments,
    list[dict[str, Any]]: _causes,
    list[Place]: _places,
}
"""The function that reads a field, by its type."""
