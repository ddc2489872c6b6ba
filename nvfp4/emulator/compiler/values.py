"""Operands as Python expressions, the statements that use them, and the statements that keep
shadows and check them where values matter."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import definedness
from nvfp4.emulator.compiler.lower import Lowered, passes_on
from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.instructions import undefined
from nvfp4.emulator.instructions.action import Action, Site, Source
from nvfp4.emulator.ptx import syntax
from nvfp4.emulator.ptx.parser import real_bits
from nvfp4.emulator.ptx.types import REGISTER_DTYPES
from nvfp4.emulator.state.batch import CLOCK_REGISTERS


def _bytes(cls: str) -> int:
    return REGISTER_DTYPES[cls].itemsize


class Values:
    """Writes expressions. names: the objects that they refer to, including constants."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.classes = lowered.classes
        self.names: dict[str, Any] = {"u64": np.uint64}
        self._constants: dict[tuple[str, int], str] = {}

    def named(self, name: str, value: Any) -> str:
        """Return a name for an object in the generated code."""
        self.names[name] = value
        return name

    def constant(self, value: Any, cls: str) -> str:
        """Return the expression for a (1,) array; equal constants share one."""
        key = (cls, int(value))
        if key not in self._constants:
            array = np.array([value]).astype(REGISTER_DTYPES[cls])
            self._constants[key] = self.named(f"K{len(self._constants)}", array)
        return self._constants[key]

    def integer(self, value: int, cls: str) -> str:
        """Return the expression for an integer, cut to a register class."""
        if cls == "pred":
            return self.constant(value != 0, cls)
        return self.constant(value & ((1 << (8 * _bytes(cls))) - 1), cls)

    def read(self, source: Source) -> str:
        """Return the expression for a source, in the register class that the instruction
        expects."""
        operand, cls = source.operand, source.cls
        if isinstance(operand, syntax.Register):
            return self.cast(f"r{operand.index}", self.classes[operand.index], cls)
        if isinstance(operand, syntax.Not):
            return f"~{self.read(Source(operand.operand, 'pred'))}"
        if isinstance(operand, syntax.Integer):
            return self.integer(operand.value, cls)
        if isinstance(operand, syntax.Real):
            # A predicate is not a float: real_bits refuses a width of 0.
            return self.integer(real_bits(operand, 0 if cls == "pred" else 8 * _bytes(cls)), cls)
        if isinstance(operand, syntax.LocalAddress):
            return self.integer(operand.offset, cls)
        if isinstance(operand, syntax.Special):
            if operand.name in CLOCK_REGISTERS:
                text = f"batch.signals.clock({operand.name!r})"
                return self.cast(text, CLOCK_REGISTERS[operand.name], cls)
            index = self.lowered.special(operand.name)
            return self.cast(f"r{index}", self.classes[index], cls)
        if isinstance(operand, syntax.SymbolAddress):
            return self.cast(f"r{self.lowered.symbol(operand)}", "b64", cls)
        if isinstance(operand, syntax.Memory) and cls == "b64":
            return self.address(operand)
        raise PtxSyntaxError("an operand cannot be read as a value")

    def shadow(self, source: Source) -> str:
        """Return the expression for the undefined bits of a source, in the class that the
        instruction expects."""
        operand, cls = source.operand, source.cls
        if isinstance(operand, syntax.Not):
            operand = operand.operand
        if isinstance(operand, syntax.Register) and operand.index in self.lowered.shadows:
            shadow = f"r{self.lowered.shadows[operand.index]}"
            return self.cast(shadow, self.classes[operand.index], cls)
        return self.constant(0, cls)

    def address(self, memory: syntax.Memory) -> str:
        """Return the expression for a uint64 array; an address held in 32 bits wraps at 32 bits."""
        base = memory.base
        if isinstance(base, syntax.Integer):
            return self.integer(base.value + memory.offset, "b64")
        if isinstance(base, syntax.LocalAddress):
            return self.integer(base.offset + memory.offset, "b64")
        cls = self.classes[base.index] if isinstance(base, syntax.Register) else "b64"
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


def guard_of(instruction: syntax.Instruction) -> str | None:
    """Return the predicate that guards an instruction: `r5` or `~r5`."""
    if not isinstance(instruction.guard, syntax.Register):
        return None
    return f"{'~' if instruction.negated else ''}r{instruction.guard.index}"


def execution(guard: str | None) -> str:
    """Return the expression for the Execution of an instruction: batch, group and guard."""
    return f"Execution(batch, group, {guard})"


def call(targets: Sequence[str], value: str) -> str:
    """Return statements that call a function and assign its results, a tuple, to the targets."""
    return f"{', '.join(targets)}, = {value}"


def conditional(register: int, value: str, when: str | None) -> str:
    """Return statements that set a register, or only its lanes where `when` holds."""
    if when is not None:
        value = f"select({when}, {value}, r{register})"
    return f"r{register} = {value}"


class Shadows:
    """Writes the shadows' statements for one kernel. memory: whether undefined bits of shared and
    local memory are tracked, too."""

    def __init__(self, values: Values, memory: bool) -> None:
        self.values = values
        self.lowered = values.lowered
        self.memory = memory
        values.named("merge", undefined.merge)
        values.named("passing", undefined.passing)
        program = self.lowered.program
        names = {register: program.registers[register].name for register in self.lowered.unset}
        self.origins = undefined.Origins(self.lowered.passages(), names, program.code)

    def call(self, index: int, guard: str | None) -> str | None:
        """Return the call that computes the shadows of an instruction's results; None if they are
        all defined."""
        action = self.lowered.actions[index]
        passed = self.lowered.passed_sources(index)
        needed = any(self._register(s.operand) in self.lowered.shadows for s in passed)
        values = [self.values.read(s) for s in action.sources]
        shadows = [self.values.shadow(s) for s in action.sources]
        if action.pure and needed:
            classes = [result.cls for result in action.results]
            rule = action.rule or definedness.whole(classes)
            name = self.values.named(f"D{index}", definedness.transfer(rule, classes))
            return f"passing(batch, {index}, {name}({_tuple(values)}, {_tuple(shadows)}))"
        if action.shadow is None:
            return None
        if needed or (self.memory and (action.loads or not action.results)):
            name = self.values.named(f"D{index}", action.shadow)
            found = f"{name}({execution(guard)}, {_tuple(values)}, {_tuple(shadows)})"
            return f"passing(batch, {index}, {found})" if action.results else found
        return None

    def results(self, index: int, when: str | None, values: list[str], found: bool) -> list[str]:
        """Set the shadows of the registers that are about to get `values`.

        when: the guard, as a value. found: whether s0, s1, ... hold the results' shadows; else the
        results are defined.
        """
        action = self.lowered.actions[index]
        shadows, statements = self.lowered.shadows, list[str]()
        guard = self.lowered.program.code[index].guard
        unsure = None
        if action.pure and isinstance(guard, syntax.Register) and guard.index in shadows:
            unsure = "unsure"
            statements.append(f"{unsure} = r{shadows[guard.index]}")
        for i, (result, value) in enumerate(zip(action.results, values, strict=True)):
            register = self._register(result.operand)
            if register not in shadows:
                continue
            cls = self.lowered.classes[register]
            new = self.values.constant(0, cls)
            if found:
                new = self.values.cast(f"s{i}", result.cls, cls, result.signed)
            if unsure is not None:
                old = f"r{register}, {new}, r{shadows[register]}"
                new = f"merge(batch, {index}, {unsure}, {when}, {value}, {old})"
                statements.append(f"r{shadows[register]} = {new}")
            else:
                statements.append(conditional(shadows[register], new, when))
        return statements

    # --- where values matter --------------------------------------------------------------

    def checks(self, index: int, instruction: syntax.Instruction) -> list[str]:
        """Return statements that note undefined bits in operands that must be defined."""
        action = self.lowered.actions[index]
        if not self.lowered.shadows or action.pure:
            return []
        opcode, here = instruction.opcode, execution(guard_of(instruction))
        found: list[str] = []
        if instruction.guard is not None:
            source = Source(instruction.guard, "pred")
            what = "the condition of a branch" if opcode == "bra" else f"the guard of {opcode}"
            found += self._check(index, source, f"used as {what}", execution(None))
        for source in action.sources:
            if isinstance(source.operand, syntax.Memory):
                if isinstance(source.operand.base, syntax.Register):
                    base = Source(source.operand.base, source.operand.base.cls)
                    found += self._check(index, base, "used as an address", here)
            elif not passes_on(action, source):
                what = "stored to global memory" if action.kind == "store" else f"used by {opcode}"
                found += self._check(index, source, what, here)
        return found

    def after_store(self, index: int, action: Action, stored: str) -> list[str]:
        """Return statements that keep the shadows of stored values, and check those that leave the
        thread."""
        checks: list[str] = []
        for source in action.sources:
            if passes_on(action, source):
                ex = "Execution(batch, group, s0)"
                checks += self._check(index, source, "stored to global memory", ex)
        return [call(["s0"], stored), *checks]

    def _check(self, index: int, source: Source, verb: str, here: str) -> list[str]:
        register = self._register(source.operand)
        if register not in self.lowered.shadows:
            return []
        program = self.lowered.program
        what = program.registers[register]
        use = undefined.Use(
            Site(program.kernel, program.code[index]),
            f"{'predicate' if what.cls == 'pred' else 'register'} {what.name} is {verb}",
            register,
            self.origins,
        )
        name = self.values.named(f"U{index}_{register}_{verb.split()[0]}", use)
        return [f"{name}.check({here}, {self.values.shadow(source)})"]

    def _register(self, operand: syntax.Operand) -> int:
        """Return the index of the register that an operand is, or -1."""
        if isinstance(operand, syntax.Not):
            operand = operand.operand
        return operand.index if isinstance(operand, syntax.Register) else -1


def _tuple(values: list[str]) -> str:
    return f"({''.join(value + ', ' for value in values)})"
