"""What an instruction does to a group of threads: the table of everything but arithmetic.

An instruction is one function decorated with `instruction("mnemonic")`. It gets a `Site` (where
the instruction stands and how it was written) and returns an `Action`. Arithmetic comes from
`emulator.arithmetic.resolve`, which knows lanes but no memory and no neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nvfp4.emulator.errors import EmulatorError, PtxSyntaxError, UnsupportedInstruction, Where
from nvfp4.emulator.ptx.program import Instruction, Memory, Operand, Several

if TYPE_CHECKING:
    from nvfp4.emulator.engine.batch import Batch

Array = np.ndarray[Any, Any]

DTYPES = {
    "pred": np.dtype(np.bool_),
    "b8": np.dtype(np.uint8),
    "b16": np.dtype(np.uint16),
    "b32": np.dtype(np.uint32),
    "b64": np.dtype(np.uint64),
}
CLASS_OF_BYTES = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}
_KINDS = ("u", "s", "b", "f")
_WIDTHS = ("8", "16", "32", "64", "128")
_TYPE_BITS = {"f16x2": 32, "bf16x2": 32, "bf16": 16, "pred": 1, "tf32": 32}


@dataclass(frozen=True)
class Site:
    """An instruction in its kernel."""

    kernel: str
    instruction: Instruction

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    @property
    def parts(self) -> tuple[str, ...]:
        return self.instruction.parts

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    def where(self) -> Where:
        return Where(self.kernel, self.instruction.line, self.instruction.text)

    def unsupported(self, what: str, hint: str | None = None) -> UnsupportedInstruction:
        return UnsupportedInstruction(what, where=self.where(), hint=hint)

    def fail(
        self, kind: type[EmulatorError], message: str, batch: Batch, lane: int, hint: str = ""
    ) -> EmulatorError:
        """An error of one lane of the batch."""
        cta, thread = batch.coordinates(lane)
        where = Where(
            self.kernel, self.instruction.line, self.instruction.text, cta=cta, thread=thread
        )
        return kind(message, where=where, hint=hint or None)

    def only(self, *known: str) -> None:
        """Refuse modifiers that are not in `known` (an optional modifier that is emulated)."""
        for part in self.parts[1:]:
            if part not in known:
                raise self.unsupported(f"{self.opcode}: modifier .{part} is not emulated")

    def takes(self, least: int, most: int | None = None) -> None:
        """Refuse a number of operands outside [least, most or least]."""
        most = least if most is None else most
        if not least <= len(self.operands) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise PtxSyntaxError(
                f"{self.opcode} takes {wanted} operands, not {len(self.operands)}",
                where=self.where(),
            )

    def items(self, index: int) -> tuple[Operand, ...]:
        """The elements of a braced operand, or the operand itself."""
        operand = self.operands[index]
        return operand.items if isinstance(operand, Several) else (operand,)

    def memory(self, index: int) -> Memory:
        operand = self.operands[index] if index < len(self.operands) else None
        if not isinstance(operand, Memory):
            raise self.unsupported(f"{self.opcode}: operand {index + 1} must be an address in []")
        return operand


@dataclass(frozen=True)
class Source:
    """An operand to read as a register class. An address reads as b64 with its offset added."""

    operand: Operand
    cls: str


@dataclass(frozen=True)
class Result:
    """An operand to set from a value of a class; signed: extended with the sign if wider."""

    operand: Operand
    cls: str
    signed: bool = False


Run = Callable[..., "tuple[Array, ...]"]
Gate = Callable[..., "Array | None"]


@dataclass(frozen=True)
class Action:
    """run(batch, group, guard, *sources) -> results, in the order of `results`.

    guard: bool array, or None if all lanes take part; results elsewhere are ignored.
    gate: same arguments; the lanes (flat bool array) that may go on, or None for all. Lanes that
        may not are kept in front of the instruction until more threads arrive or memory changes.
    parks: run(batch, group, guard, next_block, *sources) returns the next block, or None once
        it has put the lanes aside (scheduler.park) until something releases them.
    pure: run(*sources) -> results, for all lanes alike; it needs no batch, group or guard.
    """

    kind: str
    sources: Sequence[Source]
    results: Sequence[Result]
    run: Run
    gate: Gate | None = None
    parks: bool = False
    pure: bool = False


Builder = Callable[[Site], Action]
BUILDERS: dict[str, Builder] = {}


def instruction(*mnemonics: str) -> Callable[[Builder], Builder]:
    """Register the builder of `mnemonics`; `bar.warp` style names match two parts of an opcode."""

    def register(builder: Builder) -> Builder:
        for mnemonic in mnemonics:
            if mnemonic in BUILDERS:
                raise ValueError(f"{mnemonic} is in the table twice")
            BUILDERS[mnemonic] = builder
        return builder

    return register


def builder_of(parts: tuple[str, ...]) -> Builder | None:
    """The longest registered name that the opcode starts with."""
    for length in range(min(4, len(parts)), 0, -1):
        found = BUILDERS.get(".".join(parts[:length]))
        if found is not None:
            return found
    return None


def type_of(site: Site) -> str:
    """The last part of the opcode that is a type, such as `u32`."""
    for part in reversed(site.parts):
        if part in _TYPE_BITS or (part[:1] in _KINDS and part[1:] in _WIDTHS):
            return part
    raise site.unsupported(f"{site.opcode} names no type")


def type_bits(name: str) -> int:
    return _TYPE_BITS.get(name) or int(name.lstrip("usbf"))


def class_of(type_name: str) -> str:
    """Register class of a type."""
    bits = type_bits(type_name)
    return "pred" if bits == 1 else f"b{bits}"
