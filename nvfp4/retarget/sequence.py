"""The PTX that replaces one instruction."""

from collections.abc import Callable

from nvfp4.emulator.ptx import syntax
from nvfp4.emulator.ptx.types import is_type
from nvfp4.retarget.targets import Target

Text = str | int


class Sequence:
    """Instructions in a separate scope, with registers of their own.

    Instructions that only compute are not guarded; those that set a register of the kernel or
    access memory have the guard of the instruction that they replace.
    """

    def __init__(self, node: syntax.Instruction, prefix: str) -> None:
        """Create an empty sequence that replaces `node`.

        prefix: of the registers' names; no name of the module starts with it.
        """
        self.node = node
        self.parts, self.operands = node.parts, node.operands
        self.types = [part for part in self.parts if is_type(part)]
        self.lines: list[str] = []
        self._prefix = prefix
        self._registers: list[tuple[str, str]] = []
        self._guard = f"@{'!' * node.negated}{shown(node.guard)} " if node.guard else ""

    def has(self, *modifiers: str) -> bool:
        """Whether the opcode has one of the modifiers."""
        return not set(modifiers).isdisjoint(self.parts)

    def without(self, *modifiers: str) -> str:
        """Return the opcode without these modifiers."""
        return ".".join(part for part in self.parts if part not in modifiers)

    def operand(self, index: int) -> str:
        """Return an operand as PTX."""
        return shown(self.operands[index])

    def items(self, index: int) -> list[str]:
        """Return the elements of a list, or the operand alone."""
        operand = self.operands[index]
        items = operand.items if isinstance(operand, syntax.OperandList) else (operand,)
        return [shown(item) for item in items]

    def address(self, index: int) -> syntax.Memory:
        """Return an operand in brackets."""
        operand = self.operands[index]
        assert isinstance(operand, syntax.Memory), self.node.text
        return operand

    def register(self, kind: str = "b32") -> str:
        """Return a fresh register."""
        name = f"{self._prefix}{len(self._registers)}"
        self._registers.append((name, kind))
        return name

    def value(self, opcode: Text, *sources: Text, kind: str = "b32") -> str:
        """Emit an instruction, and return the fresh register with its result."""
        name = self.register(kind)
        self.compute(opcode, name, *sources)
        return name

    def held(self, index: int, kind: str = "b32") -> str:
        """Return a register that holds a source: its own, or a new one for a literal."""
        operand = self.operands[index]
        if isinstance(operand, syntax.Name):
            return operand.text
        return self.value(f"mov.{kind}", shown(operand), kind=kind)

    def halves(self, index: int, kind: str) -> tuple[str, str]:
        """Return the low and the high half of a source, each in a register of `kind`."""
        wide = f"b{2 * int(kind[1:])}"
        source = self.held(index, wide)
        low, high = self.register(kind), self.register(kind)
        self.compute(f"mov.{wide}", f"{{{low}, {high}}}", source)
        return low, high

    def compute(self, opcode: Text, *operands: Text) -> None:
        """Emit an instruction that sets fresh registers only."""
        self.lines.append(_line(opcode, operands))

    def perform(self, opcode: Text, *operands: Text) -> bool:
        """Emit an instruction that sets registers of the kernel, or touches memory. Return True,
        as a rule does that has replaced the instruction."""
        self.lines.append(self._guard + _line(opcode, operands))
        return True

    def text(self) -> str:
        """Return the sequence as PTX that replaces the instruction."""
        if not self.lines:
            return f"/* dropped: {self.node.text} */"
        if len(self.lines) == 1 and not self._registers:
            return self.lines[0]
        kinds: dict[str, list[str]] = {}
        for name, kind in self._registers:
            kinds.setdefault(kind, []).append(name)
        declared = [f".reg .{kind} {', '.join(names)};" for kind, names in kinds.items()]
        body = "".join(f"\t{line}\n" for line in [*declared, *self.lines])
        return f"{{ // in place of {self.node.text}\n{body}\t}}"


def _line(opcode: Text, operands: tuple[Text, ...]) -> str:
    return f"{opcode} {', '.join(map(_literal, operands))};"


def _literal(operand: Text) -> str:
    return f"{operand:#x}" if not isinstance(operand, str) and operand >= 0 else str(operand)


def shown(operand: syntax.Operand) -> str:
    """Return an operand as PTX."""
    if isinstance(operand, syntax.Name):
        return operand.text
    if isinstance(operand, syntax.Integer):
        return str(operand.value)
    if isinstance(operand, syntax.Real):
        return f"0f{operand.bits:08X}" if operand.width == 32 else f"0d{operand.bits:016X}"
    if isinstance(operand, syntax.Sum):
        return f"{operand.name}+{operand.offset}"
    if isinstance(operand, syntax.Memory):
        base = shown(operand.base) + (f"+{operand.offset}" if operand.offset else "")
        if operand.coordinates:
            return f"[{base}, {shown(syntax.OperandList(operand.coordinates))}]"
        return f"[{base}]"
    if isinstance(operand, syntax.Not):
        return f"!{shown(operand.operand)}"
    assert isinstance(operand, syntax.OperandList), operand
    items = list(map(shown, operand.items))
    if operand.marks == "|":
        return "|".join(items)
    return f"{operand.marks[0]}{', '.join(items)}{operand.marks[1]}"


Rule = Callable[[Sequence, Target], bool]
RULES: dict[str, list[Rule]] = {}


class Impossible(Exception):
    """The instruction has no replacement; the argument is the reason."""


def rule(*mnemonics: str) -> Callable[[Rule], Rule]:
    """Register a rule for `mnemonics`.

    A rule looks at one instruction. If the target lacks it, the rule fills the sequence and returns
    True, or raises Impossible if nothing does the same. It returns False if the instruction may
    stay or is not the rule's. The first rule that returns True counts.
    """

    def register(function: Rule) -> Rule:
        for mnemonic in mnemonics:
            RULES.setdefault(mnemonic, []).append(function)
        return function

    return register
