"""PTX whose machine code says from which line of the PTX it comes."""

import re
from bisect import bisect_left

from nvfp4.emulator.ptx.link import statements
from nvfp4.emulator.ptx.parser import parse
from nvfp4.emulator.ptx.syntax import Instruction

_OLD_LINES = re.compile(
    r"\.section\s+[\w.]+\s*\{[^}]*\}|\.file\s+\d+\s+\"[^\"]*\"(?:\s*,\s*\d+)*|\.loc(?:\s+\d+){3}"
    r"(?:\s*,\s*(?:inlined_at(?:\s+\d+){3}|function_name\s+[\w$.]+(?:\s*\+\s*\d+)?))*"
)
"""The lines that a compiler has named, and its debugging information."""


class Lines:
    """The lines of a text, by position."""

    def __init__(self, text: str) -> None:
        self._ends = [place for place, character in enumerate(text) if character == "\n"]

    def of(self, position: int) -> int:
        """The line, from 1, of a character; 0 for position 0, which stands for no statement."""
        return bisect_left(self._ends, position) + 1 if position else 0


def located(ptx: str) -> str:
    """Return the PTX with a new `.loc` in front of each instruction, whose line number is the
    position of the instruction in `ptx`. Raises PtxSyntaxError."""
    bodies = [function.body for function in parse(ptx).functions.values()]
    found = (each for body in bodies for each in statements(body))
    pieces, last = [], 0
    for start in sorted(each.start for each in found if isinstance(each, Instruction)):
        pieces += [_OLD_LINES.sub("", ptx[last:start]), f"\n.loc 1 {start} 0\n"]
        last = start
    return "".join([*pieces, _OLD_LINES.sub("", ptx[last:]), '\n.file 1 "kernel.ptx"\n'])
