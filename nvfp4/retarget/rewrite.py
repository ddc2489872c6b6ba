"""Rewrites a PTX module for another architecture."""

import re
from collections import Counter
from dataclasses import field, replace
from typing import Any

from nvfp4.emulator.ptx.parser import ModuleParser
from nvfp4.emulator.ptx.syntax import Instruction, Module
from nvfp4.records.base import Record
from nvfp4.records.texts import short_name
from nvfp4.retarget import narrow_floats, rules  # noqa: F401  (fills the table)
from nvfp4.retarget.errors import NotRetargetable
from nvfp4.retarget.sequence import RULES, Impossible, Sequence
from nvfp4.retarget.targets import Target, parse_target, refusal

Version = tuple[int, int]
Edit = tuple[int, int, str]

_CLUSTERS = re.compile(
    r"\.(?:explicitcluster|reqnctapercluster|maxclusterrank|blocksareclusters)\b"
    r"(?:\s+\d+(?:\s*,\s*\d+)*)?"
)
# The version of PTX in which an architecture came to be.
_SINCE = {80: (7, 0), 86: (7, 1), 87: (7, 4), 89: (7, 8), 90: (8, 0), 100: (8, 6), 120: (8, 7)}


class KernelRewrite(Record, frozen=False):
    """The changes to a kernel or device function."""

    kernel: str
    """Its short name."""
    source: str
    """Architecture that the PTX was written for."""
    target: str
    """Architecture that it was rewritten for."""
    instructions: int = 0
    rewritten: Counter[str] = field(default_factory=Counter)
    """How often each opcode was rewritten, counted in the text."""
    added: int = 0
    """Number of instructions added; negative if there are fewer than before."""


class Rewritten(Record):
    """The PTX for the target, and what was rewritten."""

    ptx: str
    kernels: list[KernelRewrite]
    """Its kernels and functions, in order."""

    def entries(self) -> list[dict[str, Any]]:
        """Return the fields of each kernel as plain values."""
        return [
            {**vars(each), "rewritten": dict(each.rewritten.most_common())} for each in self.kernels
        ]


def rewrite(ptx: str, target: str, newest: Version | None = None) -> Rewritten:
    """Rewrite a module for `target`, such as sm_90a: same results, bit for bit.

    newest: the latest version of PTX that the driver takes; the text then names no later one. Text
    that need not change stays as it is, `.loc` included.
    Raises NotRetargetable with the line for what the target cannot do, PtxSyntaxError for what is
    no PTX, ValueError for a target before sm_80.
    """
    parser = _PlacingParser(ptx)
    module = parser.module()
    wanted = parse_target(target)
    wanted = replace(wanted, ptx=_version(module.version, wanted, newest))
    prefix = "%n"
    while prefix in ptx:
        prefix += "_"
    kernels = {
        name: KernelRewrite(short_name(name), module.target, str(wanted))
        for name in module.functions
    }
    # The new `.version` and `.target`; before sm_90, cluster directives are removed.
    edits: list[Edit] = []
    for token, following in zip(parser.tokens, parser.tokens[1:], strict=False):
        end = following.start + len(following.text)
        if token.text == ".target" and module.target != str(wanted):
            edits.append((following.start, end, str(wanted)))
        elif token.text == ".version":
            edits.append((following.start, end, ".".join(map(str, wanted.ptx))))
        elif wanted.number < 90 and (found := _CLUSTERS.match(parser.text, token.start)):
            edits.append((*found.span(), ""))
    for placed in parser.found:
        kernel = kernels[placed.function]
        kernel.instructions += 1
        sequence = _replacement(placed, wanted, prefix, module)
        if sequence is not None:
            kernel.rewritten[placed.node.opcode] += 1
            kernel.added += len(sequence.lines) - 1
            edits.append((placed.start, placed.end, sequence.text()))
    return Rewritten(_edited(ptx, edits), list(kernels.values()))


class _Placed(Record):
    """An instruction, its function, and the range of its text: [start, end), guard included."""

    node: Instruction
    function: str
    start: int
    end: int


class _PlacingParser(ModuleParser):
    """Notes where instructions are. found: all of the module's, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.found: list[_Placed] = []

    def instruction(self) -> Instruction:
        start, node = self.now.start, super().instruction()
        self.found.append(_Placed(node, self.function, start, self.tokens[self.at - 1].start + 1))
        return node


def _replacement(placed: _Placed, target: Target, prefix: str, module: Module) -> Sequence | None:
    """Return the replacement of an instruction, None if it may stay. Raises NotRetargetable."""
    node = placed.node
    why = refusal(node.opcode, target)
    try:
        for rule in RULES.get(node.opcode.partition(".")[0], ()) if why is None else ():
            sequence = Sequence(node, prefix)
            if rule(sequence, target):
                return sequence
    except Impossible as impossible:
        why = str(impossible)
    if why is None:
        return None
    raise NotRetargetable(node.opcode, str(target), why, node.line, module.sources.at(node.line))


def _version(text: str, target: Target, newest: Version | None) -> Version:
    """Return the version, limited to `newest` and raised to that of the target."""
    major, minor = (int(part) for part in text.split("."))
    version = (major, minor) if newest is None else min((major, minor), newest)
    return max(version, *(since for number, since in _SINCE.items() if number <= target.number))


def _edited(text: str, edits: list[Edit]) -> str:
    pieces, at = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])
