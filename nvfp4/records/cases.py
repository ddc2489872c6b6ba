"""A case: the arguments of ``generate_input``, and the line of a case file that has them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class CaseError(ValueError):
    """A case breaks the format, or does not fit the problem."""


@dataclass(frozen=True)
class Case:
    """One line of a case file."""

    spec: str
    """The line as written."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of generate_input. The seed may have been combined with a secret one."""
    full_range: bool = False
    """Whether the inputs are the second kind that the problem has."""

    @property
    def seed(self) -> int:
        """The seed of the inputs; 0 where the problem takes none."""
        return int(self.arguments.get("seed", 0))

    @property
    def elements(self) -> int:
        """See ``elements_of``."""
        return elements_of(dimensions(self.spec))


full_range_suffix = "; full-range inputs"
"""The end of a line; no argument has such a name."""

_shown = 80
_name = re.compile(r"[A-Za-z_]\w*")
_whole = re.compile(r"[+-]?[0-9]+")
_word = re.compile(r"[\w.+-]{1,1000}")
_list = re.compile(r"[\[(]\s*[+-]?[0-9]+(\s*,\s*[+-]?[0-9]+)*\s*,?\s*[\])]")


def parse_case(line: str) -> Case:
    """Read ``m: 128; k: 256; seed: 1111``; ``full-range inputs`` may follow.

    A value is a whole number, a list of them in brackets, or a word, True and False included, as
    the contest's runners read it. Raises CaseError.
    """
    fields: dict[str, str] = {}
    plain = line.strip().removesuffix(full_range_suffix)
    for part in plain.split(";"):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon or not _name.fullmatch(name):
            raise CaseError(f"{part.strip()[:_shown]!r} is not 'name: value'")
        if name in fields:
            raise CaseError(f"{name[:_shown]!r} stands twice")
        fields[name] = value
    arguments = {name: _value(name, value) for name, value in fields.items()}
    if not isinstance(arguments.get("seed", 0), int):
        raise CaseError("seed must be a whole number")
    return Case(line.strip(), arguments, plain != line.strip())


def _value(name: str, text: str) -> Any:
    try:
        if _whole.fullmatch(text):
            return int(text)
        if _list.fullmatch(text):
            return [int(each) for each in text[1:-1].split(",") if each.strip()]
    except ValueError:
        raise CaseError(f"{name} has too many digits") from None
    if _word.fullmatch(text):
        return text
    raise CaseError(f"{name} must be a whole number, a list of them or a word")


def case_line(arguments: dict[str, Any]) -> str:
    """Return a case as a line of a case file. Raises CaseError for values that a line cannot
    express."""
    line = "; ".join(f"{name}: {value}" for name, value in arguments.items())
    if not arguments or any(";" in str(value) for value in arguments.values()):
        raise CaseError("a case is names with whole numbers, lists of them or words")
    parse_case(line)
    return line


def dimensions(line: str) -> dict[str, str]:
    """Return the values of a line, without seed and kind of inputs, as text by name."""
    pairs = (part.partition(":") for part in line.removesuffix(full_range_suffix).split(";"))
    named = {name.strip(): value.strip() for name, _, value in pairs}
    return {name: value for name, value in named.items() if name != "seed"}


def elements_of(sizes: Mapping[str, str]) -> int:
    """Return a measure of a case's work: the product of sizes that are not 0, 10**18 at most."""
    every = (list(map(int, re.findall(r"\d+", value))) for value in sizes.values())
    found = math.prod(max(*numbers, 1) * len(numbers) for numbers in every if numbers)
    return min(found, 10**18)


_widest_list = 10


def short_value(text: str) -> str:
    """Shorten a value for a table: a long list becomes its length, first and last number."""
    numbers = [int(each) for each in re.findall(r"\d+", text)]
    if len(text) <= _widest_list or not _list.fullmatch(text):
        return text
    low, high = min(numbers), max(numbers)
    return f"{len(numbers)} x {low}" if low == high else f"{len(numbers)} of {low} to {high}"


def label(line: str) -> str:
    """Return the name of a case for people: ``128 x 256 x 1`` if all values are whole numbers, else
    with names."""
    found = {name: short_value(value) for name, value in dimensions(line).items()}
    if all(_whole.fullmatch(value) for value in found.values()):
        return " x ".join(found.values())
    return ", ".join(f"{name} {value}" for name, value in found.items())
