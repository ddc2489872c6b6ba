"""The statements of a compiled kernel that keep shadows, and look at them where values matter."""

from nvfp4.emulator.arithmetic import definedness
from nvfp4.emulator.compiler.lower import passes_on
from nvfp4.emulator.compiler.values import Values, call, conditional, execution, guard_of
from nvfp4.emulator.instructions import undefined
from nvfp4.emulator.instructions.action import Action, Result, Site, Source
from nvfp4.emulator.ptx.program import Instruction, Memory, Not, Operand, Register


class Shadows:
    """Writes them for one kernel. memory: whether that of shared and local memory is tracked."""

    def __init__(self, values: Values, memory: bool) -> None:
        self.values = values
        self.lowered = values.lowered
        self.memory = memory
        values.named("merge", undefined.merge)
        values.named("passing", undefined.passing)
        self.origins = undefined.Origins(
            self.lowered.passages(), self.lowered.unset_names(), self.lowered.program.code
        )

    def call(self, index: int, guard: str | None) -> str | None:
        """A call for the shadows of an instruction's results; None if they are all defined."""
        action = self.lowered.actions[index]
        if action is None:
            return None
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
        assert action is not None
        shadows, statements = self.lowered.shadows, list[str]()
        guard = self.lowered.program.code[index].guard
        unsure = None
        if action.pure and guard is not None and guard.index in shadows:
            unsure = "unsure"
            statements.append(f"{unsure} = r{shadows[guard.index]}")
        for i, (result, value) in enumerate(zip(action.results, values, strict=True)):
            register = self._register(result.operand)
            if register not in shadows:
                continue
            new = self._new_shadow(result, register, f"s{i}" if found else None)
            if unsure is not None:
                old = f"r{register}, {new}, r{shadows[register]}"
                new = f"merge(batch, {index}, {unsure}, {when}, {value}, {old})"
                statements.append(f"r{shadows[register]} = {new}")
            else:
                statements.append(conditional(shadows[register], new, when))
        return statements

    def _new_shadow(self, result: Result, register: int, found: str | None) -> str:
        cls = self.lowered.classes[register]
        if found is None:
            return self.values.constant(0, cls)
        return self.values.cast(found, result.cls, cls, result.signed)

    # --- where values matter --------------------------------------------------------------

    def checks(self, index: int, instruction: Instruction) -> list[str]:
        """Note undefined bits in what an instruction needs defined."""
        action = self.lowered.actions[index]
        if not self.lowered.shadows or (action is not None and action.pure):
            return []
        opcode, here = instruction.opcode, execution(guard_of(instruction))
        found: list[str] = []
        if instruction.guard is not None:
            source = Source(instruction.guard, "pred")
            what = "the condition of a branch" if opcode == "bra" else f"the guard of {opcode}"
            found += self._check(index, source, f"used as {what}", execution(None))
        if action is None:
            if instruction.parts[0] == "brx":
                source = Source(instruction.operands[0], "b32")
                found += self._check(index, source, "used as a branch's index", here)
            return found
        for source in action.sources:
            if isinstance(source.operand, Memory):
                if isinstance(source.operand.base, Register):
                    base = Source(source.operand.base, source.operand.base.cls)
                    found += self._check(index, base, "used as an address", here)
            elif not passes_on(action, source):
                what = "stored to global memory" if action.kind == "store" else f"used by {opcode}"
                found += self._check(index, source, what, here)
        return found

    def after_store(self, index: int, action: Action, stored: str) -> list[str]:
        """Keep the shadows of what has been stored, and check what has left the thread."""
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

    def _register(self, operand: Operand) -> int:
        """The register that an operand is, or -1."""
        if isinstance(operand, Not):
            operand = operand.operand
        return operand.index if isinstance(operand, Register) else -1


def _tuple(values: list[str]) -> str:
    return f"({''.join(value + ', ' for value in values)})"
