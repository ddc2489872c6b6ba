"""One flat kernel: no calls, no scopes; every name is a register, an address or a label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from nvfp4.emulator.ptx import syntax
from nvfp4.emulator.ptx.syntax import Integer, Real
from nvfp4.records.source import SourceLine

# The first KiB of shared memory belongs to the system on sm_90 and later.
SHARED_BASE = 1024
"""What lies below is the system's."""
RESERVED_FOR_GROUPS = 640
"""Where that which cooperative groups may use begins in it, 288 bytes at least; a device's driver
says where. Multiple of 128."""


@dataclass(frozen=True)
class Register:
    """A virtual register: index into the register file; cls is pred, b8, b16, b32 or b64."""

    index: int
    cls: str
    name: str


@dataclass(frozen=True)
class Sink:
    """The `_` operand."""


@dataclass(frozen=True)
class Special:
    """A special register, without its percent sign: `tid.x`."""

    name: str


@dataclass(frozen=True)
class SymbolAddress:
    """Address of a parameter, global, constant or shared variable, known when the launch or module
    is set up. offset: of a shared variable, from the start of the CTA's shared memory."""

    space: str
    name: str
    offset: int


@dataclass(frozen=True)
class LocalAddress:
    """Byte offset in the thread's local memory."""

    offset: int


@dataclass(frozen=True)
class Memory:
    """`[base + offset]`; `coordinates` belong to a tensor address."""

    base: Register | Integer | SymbolAddress | LocalAddress
    offset: int
    coordinates: tuple[Operand, ...] | None = None


@dataclass(frozen=True)
class OperandList:
    """Elements of a braced list, or both halves of a `p|q` pair."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Not:
    """A negated predicate as an operand, `!p`."""

    operand: Register


@dataclass(frozen=True)
class Target:
    """A label's number; `Program.labels` says where the label is."""

    label: int


Operand: TypeAlias = (
    Register
    | Sink
    | Special
    | SymbolAddress
    | LocalAddress
    | Memory
    | OperandList
    | Not
    | Target
    | Integer
    | Real
)


@dataclass(frozen=True)
class Instruction:
    """parts: the opcode split at its dots. negated: the guard is `@!p`. text: as written. source:
    the line that it was compiled from. start: its first character in the module's text, -1 for
    one that stands nowhere.
    """

    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    negated: bool
    line: int
    text: str
    source: SourceLine | None = None
    start: int = -1

    @property
    def user(self) -> SourceLine | None:
        """The innermost line of the user's own code that it was compiled from, where known."""
        return self.source.users() if self.source else None


@dataclass
class Program:
    """A kernel ready for `flow`.

    parameters: (name, byte offset, bytes) in order. labels: label number -> index into `code`.
    variables: the .global and .const variables of the module. shared_end: the address at which
    static shared memory ends. dynamic_shared: the address at which dynamic shared memory starts.
    """

    kernel: str
    parameters: list[tuple[str, int, int]] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[int, int] = field(default_factory=dict)
    variables: dict[str, syntax.Variable] = field(default_factory=dict)
    shared_end: int = SHARED_BASE
    dynamic_shared: int = SHARED_BASE
    local_bytes: int = 0
    required_threads: tuple[int, int, int] | None = None
    most_threads: int | None = None
    cluster: tuple[int, int, int] | None = None

    @property
    def parameter_bytes(self) -> int:
        return max((offset + size for _, offset, size in self.parameters), default=0)
