"""PTX as the emulator's parser reads it, with the place of each instruction in the text."""

from __future__ import annotations

from dataclasses import dataclass

from nvfp4.emulator.ptx.parser import ModuleParser
from nvfp4.emulator.ptx.syntax import (
    Address,
    Arguments,
    Instruction,
    Integer,
    Module,
    Name,
    Negated,
    Operand,
    Pair,
    Real,
    Sum,
    Vector,
)


@dataclass(frozen=True)
class Placed:
    """An instruction, its function, and where its text is: [start, end), guard included."""

    node: Instruction
    function: str
    start: int
    end: int


class PlacingParser(ModuleParser):
    """Notes where instructions are. found: all of the module's, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.found: list[Placed] = []

    def instruction(self) -> Instruction:
        start, node = self.now.start, super().instruction()
        self.found.append(Placed(node, self.function, start, self.tokens[self.at - 1].start + 1))
        return node


def read(text: str) -> tuple[Module, PlacingParser]:
    """The syntax tree and the parser that made it. Raises PtxSyntaxError with the line."""
    parser = PlacingParser(text)
    return parser.module(), parser


def shown(operand: Operand) -> str:
    """An operand as PTX."""
    if isinstance(operand, Name):
        return operand.text
    if isinstance(operand, Integer):
        return str(operand.value)
    if isinstance(operand, Real):
        return f"0f{operand.bits:08X}" if operand.width == 32 else f"0d{operand.bits:016X}"
    if isinstance(operand, Sum):
        return f"{operand.name}{operand.offset:+d}"
    if isinstance(operand, Address):
        base = shown(operand.base) + (f"{operand.offset:+d}" if operand.offset else "")
        coordinates = f", {shown(operand.coordinates)}" if operand.coordinates else ""
        return f"[{base}{coordinates}]"
    if isinstance(operand, Vector):
        return "{" + ", ".join(map(shown, operand.items)) + "}"
    if isinstance(operand, Pair):
        return f"{shown(operand.first)}|{shown(operand.second)}"
    if isinstance(operand, Negated):
        return f"!{operand.operand.text}"
    assert isinstance(operand, Arguments)
    return "(" + ", ".join(map(shown, operand.items)) + ")"
