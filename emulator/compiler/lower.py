"""What each instruction of a kernel reads, does and sets, before any text is generated.

Special registers, symbol addresses, the carry flag and the flags that tell whether a suspicious
register was set are extra registers behind the program's own.
"""

from __future__ import annotations

from typing import Any

import nvfp4.emulator.instructions  # noqa: F401  (fills the table of actions)
from nvfp4.emulator.arithmetic import resolve
from nvfp4.emulator.errors import EmulatorError, PtxSyntaxError
from nvfp4.emulator.instructions.action import Action, Result, Source, builder_of
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx import flow
from nvfp4.emulator.ptx.program import (
    Instruction,
    Memory,
    Not,
    OperandList,
    Program,
    Register,
    Special,
    SymbolAddress,
)
from nvfp4.emulator.state.signals import CLOCK_REGISTERS

Effects = tuple[list[int], list[int]]
_SPECIAL_CLASSES = {"gridid": "b64", "is_explicit_cluster": "pred"}


class Lowered:
    """A kernel as actions in basic blocks.

    classes: register class by index, extra registers included. actions: one for each instruction,
    None for control flow. effects: (registers read, registers set) of each instruction. flags: a
    register that may be unset when it is read -> the predicate that tells whether it is set.
    origins: such a register -> the registers that its value may come from and that some path
    leaves unset.
    """

    def __init__(self, program: Program, check: bool) -> None:
        self.program = program
        self.classes = [register.cls for register in program.registers]
        self.specials: dict[str, int] = {}
        self.symbols: dict[SymbolAddress, int] = {}
        self.flags: dict[int, int] = {}
        self.origins: dict[int, set[int]] = {}
        self._carry: int | None = None
        self.actions = [self._action(instruction) for instruction in program.code]
        first = {i for i, a in enumerate(self.actions) if a is not None and a.gate is not None}
        last = {i for i, a in enumerate(self.actions) if a is not None and a.parks}
        self.blocks = flow.blocks(program, first, last)
        self.effects = [self.effects_of(i) for i in range(len(program.code))]
        unset = flow.analyse(self.blocks, self.effects.__getitem__)
        suspicious = {r for r in unset if r < len(program.registers)}
        if check and suspicious:
            self._watch(suspicious)

    def _watch(self, suspicious: set[int]) -> None:
        """Give flags to these registers, and to those that arithmetic passes their values on to."""
        origins = {register: {register} for register in suspicious}
        passes = [(self.passed_on(i), self.effects[i][1]) for i in range(len(self.actions))]
        grows = True
        while grows:
            grows = False
            for read, written in passes:
                found = set[int]().union(*(origins.get(r, ()) for r in read))
                for register in written:
                    if not found <= origins.get(register, set()):
                        origins[register] = origins.get(register, set()) | found
                        grows = True
        self.origins = origins
        for register in sorted(origins):
            self.flags[register] = self.extra_register("pred")
        self.effects = [self._with_flags(e) for e in self.effects]
        for block in self.blocks:
            block.reads = block.writes = block.live_in = block.live_out = 0
        flow.analyse(self.blocks, self.effects.__getitem__)

    def passed_on(self, index: int) -> list[int]:
        """Registers that an instruction may read unset; its results are then unset, too.

        Compilers compute with unset values where the result will not matter. So arithmetic is
        not an error: it passes the question on to where a value does matter, which is an address,
        stored data, a branch or another thread.
        """
        action = self.actions[index]
        if action is None or not action.pure:
            return []
        return [register for s in action.sources for register in self.registers_of(s.operand)]

    def _action(self, instruction: Instruction) -> Action | None:
        """The Action of an instruction; None for control flow, which blocks end with."""
        if instruction.parts[0] in ("bra", "brx", "ret", "exit", "trap"):
            return None
        site = Site(self.program.kernel, instruction)
        builder = builder_of(instruction.parts)
        try:
            if builder is not None:
                return builder(site)
            return self._arithmetic(site)
        except EmulatorError as error:
            raise error.at(site.location()) from None

    def _arithmetic(self, site: Site) -> Action:
        operands = list(site.operands)
        destinations = 0
        if operands:
            first = operands[0]
            destinations = len(first.items) if isinstance(first, OperandList) else 1
        op = resolve(site.opcode, destinations) if destinations > 1 else resolve(site.opcode)
        results = [
            Result(operand, cls, op.signed)
            for operand, cls in zip(site.items(0), op.results, strict=False)
        ]
        rest = operands[1:]
        if len(rest) != len(op.sources) or len(results) != destinations:
            raise PtxSyntaxError(
                f"{site.opcode} takes {len(op.sources)} sources, {len(rest)} are given"
            )
        sources = [Source(o, cls) for o, cls in zip(rest, op.sources, strict=True)]
        if op.reads_carry:
            sources.append(Source(self._carry_register(), "pred"))
        if op.writes_carry:
            results.append(Result(self._carry_register(), "pred"))
        return Action(op.kind, sources, results, op.function, pure=True)

    def _carry_register(self) -> Register:
        if self._carry is None:
            self._carry = self.extra_register("pred")
        return Register(self._carry, "pred", "CC.CF")

    def extra_register(self, cls: str) -> int:
        self.classes.append(cls)
        return len(self.classes) - 1

    def effects_of(self, index: int) -> Effects:
        instruction, action = self.program.code[index], self.actions[index]
        reads: list[int] = []
        writes: list[int] = []
        if instruction.guard is not None:
            reads.append(instruction.guard.index)
        if action is None:
            if instruction.parts[0] == "brx":
                reads += self.registers_of(instruction.operands[0])
        else:
            for source in action.sources:
                reads += self.registers_of(source.operand)
            for result in action.results:
                if isinstance(result.operand, Register):
                    writes.append(result.operand.index)
        return reads, writes

    def registers_of(self, operand: Any) -> list[int]:
        """Registers that an operand reads, extra ones included."""
        if isinstance(operand, Register):
            return [operand.index]
        if isinstance(operand, Not):
            return [operand.operand.index]
        if isinstance(operand, Memory):
            return self.registers_of(operand.base)
        if isinstance(operand, Special) and operand.name not in CLOCK_REGISTERS:
            return [self.special(operand.name)]
        if isinstance(operand, SymbolAddress):
            return [self.symbol(operand)]
        return []

    def _with_flags(self, effects: Effects) -> Effects:
        reads, writes = effects
        flags = self.flags
        return (
            reads + [flags[r] for r in reads if r in flags],
            writes + [flags[r] for r in writes if r in flags],
        )

    def special(self, name: str) -> int:
        if name not in self.specials:
            self.specials[name] = self.extra_register(_SPECIAL_CLASSES.get(name, "b32"))
        return self.specials[name]

    def symbol(self, symbol: SymbolAddress) -> int:
        if symbol not in self.symbols:
            self.symbols[symbol] = self.extra_register("b64")
        return self.symbols[symbol]
