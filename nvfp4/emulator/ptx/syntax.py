"""PTX as a tree: first as written, then, after `link`, as one flat kernel.

The flat kernel has no calls and scopes; every name is a register, an address, a label or a special
register.
"""

from dataclasses import field
from functools import cached_property
from typing import TypeAlias

from nvfp4.records.base import Record
from nvfp4.records.source import SourceLine, SourceLines

# The first KiB of shared memory belongs to the system on sm_90 and later.
SHARED_BASE = 1024
"""Address in bytes behind the system's part of shared memory."""
RESERVED_FOR_GROUPS = 640
"""Address of the bytes in the system's part that cooperative groups use, 288 or more. A device's
driver chooses it. Multiple of 128."""


class Name(Record):
    """A register, variable, label, function or special register; `_` is the bit bucket."""

    text: str


class Integer(Record):
    """An integer literal."""

    value: int


class Real(Record):
    """A floating-point literal: its bits as f32 (`0f`) or f64 (`0d`, decimal)."""

    bits: int
    width: int


class Sum(Record):
    """`name + bytes`, outside brackets."""

    name: str
    offset: int


class Memory(Record):
    """`[base + offset]`; `coordinates` are the braced list of a tensor address."""

    base: "Name | Address"
    offset: int = 0
    coordinates: "tuple[Operand, ...] | None" = None


class OperandList(Record):
    """Operands in braces, in a `p|q` pair, or in the parentheses of a call."""

    items: tuple["Operand", ...]
    marks: str = "{}"


class Not(Record):
    """`!p` as an operand."""

    operand: "Name | Register"


# --- what names are, once the kernel is linked ---------------------------------------------


class Register(Record):
    """A virtual register: index into the register file; cls is pred, b8, b16, b32 or b64."""

    index: int
    cls: str
    name: str


class Sink(Record):
    """The `_` operand."""


class Special(Record):
    """A special register, without its percent sign: `tid.x`."""

    name: str


class SymbolAddress(Record):
    """Address of a parameter, global, constant or shared variable, known when the launch or module
    is set up."""

    space: str
    name: str
    offset: int
    """Offset of a shared variable from the start of the CTA's shared memory."""


class LocalAddress(Record):
    """Byte offset in the thread's local memory."""

    offset: int


class Target(Record):
    """A label's number; `Program.labels` says where the label is."""

    label: int


Address: TypeAlias = Register | SymbolAddress | LocalAddress | Integer
"""The base of an access after names are resolved."""

Written: TypeAlias = Name | Integer | Real | Sum | Memory | OperandList | Not
Resolved: TypeAlias = Register | Sink | Special | SymbolAddress | LocalAddress | Target
Operand: TypeAlias = Written | Resolved


class Instruction(Record):
    """An instruction."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Name | Register | None
    """The predicate of `@p` or `@!p`; None without one."""
    negated: bool
    """Whether it is `@!p`."""
    line: int
    text: str
    """The instruction as written."""
    start: int = -1
    """Position of its first character in the module's text; -1 if it is not from the text."""
    source: SourceLine | None = None
    """Once it is linked, the line that it was compiled from."""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The opcode split at its dots."""
        return tuple(self.opcode.split("."))

    @property
    def user(self) -> SourceLine | None:
        """The innermost line of the user's code that the instruction was compiled from, where
        known."""
        return self.source.users() if self.source else None


class Label(Record):
    """A place in a function's code, or a list of such places for `brx.idx`."""

    name: str
    line: int
    targets: tuple[str, ...] = ()


class Registers(Record):
    """A declaration such as `.reg .b32 %r<10>, a;`. Its names are (prefix, count), with count None
    for a single register."""

    type: str
    names: tuple[tuple[str, int | None], ...]
    line: int


class Variable(Record, eq=False):
    """A variable in `space`. Variables compare by identity."""

    space: str
    name: str
    type: str
    nbytes: int | None
    """Size in bytes; None for an extern array of unknown size."""
    align: int
    initial: tuple[tuple[int, int, int | tuple[str, int]], ...]
    """(byte offset, byte width, value) triples; a value is an int or (symbol, addend)."""
    external: bool
    line: int


class Scope(Record):
    """Statements in braces, with names of their own."""

    body: tuple["Statement", ...]


Statement: TypeAlias = Instruction | Label | Registers | Variable | Scope


class Function(Record):
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


class Module(Record, frozen=False):
    """All that a PTX text declares."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    sources: SourceLines = field(default_factory=SourceLines)


def callee(instruction: Instruction) -> str:
    """The name of the function that an instruction calls; empty unless it is such a call."""
    names = (each.text for each in instruction.operands if isinstance(each, Name))
    return next(names, "") if instruction.parts[0] == "call" else ""


def tells(instruction: Instruction) -> bool:
    """Return whether others may wait for what it does: an atomic, a store that others see at once,
    or an arrival at a barrier that does not wait itself."""
    head, *rest = instruction.parts
    if head == "st":
        return not {"volatile", "relaxed", "release"}.isdisjoint(rest)
    arrives = any(part.startswith("arrive") for part in rest)
    return head in ("atom", "red") or (arrives and head in ("mbarrier", "bar", "barrier"))


class Program(Record, frozen=False):
    """A kernel ready for `flow`."""

    kernel: str
    entry: Function
    parameters: list[tuple[str, int, int]] = field(default_factory=list)
    """(name, byte offset, bytes) in order."""
    registers: list[Register] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[int, int] = field(default_factory=dict)
    """Index into `code` by label number."""
    variables: dict[str, Variable] = field(default_factory=dict)
    """The .global and .const variables of the module."""
    shared_end: int = SHARED_BASE
    """Address at which static shared memory ends."""
    dynamic_shared: int = SHARED_BASE
    """Address at which dynamic shared memory starts."""
    local_bytes: int = 0

    @property
    def parameter_bytes(self) -> int:
        return max((offset + size for _, offset, size in self.parameters), default=0)
