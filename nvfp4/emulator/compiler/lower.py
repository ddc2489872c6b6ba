"""The operands, action and results of each instruction of a kernel, before code is generated.

Special registers, symbol addresses and the shadows of registers that may hold
undefined bits (see arithmetic.definedness) are extra registers behind the program's own.
"""

from typing import Any

import nvfp4.emulator.instructions  # noqa: F401  (fills the table of actions)
from nvfp4.emulator.arithmetic import definedness, resolve
from nvfp4.emulator.arithmetic.table import INTEGERS, UNTYPED
from nvfp4.emulator.errors import EmulatorError, PtxSyntaxError
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, builder_of
from nvfp4.emulator.instructions.undefined import Passage
from nvfp4.emulator.ptx import flow, syntax
from nvfp4.emulator.state.batch import CLOCK_REGISTERS

Effects = tuple[list[int], list[int]]
_SPECIAL_CLASSES = {"gridid": "b64", "is_explicit_cluster": "pred"}


def passes_on(action: Action, source: Source) -> bool:
    """Return whether a source may be undefined and has a shadow that the action's `shadow` uses."""
    return action.shadow is not None and not isinstance(source.operand, syntax.Memory)


CONTROL = Action("control", [], [], lambda *_: None)
"""Stands for control flow, which blocks end with and which is compiled by itself."""


class Lowered:
    """A kernel as actions in basic blocks.

    classes: register class by index, extra registers included. actions: one for each instruction,
    CONTROL for control flow. effects: (registers read, registers set) of each instruction. shadows:
    a register that may hold undefined bits -> its shadow. unset: those that some path reads before
    anything sets them.
    """

    def __init__(self, program: syntax.Program, check: bool, memory: bool) -> None:
        """check: watch registers that may be unset. memory: also track undefined bits of loads."""
        self.program = program
        self.classes = [register.cls for register in program.registers]
        self.specials: dict[str, int] = {}
        self.symbols: dict[syntax.SymbolAddress, int] = {}
        self.shadows: dict[int, int] = {}
        self.unset: set[int] = set()
        self.actions = [self._action(instruction) for instruction in program.code]
        first = {i for i, a in enumerate(self.actions) if a.gate is not None}
        last = {i for i, a in enumerate(self.actions) if a.parks or syntax.tells(program.code[i])}
        self.blocks = flow.blocks(program, first, last)
        self.effects = [self.effects_of(i) for i in range(len(program.code))]
        unset = flow.analyse(self.blocks, self.effects.__getitem__)
        if check:
            self.unset = {r for r in unset if r < len(program.registers)}
        unsure = set(self.unset)
        if memory:
            for action, (_, written) in zip(self.actions, self.effects, strict=True):
                if action.loads:
                    unsure.update(written)
        if unsure:
            self._watch(unsure)

    def _watch(self, unsure: set[int]) -> None:
        """Give shadows to these registers, and to those that receive their values."""
        passes = [(self.passed_on(i), self.effects[i][1]) for i in range(len(self.actions))]
        grows = True
        while grows:
            before = len(unsure)
            for read, written in passes:
                if not unsure.isdisjoint(read):
                    unsure.update(written)
            grows = len(unsure) > before
        for register in sorted(unsure):
            self.shadows[register] = self.extra_register(self.classes[register])
        self.effects = [self._with_shadows(e) for e in self.effects]
        for block in self.blocks:
            block.reads = block.writes = block.live_in = block.live_out = 0
        flow.analyse(self.blocks, self.effects.__getitem__)

    def passed_on(self, index: int) -> list[int]:
        """Registers whose undefined bits an instruction passes on to its results.

        Compilers compute with undefined values where the result will not matter. So arithmetic is
        no misuse, nor is a copy to another thread or to shared memory: they pass the question on to
        where a value does matter, which is an address, data of other threads, a branch.
        """
        action, guard = self.actions[index], self.program.code[index].guard
        passed = [source.operand for source in self.passed_sources(index)]
        if action.pure and guard is not None:
            passed.append(guard)
        return [register for operand in passed for register in self.registers_of(operand)]

    def passed_sources(self, index: int) -> list[Source]:
        """The sources whose shadows an instruction passes on."""
        action, parts = self.actions[index], self.program.code[index].parts
        if not action.pure:
            return [source for source in action.sources if passes_on(action, source)]
        operands = [source.operand for source in action.sources]
        cancels = parts[0] in ("xor", "sub") and parts[-1] in (*UNTYPED, *INTEGERS, "pred")
        return [] if cancels and operands[0] == operands[1] else list(action.sources)

    def _action(self, instruction: syntax.Instruction) -> Action:
        if instruction.parts[0] in flow.ENDS:
            return CONTROL
        site = Site(self.program.kernel, instruction)
        builder = builder_of(instruction.parts)
        try:
            action = self._arithmetic(site) if builder is None else builder(site)
            # An address that is read as a value would have eight bytes instead of four.
            memory = {id(each) for each in site.operands if isinstance(each, syntax.Memory)}
            values = memory - site.addresses
            if any(id(source.operand) in values for source in action.sources):
                raise PtxSyntaxError(f"{site.opcode} takes a value where an address in [] stands")
            return action
        except EmulatorError as error:
            raise error.at(site.location()) from None

    def _arithmetic(self, site: Site) -> Action:
        operands = list(site.operands)
        destinations = 0
        if operands:
            first = operands[0]
            destinations = len(first.items) if isinstance(first, syntax.OperandList) else 1
        # Most instructions have one count of each: one entry of the cache then serves all.
        counts = max(destinations, 1), max(len(operands) - 1, 0)
        op = resolve(site.opcode, *counts) if counts != (1, 2) else resolve(site.opcode)
        pairs = zip(site.items(0), op.results, strict=False)
        results = [Result(operand, cls, op.signed) for operand, cls in pairs]
        rest = operands[1:]
        if len(rest) != len(op.sources) or len(results) != destinations:
            message = f"{site.opcode} takes {len(op.sources)} sources, {len(rest)} are given"
            raise PtxSyntaxError(message)
        sources = [Source(o, cls) for o, cls in zip(rest, op.sources, strict=True)]
        rule = definedness.rule_of(op)
        return Action(op.kind, sources, results, op.function, pure=True, rule=rule)

    def passages(self) -> dict[int, list[Passage]]:
        """For each register with a shadow, the instructions that may give it undefined bits."""
        found: dict[int, list[Passage]] = {}
        for i, action in enumerate(self.actions):
            line = self.program.code[i].line if action.loads else None
            passage = Passage(i, tuple(self.passed_on(i)), line)
            for register in self.effects[i][1]:
                if register in self.shadows:
                    found.setdefault(register, []).append(passage)
        return found

    def extra_register(self, cls: str) -> int:
        self.classes.append(cls)
        return len(self.classes) - 1

    def effects_of(self, index: int) -> Effects:
        instruction, action = self.program.code[index], self.actions[index]
        reads = self.registers_of(instruction.guard)
        for source in action.sources:
            reads += self.registers_of(source.operand)
        written = (result.operand for result in action.results)
        return reads, [each.index for each in written if isinstance(each, syntax.Register)]

    def registers_of(self, operand: Any) -> list[int]:
        """Registers that an operand reads, extra ones included."""
        if isinstance(operand, syntax.Register):
            return [operand.index]
        if isinstance(operand, syntax.Not):
            return self.registers_of(operand.operand)
        if isinstance(operand, syntax.Memory):
            return self.registers_of(operand.base)
        if isinstance(operand, syntax.Special) and operand.name not in CLOCK_REGISTERS:
            return [self.special(operand.name)]
        return [self.symbol(operand)] if isinstance(operand, syntax.SymbolAddress) else []

    def _with_shadows(self, effects: Effects) -> Effects:
        reads, writes = effects
        shadows = self.shadows
        return (
            reads + [shadows[r] for r in reads if r in shadows],
            writes + [shadows[r] for r in writes if r in shadows],
        )

    def special(self, name: str) -> int:
        if name not in self.specials:
            self.specials[name] = self.extra_register(_SPECIAL_CLASSES.get(name, "b32"))
        return self.specials[name]

    def symbol(self, symbol: syntax.SymbolAddress) -> int:
        if symbol not in self.symbols:
            self.symbols[symbol] = self.extra_register("b64")
        return self.symbols[symbol]
