"""Operands as Python expressions, and the statements that they stand in."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nvfp4.emulator.compiler.lower import Lowered
from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.instructions.action import Source
from nvfp4.emulator.ptx.parser import real_bits
from nvfp4.emulator.ptx.program import (
    Instruction,
    LocalAddress,
    Memory,
    Not,
    OperandList,
    Register,
    Sink,
    Special,
    SymbolAddress,
)
from nvfp4.emulator.ptx.syntax import Integer, Real
from nvfp4.emulator.ptx.types import REGISTER_DTYPES
from nvfp4.emulator.state.batch import CLOCK_REGISTERS


def _bytes(cls: str) -> int:
    return REGISTER_DTYPES[cls].itemsize


class Values:
    """Writes expressions. names: the objects that they mention, constants among them."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.classes = lowered.classes
        self.names: dict[str, Any] = {"u64": np.uint64}
        self._constants: dict[tuple[str, int], str] = {}

    def named(self, name: str, value: Any) -> str:
        """Let a name stand for an object."""
        self.names[name] = value
        return name

    def constant(self, value: Any, cls: str) -> str:
        """A (1,) array; equal constants share one."""
        key = (cls, int(value))
        if key not in self._constants:
            array = np.array([value]).astype(REGISTER_DTYPES[cls])
            self._constants[key] = self.named(f"K{len(self._constants)}", array)
        return self._constants[key]

    def integer(self, value: int, cls: str) -> str:
        """An integer, cut to a register class."""
        if cls == "pred":
            return self.constant(value != 0, cls)
        return self.constant(value & ((1 << (8 * _bytes(cls))) - 1), cls)

    def read(self, source: Source) -> str:
        """A source in the class in which the instruction wants it."""
        operand, cls = source.operand, source.cls
        if isinstance(operand, Register):
            return self.cast(f"r{operand.index}", self.classes[operand.index], cls)
        if isinstance(operand, Not):
            return f"~r{operand.operand.index}"
        if isinstance(operand, Integer):
            return self.integer(operand.value, cls)
        if isinstance(operand, Real):
            # A predicate is not a float: real_bits refuses a width of 0.
            return self.integer(real_bits(operand, 0 if cls == "pred" else 8 * _bytes(cls)), cls)
        if isinstance(operand, LocalAddress):
            return self.integer(operand.offset, cls)
        if isinstance(operand, Special):
            if operand.name in CLOCK_REGISTERS:
                text = f"batch.signals.clock({operand.name!r})"
                return self.cast(text, CLOCK_REGISTERS[operand.name], cls)
            index = self.lowered.special(operand.name)
            return self.cast(f"r{index}", self.classes[index], cls)
        if isinstance(operand, SymbolAddress):
            return self.cast(f"r{self.lowered.symbol(operand)}", "b64", cls)
        if isinstance(operand, Memory) and cls == "b64":
            return self.address(operand)
        raise PtxSyntaxError(f"{in_words(operand)} cannot be read as a value")

    def shadow(self, source: Source) -> str:
        """Which bits of a source are undefined, in the class in which the instruction wants it."""
        operand, cls = source.operand, source.cls
        if isinstance(operand, Not):
            operand = operand.operand
        if isinstance(operand, Register) and operand.index in self.lowered.shadows:
            shadow = f"r{self.lowered.shadows[operand.index]}"
            return self.cast(shadow, self.classes[operand.index], cls)
        return self.constant(0, cls)

    def address(self, memory: Memory) -> str:
        """A uint64 array; an address held in 32 bits wraps at 32 bits."""
        base = memory.base
        if isinstance(base, Integer):
            return self.integer(base.value + memory.offset, "b64")
        if isinstance(base, LocalAddress):
            return self.integer(base.offset + memory.offset, "b64")
        cls = self.classes[base.index] if isinstance(base, Register) else "b64"
        text = self.read(Source(base, cls))
        if memory.offset:
            text = f"({text} + {self.integer(memory.offset, cls)})"
        return text if cls == "b64" else f"{text}.astype(u64)"

    def cast(self, text: str, have: str, want: str, signed: bool = False) -> str:
        """A value of one register class as another: cut, or extended with zeros or the sign."""
        if have == want:
            return text
        if "pred" in (have, want):
            raise PtxSyntaxError(f"a predicate where .{want} is wanted, or the reverse")
        if signed and _bytes(want) > _bytes(have):
            narrow, wide = f"i{_bytes(have)}", f"i{_bytes(want)}"
            return f"{text}.view({narrow!r}).astype({wide!r}).view({'u' + wide[1:]!r})"
        return f"{text}.astype({REGISTER_DTYPES[want].str!r})"


def in_words(operand: Any) -> str:
    """An operand of the wrong sort, for a message."""
    kinds = {Sink: "_", OperandList: "a list in braces", Special: "a special register"}
    kinds |= {Integer: "a number", Real: "a number", Memory: "an address in []"}
    return kinds.get(type(operand), "this operand")


def guard_of(instruction: Instruction) -> str | None:
    """The predicate that guards an instruction: `r5` or `~r5`."""
    if instruction.guard is None:
        return None
    return f"{'~' if instruction.negated else ''}r{instruction.guard.index}"


def execution(guard: str | None) -> str:
    """What an instruction is told of the threads that run it."""
    return f"Execution(batch, group, {guard})"


def call(targets: Sequence[str], value: str) -> str:
    """Call a function; its results, a tuple, go to the targets."""
    return f"{', '.join(targets)}, = {value}"


def conditional(register: int, value: str, when: str | None) -> str:
    """Set a register, or only those lanes of it where `when` holds."""
    if when is not None:
        value = f"select({when}, {value}, r{register})"
    return f"r{register} = {value}"
