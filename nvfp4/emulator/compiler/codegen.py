"""A compiled kernel: one generated function for each basic block, over arrays of all lanes.

A block's function takes (batch, group, R), R being the group's registers. It keeps values in local
variables, puts those that a later block needs into R, and returns the next block's number, or what
`instructions.control` says where threads diverge.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nvfp4.emulator.compiler.lower import CONTROL, Lowered
from nvfp4.emulator.compiler.values import Shadows, Values, call, conditional, execution, guard_of
from nvfp4.emulator.errors import EmulatorError, PtxSyntaxError, UnsupportedInstruction
from nvfp4.emulator.instructions import control
from nvfp4.emulator.instructions.action import Action, Site
from nvfp4.emulator.ptx import flow
from nvfp4.emulator.ptx.syntax import Instruction, Program, Register, Sink
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array
from nvfp4.emulator.state.batch import Batch, Execution, special_register
from nvfp4.emulator.state.group import register_numbers, select
from nvfp4.emulator.work import waits_for_memory

_HEARS = re.compile(r"(?!.*shared)(atom|ld\.(.*\.)?(volatile|relaxed|acquire))\b")
"""Opcodes of statements that may tell a CTA what others have done."""


@dataclass(kw_only=True)
class CompiledBlock(flow.Block):
    """A basic block with its compiled functions."""

    run: Callable[..., Any]
    """run(batch, group, R)."""
    gate: Callable[..., Any] | None
    """The gate, with the same arguments, if threads may have to wait here."""
    site: Site
    """The first instruction."""
    end: Site
    """The last instruction."""
    kinds: Counter[str]
    """Number of instructions of each counted class."""
    meeting: int | None = None
    """The block where the two sides of its branch meet again, if each is one block at most."""


@dataclass
class CompiledKernel:
    """A kernel compiled to Python, with its blocks in the order of `flow.blocks`."""

    program: Program
    blocks: list[CompiledBlock]
    lowered: Lowered
    """The program as it was lowered, which has more registers than the program itself."""
    tracks_memory: bool
    """Whether undefined bits in shared and local memory are tracked, too."""

    def site_before(self, block: int) -> Site:
        """Return the instruction in front of a block."""
        return Site(self.program.kernel, self.program.code[self.blocks[block].start - 1])

    @cached_property
    def sizes(self) -> Array:
        """How many instructions each block has, int64[blocks]."""
        return np.array([block.kinds.total() for block in self.blocks])

    @cached_property
    def loads(self) -> Array:
        """How many statements of each block may wait for memory, int64[blocks]."""
        opcodes = ([each.opcode for each in block.code] for block in self.blocks)
        return np.array([sum(map(waits_for_memory, each)) for each in opcodes])

    @cached_property
    def cancels(self) -> bool:
        """Whether CTAs may take over the work of others that have not started."""
        return any(each.parts[0] == "clusterlaunchcontrol" for each in self.program.code)

    @cached_property
    def hears(self) -> bool:
        """Whether a statement may tell a CTA what others have done."""
        return any(_HEARS.match(each.opcode) for each in self.program.code)

    @cached_property
    def apart(self) -> flow.Apart:
        """The instructions that checks treat apart."""
        found = flow.loads_under_way, flow.loads_compared, flow.waits_not_looked_at
        return flow.Apart(*(find(self.program.code) for find in found))

    def first_values(self, batch: Batch) -> list[Array]:
        """Registers when the kernel starts: special registers, symbol addresses, else noise."""
        classes = self.lowered.classes
        noise = batch.launch.order.bytes(8 * len(classes), salt=1).reshape(-1, 8)
        values = [
            noise[i, :1] & 1 != 0 if cls == "pred" else noise[i].view(REGISTER_DTYPES[cls])[:1]
            for i, cls in enumerate(classes)
        ]
        for index in self.lowered.shadows.values():
            values[index] = np.array([-1]).astype(REGISTER_DTYPES[classes[index]])
        for name, index in self.lowered.specials.items():
            value = special_register(name, batch)
            if value is None:
                raise UnsupportedInstruction(f"the special register %{name} is not emulated")
            values[index] = value
        for symbol, index in self.lowered.symbols.items():
            if symbol.space == "shared":
                values[index] = batch.shared_windows + np.uint64(symbol.offset)
                continue
            values[index] = np.array([batch.launch.symbols[symbol.name] + symbol.offset], np.uint64)
        return values


def compile_kernel(program: Program, check: bool, memory: bool = False) -> CompiledKernel:
    """Generate and load the Python of a kernel.

    check: keep shadows of registers that may be unset, and look at them where values matter.
    memory: also track undefined bits of shared and local memory.
    Raises UnsupportedInstruction or PtxSyntaxError with the PTX line.
    """
    return _Writer(Lowered(program, check, memory), memory).load()


def _arguments(values: list[str]) -> str:
    return "".join(f", {value}" for value in values)


class _Writer:
    def __init__(self, lowered: Lowered, memory: bool) -> None:
        self.lowered = lowered
        self.memory = memory
        self.program = lowered.program
        self.values = Values(lowered)
        self.shadows = Shadows(self.values, memory)
        self.leaving: set[int] = set()
        for used in (Execution, select, control):
            self.values.named(used.__name__.rpartition(".")[2], used)

    # --- the kernel -----------------------------------------------------------------------

    def load(self) -> CompiledKernel:
        lines = [line for block in self.lowered.blocks for line in self.block(block)]
        exec(compile("\n".join(lines), f"<{self.program.kernel}>", "exec"), self.values.names)
        blocks = [self.compiled(block) for block in self.lowered.blocks]
        return CompiledKernel(self.program, blocks, self.lowered, self.memory)

    def compiled(self, block: flow.Block) -> CompiledBlock:
        actions = self.lowered.actions[block.start : block.start + len(block.code)]
        return CompiledBlock(
            **vars(block),
            run=self.values.names[f"block_{block.index}"],
            gate=self.values.names.get(f"gate_{block.index}"),
            site=self.site(block.code[0]),
            end=self.site(block.code[-1]),
            kinds=Counter(action.kind for action in actions),
            meeting=flow.meeting(block, self.lowered.blocks, self.leaving),
        )

    def site(self, instruction: Instruction) -> Site:
        return Site(self.program.kernel, instruction)

    # --- blocks ---------------------------------------------------------------------------

    def block(self, block: flow.Block) -> list[str]:
        """Generate the function of a block, after that of its gate if it has one."""
        body: list[str] = []
        gate: list[str] = []
        last = block.start + len(block.code) - 1
        for index in range(block.start, last + 1):
            instruction, action = self.program.code[index], self.lowered.actions[index]
            try:
                body += self.shadows.checks(index, instruction)
                if index == block.start and action.gate is not None:
                    gate = self.gate(block, index, action)
                if index == last:
                    body += self.last(block, index, instruction, action)
                else:
                    body += self.straight(index, instruction, action)
            except EmulatorError as error:
                raise error.at(self.site(instruction).location()) from None
        end = self.lowered.actions[last]
        leaves = block.code[-1].parts[0] == "bra" if end is CONTROL else not end.parks
        if leaves and not gate and len(block.successors) == 1:
            self.leaving.add(block.index)
        return [*gate, *_function(f"block_{block.index}", register_numbers(block.reads), body)]

    def gate(self, block: flow.Block, index: int, action: Action) -> list[str]:
        """Generate the gate of a block: its first instruction says which lanes may go on."""
        name = self.values.named(f"G{index}", action.gate)
        sources = _arguments([self.values.read(s) for s in action.sources])
        answer = f"return {name}({execution(guard_of(self.program.code[index]))}{sources})"
        wanted = self.lowered.effects[index][0]
        read = [register for register in register_numbers(block.reads) if register in wanted]
        return _function(f"gate_{block.index}", read, [answer])

    def last(
        self, block: flow.Block, index: int, instruction: Instruction, action: Action
    ) -> list[str]:
        """Generate a block's last instruction, the stores of what later blocks need, and the next
        block's number."""
        values = self.values
        following = block.successors[-1] if block.falls_through else 0
        kept = register_numbers(block.writes & block.live_out)
        keeps = [f"R[{register}] = r{register}" for register in kept]
        guard = guard_of(instruction)
        here = execution(guard)
        if action.parks:
            name = values.named(f"I{index}", action.run)
            sources = _arguments([values.read(s) for s in action.sources])
            return [*keeps, f"return {name}({here}, {following}{sources})"]
        if action is not CONTROL:
            return [*self.straight(index, instruction, action), *keeps, f"return {following}"]
        mnemonic = instruction.parts[0]
        if mnemonic == "bra":
            way = str(block.successors[0])
            if guard is not None:
                way = f"control.branch({here}, {way}, {following})"
        elif mnemonic in ("trap", "brkpt"):
            site = values.named(f"S{index}", self.site(instruction))
            way = f"control.trap({here}, {site}, {following})"
        else:
            way = f"control.finish({here}, {following})"
        return [*keeps, f"return {way}"]

    # --- instructions inside a block ------------------------------------------------------

    def straight(self, index: int, instruction: Instruction, action: Action) -> list[str]:
        """Generate the call of an instruction's function, whose results go to its registers."""
        guard = guard_of(instruction)
        name = self.values.named(f"I{index}", action.run)
        sources = [self.values.read(s) for s in action.sources]
        arguments = sources if action.pure else [execution(guard), *sources]
        run = f"{name}({', '.join(arguments)})"
        shadow = self.shadows.call(index, guard)
        if shadow is not None and not action.results:
            return [run, *self.shadows.after_store(index, action, shadow)]
        written = [r.operand for r in action.results if isinstance(r.operand, Register)]
        if not written:
            return [run]
        for result in action.results:
            if not isinstance(result.operand, (Register, Sink)):
                raise PtxSyntaxError(f"{instruction.opcode} cannot write one of its operands")
        if guard is None and shadow is None and self.fits(action):
            # Results go straight to their registers: no guard to select by, nothing to cast.
            operands = [result.operand for result in action.results]
            targets = [f"r{o.index}" if isinstance(o, Register) else "_" for o in operands]
            return [call(targets, run), *self.shadows.results(index, None, targets, found=False)]
        targets = [f"t{i}" for i in range(len(action.results))]
        statements = [call(targets, run)]
        if shadow is not None:
            statements.append(call([f"s{i}" for i in range(len(targets))], shadow))
        when = guard
        if instruction.guard and (instruction.negated or instruction.guard in written):
            # The guard is needed once a result, and a result may overwrite its register.
            statements.append(f"when = {guard}")
            when = "when"
        values = [
            self.values.cast(target, r.cls, self.lowered.classes[r.operand.index], r.signed)
            if isinstance(r.operand, Register)
            else target
            for target, r in zip(targets, action.results, strict=True)
        ]
        statements += self.shadows.results(index, when, values, shadow is not None)
        for result, value in zip(action.results, values, strict=True):
            if isinstance(result.operand, Register):
                statements.append(conditional(result.operand.index, value, when))
        return statements

    def fits(self, action: Action) -> bool:
        """Whether each result has the class of its register."""
        return all(
            self.lowered.classes[r.operand.index] == r.cls
            for r in action.results
            if isinstance(r.operand, Register)
        )


def _function(name: str, reads: Iterable[int], body: list[str]) -> list[str]:
    """Return the text of a Python function of (batch, group, R), where R holds the group's
    registers."""
    fetches = [f"r{register} = R[{register}]" for register in reads]
    return [f"def {name}(batch, group, R):", *(f"    {line}" for line in (*fetches, *body))]
