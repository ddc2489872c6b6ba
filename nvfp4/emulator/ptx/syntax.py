"""The syntax tree of a PTX module: what was written, nothing resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from nvfp4.records.source import SourceLines


@dataclass(frozen=True)
class Name:
    """A register, variable, label, function or special register; `_` is the bit bucket."""

    text: str


@dataclass(frozen=True)
class Integer:
    """An integer literal."""

    value: int


@dataclass(frozen=True)
class Real:
    """A floating-point literal: its bits as f32 (`0f`) or f64 (`0d`, decimal)."""

    bits: int
    width: int


@dataclass(frozen=True)
class Sum:
    """`name + bytes`, outside brackets."""

    name: str
    offset: int


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; `coordinates` is the braced list of a tensor address."""

    base: Name | Integer
    offset: int = 0
    coordinates: Vector | None = None


@dataclass(frozen=True)
class Vector:
    """Operands in braces."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`p|q`, two destinations of one instruction."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """`!p` as an operand."""

    operand: Name


@dataclass(frozen=True)
class Arguments:
    """A parenthesised list of a call."""

    items: tuple[Operand, ...]


Operand: TypeAlias = Name | Integer | Real | Sum | Address | Vector | Pair | Negated | Arguments


@dataclass(frozen=True)
class Guard:
    """`@p` or `@!p`."""

    name: str
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction as it is written. start: its first character in the module's text."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    text: str
    start: int = -1


@dataclass(frozen=True)
class Label:
    """A place in a function's code."""

    name: str
    line: int


@dataclass(frozen=True)
class TargetList:
    """`name: .branchtargets a, b, c;`, the targets of a `brx.idx`."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Registers:
    """`.reg .b32 %r<10>, a;` with every name spelled out lazily: (prefix, count or None)."""

    type: str
    names: tuple[tuple[str, int | None], ...]
    line: int


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable in `space`, its own key; nbytes is None for an extern array of unknown size.

    initial: (byte offset, byte width, value) triples; a value is an int or (symbol, addend).
    """

    space: str
    name: str
    type: str
    nbytes: int | None
    align: int
    initial: tuple[tuple[int, int, int | tuple[str, int]], ...]
    external: bool
    line: int


@dataclass(frozen=True)
class Scope:
    """Statements in braces, with names of their own."""

    body: tuple[Statement, ...]


Statement: TypeAlias = Instruction | Label | TargetList | Registers | Variable | Scope


@dataclass(frozen=True)
class Function:
    """An `.entry` or a `.func`; body is None for a declaration.

    results and parameters are Variables of space `param`, or `reg` for register arguments.
    """

    name: str
    entry: bool
    results: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    body: Scope | None
    required_threads: tuple[int, int, int] | None
    most_threads: int | None
    cluster: tuple[int, int, int] | None
    line: int


@dataclass
class Module:
    """All that a PTX text declares."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    sources: SourceLines = field(default_factory=SourceLines)


def callee(instruction: Instruction) -> str:
    """The name of the function that an instruction calls; empty unless it is such a call."""
    if instruction.opcode.split(".", 1)[0] != "call":
        return ""
    operands = [o for o in instruction.operands if not isinstance(o, Arguments)]
    return operands[0].text if operands and isinstance(operands[0], Name) else ""
