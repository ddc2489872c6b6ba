"""Escapes control characters in text that a submission may have written."""

import json
import os
import re
import unicodedata
from typing import Any

_GITHUBS_COMMANDS = re.compile(r"^\s*(?=::)|(?=##\[)", re.MULTILINE)
"""Where GitHub Actions takes a line of a log for a command."""

most_lines = 40
"""Most lines of a message that are shown."""


def visible(text: str) -> str:
    r"""Replace control and format characters, except line breaks and tabs, by escapes such as
    \x1b. In GitHub Actions, none of its lines is a command."""
    if "GITHUB_ACTIONS" in os.environ:
        text = _GITHUBS_COMMANDS.sub(r"\g<0>\\", text)
    return "".join(
        c if c in "\n\t" or unicodedata.category(c)[0] != "C" else ascii(c)[1:-1] for c in text
    )


def one_line(text: str) -> str:
    """Return a visible text without line breaks and tabs, for a cell of a table."""
    return "".join(ascii(c)[1:-1] if c in "\n\t\u2028\u2029" else c for c in visible(text))


def visible_json(text: str | None) -> Any:
    """Return the value of a JSON text with control characters in strings visible; None if it is not
    JSON."""
    try:
        return visible_parts(json.loads(text or "null"))
    except (ValueError, RecursionError):
        return None


def visible_parts(value: Any) -> Any:
    """Return a value of JSON with control characters in strings visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [visible_parts(each) for each in value]
    if isinstance(value, dict):
        return {visible(name): visible_parts(each) for name, each in value.items()}
    return value


def first_lines(text: str) -> list[str]:
    """Return the lines of a message; of a long one the first, and how many are left out."""
    lines = text.split("\n")
    if len(lines) <= most_lines:
        return lines
    return [*lines[:most_lines], f"... and {len(lines) - most_lines} more lines"]


def microseconds(value: float | None) -> str:
    """Return a time with its significant digits; a dash for None."""
    if value is None:
        return "-"
    digits = 3 if value < 100 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}"


def seconds(value: float) -> str:
    """``17.2 s``, or ``3 min 5 s`` from two minutes on."""
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def roughly(value: float) -> str:
    """Return a time that is foreseen: ``7 s``, ``40 s``, ``2 min 10 s``."""
    step = 1 if value < 10 else 5 if value < 60 else 10
    whole = step * max(1, round(value / step))
    return f"{whole} s" if whole < 120 else seconds(whole)


def percent(part: float | None, whole: float | None) -> str:
    """Return a share in percent; a dash if the part or the whole is unknown or zero."""
    if not part or not whole:
        return "-"
    share = part / whole
    return f"{share:.1%}" if share < 0.9995 else f"{share:.0%}"


def whole_number(text: str) -> int | None:
    """Return a number of decimal digits, of many the first 20, as Python reads at most 4,300; None
    for other text."""
    return int(text[:20]) if text.isascii() and text.isdecimal() else None


def several(count: int, noun: str) -> str:
    """``1 test``, ``3 tests``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
