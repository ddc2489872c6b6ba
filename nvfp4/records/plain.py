"""Records from the plain values of JSON that another process wrote: every field is of its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")

_LARGEST = 2**63


class NotPlain(ValueError):
    """A value is not the record that it must be; ``str`` says which field."""


def record(kind: type[T], value: object) -> T:
    """A record from an object that has each of its fields. Raises NotPlain."""
    if not isinstance(value, Mapping):
        raise NotPlain(f"{kind.__name__} is no object")
    values = {}
    for each in fields(kind):  # type: ignore[arg-type]
        values[each.name] = given = value.get(each.name)
        if not fits(str(each.type), given):
            raise NotPlain(f"{kind.__name__} has no {each.name} of type {each.type}")
    return kind(**values)


def fits(wanted: str, value: Any) -> bool:
    """Whether a value is of a type that is written as in an annotation."""
    if wanted.endswith(" | None"):
        return value is None or fits(wanted.removesuffix(" | None"), value)
    if wanted in ("int", "float"):
        number = type(value) is int or (wanted == "float" and type(value) is float)
        return number and -_LARGEST < value < _LARGEST
    outer, _, inner = wanted.removesuffix("]").partition("[")
    if outer == "list":
        return isinstance(value, list) and all(fits(inner, each) for each in value)
    if outer == "dict":
        inner = inner.removeprefix("str, ")
        return isinstance(value, dict) and all(fits(inner, each) for each in value.values())
    return wanted not in ("str", "bool") or type(value).__name__ == wanted
