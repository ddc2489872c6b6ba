"""Values of the submission's process, as far as they are what they should be."""

from __future__ import annotations

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
