"""Machine code of a kernel with what the compiler has written into it for the scheduler.

Each instruction of 128 bits says how many cycles its warp waits before the next one, which of six
scoreboards it sets and which ones it waits for (bits 105 to 121; Jia et al., "Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking", 2018, section 2.1; the same on Hopper and Blackwell).
So neither dependences nor the latencies of simple instructions have to be guessed.
"""

import re
from dataclasses import field
from itertools import pairwise

from nvfp4.records.base import Record

NO_SCOREBOARD = 7

_LINE = re.compile(r'^\s*//## File "[^"]*", line (\d+)( inlined at)?')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?)\s*;\s*/\*\s*0x([0-9a-f]{16})\s*\*/")
_CONTROL = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_LABEL = re.compile(r"^(\.L_\w+|\$\S+):$")
_TARGET = re.compile(r"`\(([^)]+)\)")
_TABLE = re.compile(r'BRANCH_TARGETS ([^"]+)"')
_GUARD = re.compile(r"^@!?U?P\w+\s+")
_NEVER = ("@!PT ", "@!UPT ")
_CONDITION = re.compile(r"^\S+\s+!?U?P\d")

_INDIRECT = ("BRX", "JMX", "BRXU")
_ENDS = ("BRA", "EXIT", "JMP", "RET", "CALL", *_INDIRECT)


class Instruction(Record):
    """One instruction."""

    opcode: str
    text: str
    statement: int
    """Position in the PTX text of the statement that it was compiled from; 0 if unknown."""
    stall: int
    sets: int
    """Scoreboard that is released when the result is available."""
    reads: int
    """Scoreboard that is released when the operands have been read."""
    waits: int
    """Scoreboards to wait for, a bit for each."""
    guarded: bool = False
    """Whether a predicate decides if it is executed, or where it branches."""
    label: str | None = None
    """The target of a branch."""
    table: tuple[str, ...] = ()
    """The targets of an indirect branch, where nvdisasm tells."""

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]


class Block(Record, frozen=False):
    """Straight-line code: the instructions [start, end)."""

    index: int
    start: int
    end: int
    branches: tuple[int, ...] = ()
    """Blocks that its last instruction may branch to."""
    following: int | None = None
    """The next block; None if control never continues there."""
    calls: int | None = None
    """First block of the function that its last instruction calls."""
    unknown_call: bool = False
    """Whether it calls a function that is not in this code."""
    returns: bool = False
    """Whether it may return."""
    exits: bool = False
    """Whether it may exit."""
    diverging: bool = False
    """Whether its branch is taken only by warps whose threads have diverged."""

    @property
    def numbers(self) -> range:
        """The numbers of its instructions."""
        return range(self.start, self.end)


class Code(Record, frozen=False):
    """The machine code of a kernel: its instructions, and the blocks that they form."""

    instructions: list[Instruction]
    blocks: list[Block] = field(default_factory=list)
    registers: int = 0
    """Registers of a thread."""
    spilled_bytes: int = 0
    stack_bytes: int = 0
    """Stack of a thread."""
    meeting: dict[int, int] = field(default_factory=dict)
    """By each BSSY, the instruction before which threads of a warp that part behind it meet."""


def read(text: str, entry: str) -> Code:
    """The code of a kernel in what `nvdisasm -g -c -hex` prints of PTX in which `.loc` gives the
    position of each statement."""
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
    meeting = {
        n: labels[i.label] for n, i in enumerate(found) if i.name == "BSSY" and i.label in labels
    }
    return Code(found, _blocks(found, labels), meeting=meeting)


def _decoded(text: str, statement: int, high: int) -> Instruction:
    bare = _GUARD.sub("", text)
    target, table = _TARGET.search(text), _TABLE.search(text)
    return Instruction(
        # ptxas puts loads that are never executed before LDGSTS: they are issued, and that is all.
        opcode="NOP" if text.startswith(_NEVER) else bare.split(None, 1)[0],
        text=text,
        statement=statement,
        stall=high >> 41 & 15,
        sets=high >> 46 & 7,
        reads=high >> 49 & 7,
        waits=high >> 52 & 63,
        guarded=bare != text or bool(_CONDITION.match(bare) and bare.startswith("BRA")),
        label=target[1] if target else None,
        table=tuple(table[1].split(",")) if table else (),
    )


def _blocks(code: list[Instruction], labels: dict[str, int]) -> list[Block]:
    leaders = {0, *labels.values()}
    leaders |= {i + 1 for i, each in enumerate(code) if each.name in _ENDS}
    starts = sorted(start for start in leaders if start < len(code))
    number = {start: index for index, start in enumerate(starts)}
    direct = {each.label for each in code if each.label is not None}
    # An indirect branch without a table goes to labels that nothing else leads to.
    free = {at for name, at in labels.items() if name not in direct and at in number}
    indirect = tuple(sorted(number[at] for at in free))
    found = [Block(index, *ends) for index, ends in enumerate(pairwise([*starts, len(code)]))]
    scans = {each.statement for each in code if each.opcode == "SHFL.UP"}
    for block in found:
        last = code[block.end - 1]
        target = number.get(labels.get(last.label or "", -1))
        block.diverging = ".DIV" in last.opcode
        goes_on = last.name not in _ENDS or last.guarded or last.name == "CALL"
        if (goes_on or block.diverging) and block.index + 1 < len(found):
            block.following = block.index + 1
        if last.name == "CALL":
            block.calls, block.unknown_call = target, target is None
        elif last.name == "RET":
            block.returns = True
        elif last.name == "EXIT":
            block.exits = True
        elif last.name in _INDIRECT:
            told = {number[labels[name]] for name in last.table if name in labels}
            block.branches = tuple(sorted(told)) or indirect
        elif last.name in _ENDS and target is not None:
            skipped = code[block.end : starts[target]] if last.statement in scans else []
            # Where a whole warp comes to an atomic, its lanes add theirs up in a scan.
            scan = {each.statement for each in skipped if each.opcode == "SHFL.UP"}
            block.branches = () if last.opcode == "BRA" and last.statement in scan else (target,)
    return found
