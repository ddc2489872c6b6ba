"""Where lanes of a warp that have parted meet again in machine code."""

import re
from collections import defaultdict
from itertools import chain

from nvfp4.emulator.work import ANYWHERE
from nvfp4.model.graph import reachable
from nvfp4.model.paths import COMPILERS_OWN
from nvfp4.model.sass import Block, Code

_OF_WHOLE_WARPS = re.compile(r"bar\.|barrier\.[\w.]*\.aligned\b")
_DIVERGENT = re.compile(r"BRA(?!\.U\b)")


class Meetings:
    """The branches and the meeting places of a kernel's machine code."""

    def __init__(self, code: Code, ptx: str) -> None:
        self._code = code
        self._of_all = {
            n
            for n, each in enumerate(code.instructions)
            if each.opcode == "WARPSYNC.ALL"
            or (each.name == "BAR" and _OF_WHOLE_WARPS.match(ptx, each.statement))
        }
        """Instructions at which all lanes of a warp meet."""
        self._block_of = {n: block.index for block in code.blocks for n in block.numbers}
        self._ways = {
            block.index: [each for each in (*block.branches, block.following) if each is not None]
            for block in code.blocks
        }
        self._parting: dict[int, list[Block]] = defaultdict(list)
        """By branch of the PTX, the blocks at whose ends lanes part for it in machine code."""
        for block in code.blocks:
            last = code.instructions[block.end - 1]
            if last.name == "BRX" or (last.guarded and _DIVERGENT.match(last.opcode)):
                self._parting[last.statement].append(block)

    def join(self, statements: dict[int, str], parted_at: set[int]) -> bool:
        """Return whether lanes of a warp that have parted go on together from a block of the PTX:
        whether they meet there or on all ways to it, have not parted in the machine code, or all
        it does is to end. statements: of the block, by position. parted_at: the branches that
        parted them."""
        if {opcode.partition(".")[0] for opcode in statements.values()} <= {"ret", "exit"}:
            return True
        return all(self._before(branch).isdisjoint(statements) for branch in parted_at)

    def _before(self, branch: int) -> set[int]:
        """Return the statements that lanes which part at a branch may execute before they meet."""
        code, any_ = self._code, branch == ANYWHERE
        found: set[int] = set()
        for parting in chain(*self._parting.values()) if any_ else self._parting[branch]:
            last = parting.end - 1
            waits = (to for at, to in code.meeting.items() if any_ or at < last < to)
            meeting = {self._block_of.get(number, -1) for number in self._of_all.union(waits)}
            for way in self._ways[parting.index]:
                found |= reachable(way, self._ways, meeting)
        executed = (code.instructions[n] for number in found for n in code.blocks[number].numbers)
        return {each.statement for each in executed if each.name not in COMPILERS_OWN}
