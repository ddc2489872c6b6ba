"""A kernel as Python: one generated function for each basic block, over arrays of all lanes.

A block's function takes (batch, group, R), R being the group's registers. It keeps values in local
variables, puts those that a later block needs into R, and returns the next block's number, or what
`instructions.control` says where threads diverge.
"""

from __future__ import annotations

from collections import Counter

from nvfp4.emulator.compiler.kernel import CompiledBlock, CompiledKernel
from nvfp4.emulator.compiler.lower import Lowered
from nvfp4.emulator.compiler.statements import (
    Call,
    Fetch,
    Function,
    Guard,
    Keep,
    Return,
    Set,
    Statement,
    render,
)
from nvfp4.emulator.compiler.values import Values, in_words
from nvfp4.emulator.errors import EmulatorError, PtxSyntaxError
from nvfp4.emulator.instructions import control
from nvfp4.emulator.instructions.action import Action, Source
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx import flow
from nvfp4.emulator.ptx.program import Instruction, Program, Register, Sink
from nvfp4.emulator.state.execution import Execution
from nvfp4.emulator.state.registers import register_numbers, select


def compile_kernel(program: Program, check: bool) -> CompiledKernel:
    """Generate and load the Python of a kernel.

    Raises UnsupportedInstruction or PtxSyntaxError with the PTX line.
    """
    return _Writer(Lowered(program, check)).load()


def _guard(instruction: Instruction) -> Guard | None:
    if instruction.guard is None:
        return None
    return Guard(instruction.guard.index, instruction.negated)


def _execution(guard: Guard | None) -> str:
    return f"Execution(batch, group, {guard})"


def _arguments(values: list[str]) -> str:
    return "".join(f", {value}" for value in values)


class _Writer:
    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.program = lowered.program
        self.values = Values(lowered)
        for used in (Execution, select, control):
            self.values.named(used.__name__.rpartition(".")[2], used)

    # --- the kernel -----------------------------------------------------------------------

    def load(self) -> CompiledKernel:
        functions: list[Function] = []
        for block in self.lowered.blocks:
            try:
                functions += self.block(block)
            except EmulatorError as error:
                raise error.at(self.site(block.code[0]).location()) from None
        text = render(functions)
        names = self.values.names
        exec(compile(text, f"<{self.program.kernel}>", "exec"), names)
        return CompiledKernel(
            self.program,
            [self.compiled(block) for block in self.lowered.blocks],
            self.lowered.classes,
            {index: name for name, index in self.lowered.specials.items()},
            {index: symbol for symbol, index in self.lowered.symbols.items()},
            frozenset(self.lowered.flags.values()),
            text,
        )

    def compiled(self, block: flow.Block) -> CompiledBlock:
        actions = self.lowered.actions[block.start : block.start + len(block.code)]
        return CompiledBlock(
            self.values.names[f"block_{block.index}"],
            self.values.names.get(f"gate_{block.index}"),
            self.site(block.code[0]),
            block.live_in,
            block.live_out,
            block.writes,
            Counter("control" if action is None else action.kind for action in actions),
        )

    def site(self, instruction: Instruction) -> Site:
        return Site(self.program.kernel, instruction)

    # --- blocks ---------------------------------------------------------------------------

    def block(self, block: flow.Block) -> list[Function]:
        """The function of a block, after that of its gate if it has one."""
        head = [Fetch(register) for register in register_numbers(block.reads)]
        body: list[Statement] = []
        functions: list[Function] = []
        last = block.start + len(block.code) - 1
        for index in range(block.start, last + 1):
            instruction, action = self.program.code[index], self.lowered.actions[index]
            try:
                body += self.flag_checks(index, instruction)
                if index == block.start and action is not None and action.gate is not None:
                    functions.append(self.gate(block.index, index, action, head))
                if index == last:
                    body += self.last(block, index, instruction, action)
                elif action is not None:
                    body += self.straight(index, instruction, action)
            except EmulatorError as error:
                raise error.at(self.site(instruction).location()) from None
        return [*functions, Function(f"block_{block.index}", [*head, *body])]

    def gate(self, number: int, index: int, action: Action, head: list[Fetch]) -> Function:
        """Ask the block's first instruction which lanes may go on."""
        name = self.values.named(f"G{index}", action.gate)
        sources = _arguments([self.values.read(s) for s in action.sources])
        answer = Return(f"{name}({_execution(_guard(self.program.code[index]))}{sources})")
        wanted = self.lowered.effects[index][0]
        return Function(f"gate_{number}", [*(f for f in head if f.register in wanted), answer])

    def last(
        self, block: flow.Block, index: int, instruction: Instruction, action: Action | None
    ) -> list[Statement]:
        """A block's last instruction, what later blocks need, and where to go."""
        values = self.values
        following = block.index + 1
        keeps = [Keep(register) for register in register_numbers(block.writes & block.live_out)]
        guard = _guard(instruction)
        execution = _execution(guard)
        if action is not None and not action.parks:
            return [*self.straight(index, instruction, action), *keeps, Return(str(following))]
        if action is not None:
            name = values.named(f"I{index}", action.run)
            sources = _arguments([values.read(s) for s in action.sources])
            return [*keeps, Return(f"{name}({execution}, {following}{sources})")]
        mnemonic = instruction.parts[0]
        site = values.named(f"S{index}", self.site(instruction))
        if mnemonic == "bra":
            way = str(block.successors[0])
            if guard is not None:
                way = f"control.branch({execution}, {way}, {following})"
        elif mnemonic == "brx":
            selector = values.read(Source(instruction.operands[0], "b32"))
            targets = block.successors[: len(flow.targets(instruction))]
            way = f"control.multiway({execution}, {site}, {selector}, {targets}, {following})"
        elif mnemonic == "trap":
            way = f"control.trap({execution}, {site}, {following})"
        else:
            way = f"control.finish({execution}, {following})"
        return [*keeps, Return(way)]

    # --- instructions inside a block ------------------------------------------------------

    def straight(self, index: int, instruction: Instruction, action: Action) -> list[Statement]:
        """Call the instruction's function and set its registers."""
        guard = _guard(instruction)
        name = self.values.named(f"I{index}", action.run)
        sources = [self.values.read(s) for s in action.sources]
        arguments = sources if action.pure else [_execution(guard), *sources]
        call = f"{name}({', '.join(arguments)})"
        written = [r.operand for r in action.results if isinstance(r.operand, Register)]
        if not written:
            return [Call(call)]
        for result in action.results:
            if not isinstance(result.operand, (Register, Sink)):
                raise PtxSyntaxError(
                    f"{instruction.opcode} cannot write {in_words(result.operand)}"
                )
        if guard is None and self.fits(action):
            # Results go straight to their registers: no guard to select by, nothing to cast.
            targets = [
                f"r{r.operand.index}" if isinstance(r.operand, Register) else "_"
                for r in action.results
            ]
            return [Call(call, targets), *self.flag_updates(index, action, None)]
        targets = [f"t{i}" for i in range(len(action.results))]
        statements: list[Statement] = [Call(call, targets)]
        when = None if guard is None else str(guard)
        if guard is not None and (guard.negated or guard.register in {r.index for r in written}):
            # The guard is needed once a result, and a result may overwrite its register.
            statements.append(Set("when", str(guard)))
            when = "when"
        for target, result in zip(targets, action.results, strict=True):
            if isinstance(result.operand, Register):
                register = result.operand.index
                have, want = result.cls, self.lowered.classes[register]
                value = self.values.cast(target, have, want, result.signed)
                statements.append(_conditional(register, value, when))
        return [*statements, *self.flag_updates(index, action, when)]

    def fits(self, action: Action) -> bool:
        """Whether each result has the class of its register."""
        return all(
            self.lowered.classes[r.operand.index] == r.cls
            for r in action.results
            if isinstance(r.operand, Register)
        )

    # --- registers that may be unset ------------------------------------------------------

    def flag_checks(self, index: int, instruction: Instruction) -> list[Statement]:
        """Refuse unset registers where their values matter."""
        lowered = self.lowered
        if not lowered.flags:
            return []
        passed_on = lowered.passed_on(index)
        statements: list[Statement] = []
        for register in dict.fromkeys(lowered.effects_of(index)[0]):
            if register not in lowered.flags or register in passed_on:
                continue
            site = self.values.named(f"S{index}", self.site(instruction))
            guard = _guard(instruction)
            if guard is not None and guard.register == register:
                # The guard itself is read by all lanes.
                guard = None
            name = self.program.registers[register].name
            origins = sorted(lowered.origins[register] - {register})
            names = [self.program.registers[r].name for r in origins[:3]]
            flag = f"r{lowered.flags[register]}"
            statements.append(
                Call(f"control.check_set({_execution(guard)}, {site}, {flag}, {name!r}, {names})")
            )
        return statements

    def flag_updates(self, index: int, action: Action, when: str | None) -> list[Statement]:
        """Mark what the instruction set; a result is as good as its sources."""
        flags = self.lowered.flags
        if not flags:
            return []
        if self.program.code[index].parts[0] == "selp":
            a, b, known = (self.flag_of(source) for source in action.sources)
            new = f"select({self.values.read(action.sources[2])}, {a}, {b}) & {known}"
        else:
            passed_on = dict.fromkeys(r for r in self.lowered.passed_on(index) if r in flags)
            new = " & ".join(f"r{flags[r]}" for r in passed_on)
        new = new or self.values.constant(True, "pred")
        return [
            _conditional(flags[r.operand.index], new, when)
            for r in action.results
            if isinstance(r.operand, Register) and r.operand.index in flags
        ]

    def flag_of(self, source: Source) -> str:
        """Whether a source was set: its flag, or a constant."""
        if isinstance(source.operand, Register) and source.operand.index in self.lowered.flags:
            return f"r{self.lowered.flags[source.operand.index]}"
        return self.values.constant(True, "pred")


def _conditional(register: int, value: str, when: str | None) -> Set:
    """Set a register, or only those lanes of it where `when` holds."""
    if when is not None:
        value = f"select({when}, {value}, r{register})"
    return Set(f"r{register}", value)
