"""Machine code of a kernel with what the compiler has written into it for the scheduler.

Each instruction of 128 bits says how many cycles its warp waits before the next one, which of six
scoreboards it sets and which ones it waits for (bits 105 to 121; Jia et al., "Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking", 2018, section 2.1; the same on Hopper and Blackwell).
So neither dependences nor the latencies of simple instructions have to be guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NO_SCOREBOARD = 7

_LINE = re.compile(r'^\s*//## File "[^"]*", line (\d+)( inlined at)?')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?)\s*;\s*/\*\s*0x([0-9a-f]{16})\s*\*/")
_CONTROL = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_LABEL = re.compile(r"^(\.L_x?_?\w+):")
_TARGET = re.compile(r"`\((\.L_\w+)\)")
_GUARD = re.compile(r"^@!?U?P\w+\s+")

_LEAVES = ("BRA", "EXIT", "BRX", "JMP", "RET", "BRXU", "JMX")


@dataclass(frozen=True)
class Instruction:
    """line: of the PTX, 0 where it is not known. sets, reads: scoreboards that are released when
    the result is there and when the operands have been read. waits: a bit for each scoreboard.
    label: where a branch goes.
    """

    opcode: str
    text: str
    line: int
    stall: int
    sets: int
    reads: int
    waits: int
    guarded: bool = False
    label: str | None = None

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]


@dataclass
class Block:
    """Straight-line code, [start, end) among the instructions. branch: the block that its last
    instruction may go to; following: the one behind it, None where control never gets there.
    """

    index: int
    start: int
    end: int
    branch: int | None = None
    following: int | None = None


@dataclass
class Code:
    """instructions, and the blocks that they form. registers: of a thread."""

    instructions: list[Instruction]
    blocks: list[Block] = field(default_factory=list)
    registers: int = 0
    spilled_bytes: int = 0


def read(text: str, entry: str) -> Code:
    """The code of a kernel in what `nvdisasm -g -c -hex` prints."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    inside, number, fresh = False, 0, True
    pending: tuple[str, int] | None = None
    for line in text.split("\n"):
        if line.startswith("\t.section"):
            inside = f".text.{entry}," in line or f'.text.{entry}"' in line
        if not inside:
            continue
        if place := _LINE.match(line):
            number = int(place[1]) if fresh else number
            fresh = False
        elif label := _LABEL.match(line):
            labels[label[1]] = len(found)
        elif instruction := _INSTRUCTION.match(line):
            pending, fresh = (instruction[2], number), True
        elif pending and (control := _CONTROL.match(line)):
            found.append(_decoded(*pending, int(control[1], 16)))
            pending = None
    return Code(found, _blocks(found, labels))


def _decoded(text: str, line: int, high: int) -> Instruction:
    bare = _GUARD.sub("", text)
    target = _TARGET.search(text)
    return Instruction(
        opcode=bare.split(None, 1)[0],
        text=text,
        line=line,
        stall=high >> 41 & 15,
        sets=high >> 46 & 7,
        reads=high >> 49 & 7,
        waits=high >> 52 & 63,
        guarded=bare != text,
        label=target[1] if target else None,
    )


def _blocks(code: list[Instruction], labels: dict[str, int]) -> list[Block]:
    leaders = {0, *(labels[each.label] for each in code if each.label in labels)}
    leaders |= {i + 1 for i, each in enumerate(code) if each.name in _LEAVES}
    starts = sorted(start for start in leaders if start < len(code))
    number = {start: index for index, start in enumerate(starts)}
    found = [
        Block(index, start, end)
        for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(code)], strict=True))
    ]
    for block in found:
        last = code[block.end - 1]
        goes_on = block.index + 1 if block.index + 1 < len(found) else None
        if last.name not in _LEAVES:
            block.following = goes_on
            continue
        if last.label in labels and ".DIV" not in last.opcode:
            block.branch = number.get(labels[last.label])
        conditional = last.guarded or "UP" in last.text.split("`")[0] or ".DIV" in last.opcode
        block.following = goes_on if conditional else None
    return found
