"""The few kinds of Python statements that a compiled kernel consists of.

Values are expressions as text; `render` turns statements into lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Fetch:
    """Take a register from the register file into a local variable."""

    register: int

    def __str__(self) -> str:
        return f"r{self.register} = R[{self.register}]"


@dataclass(frozen=True)
class Keep:
    """Put a local variable back into the register file."""

    register: int

    def __str__(self) -> str:
        return f"R[{self.register}] = r{self.register}"


@dataclass(frozen=True)
class Set:
    """Give a value to a local variable."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Call:
    """Call a function; its results, a tuple, go to the targets."""

    value: str
    targets: Sequence[str] = ()

    def __str__(self) -> str:
        return "".join(f"{target}, " for target in self.targets) + (
            f"= {self.value}" if self.targets else self.value
        )


@dataclass(frozen=True)
class Return:
    """Leave the function."""

    value: str

    def __str__(self) -> str:
        return f"return {self.value}"


Statement: TypeAlias = Fetch | Keep | Set | Call | Return


@dataclass(frozen=True)
class Guard:
    """The predicate register that guards an instruction, as a value: `r5` or `~r5`."""

    register: int
    negated: bool

    def __str__(self) -> str:
        return f"{'~' if self.negated else ''}r{self.register}"


def execution(guard: Guard | None) -> str:
    """What an instruction is told of the threads that run it, as a value."""
    return f"Execution(batch, group, {guard})"


def conditional(register: int, value: str, when: str | None) -> Set:
    """Set a register, or only those lanes of it where `when` holds."""
    if when is not None:
        value = f"select({when}, {value}, r{register})"
    return Set(f"r{register}", value)


@dataclass(frozen=True)
class Function:
    """A function of (batch, group, R), R being the group's registers."""

    name: str
    body: Sequence[Statement]


def render(functions: Iterable[Function]) -> str:
    """The text of a Python module."""
    lines = []
    for function in functions:
        lines.append(f"def {function.name}(batch, group, R):")
        lines += [f"    {statement}" for statement in function.body]
    return "\n".join(lines)
