"""A kernel as Python: one generated function a basic block, over arrays of all lanes.

A block's function takes (batch, group, R) with R the group's registers, keeps values in local
variables, stores those that a later block needs, and returns the next block's number, or what
`control.py` says where threads part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nvfp4.emulator.engine import control
from nvfp4.emulator.engine.action import DTYPES, Action, Site, Source
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import select
from nvfp4.emulator.engine.lower import CHANGING_SPECIALS, Lowered
from nvfp4.emulator.errors import EmulatorError, PtxSyntaxError
from nvfp4.emulator.ptx import flow
from nvfp4.emulator.ptx.parser import real_bits
from nvfp4.emulator.ptx.program import (
    Instruction,
    LocalAddress,
    Memory,
    Not,
    Program,
    Register,
    Several,
    Sink,
    Special,
    SymbolAddress,
)
from nvfp4.emulator.ptx.syntax import Integer, Real

Array = np.ndarray[Any, Any]
_BYTES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8}


@dataclass
class CompiledBlock:
    """run(batch, group, R) and, if threads may have to wait here, gate with the same arguments."""

    run: Callable[..., Any]
    gate: Callable[..., Any] | None
    site: Site
    live_in: int
    writes: int
    kinds: Counter[str]
    instructions: int


@dataclass
class CompiledKernel:
    """Blocks in program order, and how to make the registers' first values for a batch."""

    program: Program
    blocks: list[CompiledBlock]
    classes: list[str]
    specials: dict[int, str] = field(default_factory=dict)
    symbols: dict[int, SymbolAddress] = field(default_factory=dict)
    source: str = ""

    def first_values(self, batch: Batch) -> list[Array]:
        """Default arrays of the register file: zeros, special registers, symbol addresses."""
        values = [np.zeros(1, DTYPES[cls]) for cls in self.classes]
        for index, name in self.specials.items():
            value = batch.special(name)
            assert value is not None
            values[index] = value
        for index, symbol in self.symbols.items():
            base = batch.launch.symbols[symbol.name]
            values[index] = np.array([base + symbol.offset], np.uint64)
        return values


def compile_kernel(program: Program, check: bool) -> CompiledKernel:
    """Generate and load the Python of a kernel.

    Raises UnsupportedInstruction or PtxSyntaxError with the PTX line.
    """
    return _Writer(Lowered(program, check)).load()


class _Writer:
    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        self.program = lowered.program
        self.classes = lowered.classes
        self.names: dict[str, Any] = {
            "select": select,
            "control": control,
            "u64": np.uint64,
            "check_set": control.check_set,
        }
        self.constants: dict[tuple[str, int], str] = {}

    def constant(self, value: Any, cls: str) -> str:
        """The name of a (1,) array."""
        key = (cls, int(value))
        if key not in self.constants:
            name = f"K{len(self.constants)}"
            self.constants[key] = name
            self.names[name] = np.array([value]).astype(DTYPES[cls])
        return self.constants[key]

    def integer(self, value: int, cls: str) -> str:
        if cls == "pred":
            return self.constant(value != 0, cls)
        return self.constant(value & ((1 << (8 * _BYTES[cls])) - 1), cls)

    def read(self, source: Source) -> str:
        operand, cls = source.operand, source.cls
        if isinstance(operand, Register):
            return self.cast(f"r{operand.index}", self.classes[operand.index], cls)
        if isinstance(operand, Not):
            return f"~r{operand.operand.index}"
        if isinstance(operand, Integer):
            return self.integer(operand.value, cls)
        if isinstance(operand, Real):
            return self.integer(real_bits(operand, 8 * _BYTES.get(cls, 0)), cls)
        if isinstance(operand, LocalAddress):
            return self.integer(operand.offset, cls)
        if isinstance(operand, Special):
            if operand.name in CHANGING_SPECIALS:
                text = f"batch.scheduler.clock({operand.name!r})"
                return self.cast(text, CHANGING_SPECIALS[operand.name], cls)
            index = self.lowered.special(operand.name)
            return self.cast(f"r{index}", self.classes[index], cls)
        if isinstance(operand, SymbolAddress):
            return self.cast(f"r{self.lowered.symbol(operand)}", "b64", cls)
        if isinstance(operand, Memory):
            return self.address(operand)
        raise PtxSyntaxError(f"{_words(operand)} cannot be read as a value")

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
        if have == want:
            return text
        if "pred" in (have, want):
            raise PtxSyntaxError(f"a predicate where .{want} is wanted, or the reverse")
        if signed and _BYTES[want] > _BYTES[have]:
            narrow, wide = f"i{_BYTES[have]}", f"i{_BYTES[want]}"
            return f"{text}.view({narrow!r}).astype({wide!r}).view({'u' + wide[1:]!r})"
        return f"{text}.astype({DTYPES[want].str!r})"

    # --- blocks ---------------------------------------------------------------------------

    def load(self) -> CompiledKernel:
        lines: list[str] = []
        for block in self.lowered.blocks:
            try:
                lines += self.block(block)
            except EmulatorError as error:
                raise error.at(Site(self.program.kernel, block.code[0]).where()) from None
        text = "\n".join(lines)
        exec(compile(text, f"<{self.program.kernel}>", "exec"), self.names)
        blocks = []
        for block in self.lowered.blocks:
            kinds: Counter[str] = Counter()
            for index in range(block.start, block.start + len(block.code)):
                action = self.lowered.actions[index]
                kinds[action.kind if action is not None else "control"] += 1
            blocks.append(
                CompiledBlock(
                    self.names[f"block_{block.index}"],
                    self.names.get(f"gate_{block.index}"),
                    Site(self.program.kernel, block.code[0]),
                    block.live_in,
                    block.writes,
                    kinds,
                    len(block.code),
                )
            )
        return CompiledKernel(
            self.program,
            blocks,
            self.classes,
            {index: name for name, index in self.lowered.specials.items()},
            {index: symbol for symbol, index in self.lowered.symbols.items()},
            text,
        )

    def block(self, block: flow.Block) -> list[str]:
        head = [f"    r{i} = R[{i}]" for i in _bits(block.reads)]
        body: list[str] = []
        lines: list[str] = []
        for index in range(block.start, block.start + len(block.code)):
            instruction, action = self.program.code[index], self.lowered.actions[index]
            try:
                body += self.flag_checks(index)
                if index == block.start and action is not None and action.gate is not None:
                    lines += self.gate(block.index, index, action, head)
                if index == block.start + len(block.code) - 1:
                    body += self.last(block, index, instruction, action)
                elif action is not None:
                    body += self.straight(index, instruction, action)
            except EmulatorError as error:
                raise error.at(Site(self.program.kernel, instruction).where()) from None
        return [*lines, f"def block_{block.index}(batch, group, R):", *head, *body]

    def gate(self, number: int, index: int, action: Action, head: list[str]) -> list[str]:
        name = f"G{index}"
        self.names[name] = action.gate
        sources = "".join(f", {self.read(s)}" for s in action.sources)
        guard = self.guard(self.program.code[index])
        wanted = set(self.lowered.effects[index][0])
        head = [line for line in head if int(line.split(" = ")[0].strip()[1:]) in wanted]
        return [
            f"def gate_{number}(batch, group, R):",
            *head,
            f"    return {name}(batch, group, {guard}{sources})",
        ]

    def guard(self, instruction: Instruction) -> str:
        if instruction.guard is None:
            return "None"
        return f"{'~' if instruction.negated else ''}r{instruction.guard.index}"

    def flag_checks(self, index: int) -> list[str]:
        if not self.lowered.flags:
            return []
        passed_on = self.lowered.passed_on(index)
        lines = []
        instruction = self.program.code[index]
        guard = self.guard(instruction)
        for register in dict.fromkeys(self.lowered.effects_of(index)[0]):
            if register in self.lowered.flags and register not in passed_on:
                site = f"S{index}"
                self.names[site] = Site(self.program.kernel, instruction)
                name = self.program.registers[register].name
                origins = sorted(self.lowered.origins[register] - {register})
                names = [self.program.registers[r].name for r in origins[:3]]
                when = "None" if guard.lstrip("~") == f"r{register}" else guard
                lines.append(
                    f"    check_set(batch, group, {site}, r{self.lowered.flags[register]}, {when}, "
                    f"{name!r}, {names})"
                )
        return lines

    def straight(self, index: int, instruction: Instruction, action: Action) -> list[str]:
        """An instruction inside a block."""
        guard = self.guard(instruction)
        name = f"I{index}"
        self.names[name] = action.run
        sources = ", ".join(self.read(s) for s in action.sources)
        if action.pure:
            call = f"{name}({sources})"
        else:
            call = f"{name}(batch, group, {guard}{', ' + sources if sources else ''})"
        targets = [r for r in action.results if isinstance(r.operand, Register)]
        if not targets:
            return [f"    {call}"]
        lines = []
        simple = guard == "None" and all(
            isinstance(r.operand, Sink)
            or (isinstance(r.operand, Register) and self.classes[r.operand.index] == r.cls)
            for r in action.results
        )
        if simple:
            left = ", ".join(
                f"r{r.operand.index}" if isinstance(r.operand, Register) else "_"
                for r in action.results
            )
            lines.append(f"    {left}, = {call}")
        else:
            left = ", ".join(f"t{i}" for i in range(len(action.results)))
            lines.append(f"    {left}, = {call}")
            if guard.startswith("~") or any(
                f"r{r.operand.index}" == guard
                for r in action.results
                if isinstance(r.operand, Register)
            ):
                lines.append(f"    when = {guard}")
                guard = "when"
            for i, result in enumerate(action.results):
                if isinstance(result.operand, Register):
                    register = result.operand.index
                    value = self.cast(f"t{i}", result.cls, self.classes[register], result.signed)
                    if guard != "None":
                        value = f"select({guard}, {value}, r{register})"
                    lines.append(f"    r{register} = {value}")
                elif not isinstance(result.operand, Sink):
                    raise PtxSyntaxError(
                        f"{instruction.opcode} cannot write {_words(result.operand)}"
                    )
        return lines + self.flag_updates(index, action, guard)

    def flag_updates(self, index: int, action: Action, guard: str) -> list[str]:
        """Mark what the instruction set; a result is as good as its sources."""
        flags = self.lowered.flags
        new = self.constant(True, "pred")
        if flags and self.program.code[index].parts[0] == "selp":
            a, b, known = (self.flag_of(source) for source in action.sources)
            new = f"select({self.read(action.sources[2])}, {a}, {b}) & {known}"
        elif flags:
            passed_on = dict.fromkeys(r for r in self.lowered.passed_on(index) if r in flags)
            new = " & ".join(f"r{flags[r]}" for r in passed_on) or new
        lines = []
        for result in action.results:
            if isinstance(result.operand, Register) and result.operand.index in flags:
                flag = flags[result.operand.index]
                value = new if guard == "None" else f"select({guard}, {new}, r{flag})"
                lines.append(f"    r{flag} = {value}")
        return lines

    def flag_of(self, source: Source) -> str:
        """Whether a source was set: its flag, or a constant."""
        if isinstance(source.operand, Register) and source.operand.index in self.lowered.flags:
            return f"r{self.lowered.flags[source.operand.index]}"
        return self.constant(True, "pred")

    def last(
        self, block: flow.Block, index: int, instruction: Instruction, action: Action | None
    ) -> list[str]:
        """A block's last instruction, the stores of what lives on, and where to go."""
        stores = [f"    R[{i}] = r{i}" for i in _bits(block.writes & block.live_out)]
        following = block.index + 1
        guard = self.guard(instruction)
        if action is not None and not action.parks:
            return [*self.straight(index, instruction, action), *stores, f"    return {following}"]
        if action is not None:
            name = f"I{index}"
            self.names[name] = action.run
            sources = "".join(f", {self.read(s)}" for s in action.sources)
            return [*stores, f"    return {name}(batch, group, {guard}, {following}{sources})"]
        mnemonic = instruction.parts[0]
        if mnemonic == "bra":
            taken = block.successors[0]
            if guard == "None":
                return [*stores, f"    return {taken}"]
            return [
                *stores,
                f"    return control.branch(batch, group, {guard}, {taken}, {following})",
            ]
        site = f"S{index}"
        self.names[site] = Site(self.program.kernel, instruction)
        if mnemonic == "brx":
            selector = self.read(Source(instruction.operands[0], "b32"))
            targets = block.successors[: len(flow.targets(instruction))]
            return [
                *stores,
                f"    return control.multiway(batch, group, {site}, {guard}, {selector}, "
                f"{targets}, {following})",
            ]
        if mnemonic == "trap":
            return [*stores, f"    return control.trap(batch, group, {site}, {guard}, {following})"]
        return [*stores, f"    return control.finish(batch, group, {guard}, {following})"]


def _words(operand: Any) -> str:
    """An operand of the wrong sort, for a message."""
    kinds = {Sink: "_", Several: "a list in braces", Special: "a special register"}
    kinds |= {Integer: "a number", Real: "a number", Memory: "an address in []"}
    return kinds.get(type(operand), "this operand")


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
