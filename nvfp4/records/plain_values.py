"""Values of the submission's process, as far as they are what they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_most_places = 3

_largest = 2**53
"""Every whole number below it is a number of JSON."""


def whole_number(value: object) -> int | None:
    """A whole number that is not negative; None for anything else."""
    return value if type(value) is int and 0 <= value < _largest else None


def whole_numbers(value: object, length: int = 3) -> list[int] | None:
    """A list of ``length`` whole numbers, from a list or a tuple; None for anything else."""
    if not isinstance(value, (list, tuple)) or len(value) != length:
        return None
    return list(value) if all(type(v) is int and abs(v) < _largest for v in value) else None


def other_places(value: object, longest_text: int) -> list[dict[str, Any]]:
    """Places that belong to a fault, of a list of them: message, file, line, ptx_line, cta, thread,
    each of its type or None."""
    found: list[dict[str, Any]] = []
    for each in value[:_most_places] if isinstance(value, list) else ():
        if not isinstance(each, dict):
            continue
        message, file = (
            text[:longest_text] if isinstance(text := each.get(name), str) else None
            for name in ("message", "file")
        )
        found.append(
            {
                "message": message,
                "file": Path(file).name if file else None,
                **{name: whole_number(each.get(name)) for name in ("line", "ptx_line")},
                **{name: whole_numbers(each.get(name)) for name in ("cta", "thread")},
            }
        )
    return found


def plain_value(value: object, longest_text: int) -> str | bool | int | float | list[int] | None:
    """A text, cut, a flag, a number, or a short list of whole numbers; None for anything else."""
    if isinstance(value, str):
        return value[:longest_text]
    if type(value) in (bool, int, float):
        number: bool | int | float = value  # type: ignore[assignment]
        return number if abs(number) < _largest else None
    if isinstance(value, (list, tuple)) and len(value) <= 12:
        return whole_numbers(value, len(value))
    return None
