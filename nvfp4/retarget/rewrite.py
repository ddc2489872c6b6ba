"""Rewrites a PTX module for another architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from nvfp4.emulator.ptx.syntax import (
    Module,
)
from nvfp4.retarget import (  # noqa: F401
    arithmetic_pairs,
    memory_accesses,
    narrow_floats,
    warps_and_order,
)
from nvfp4.retarget.errors import NotRetargetable
from nvfp4.retarget.reading import Placed, PlacingParser, read
from nvfp4.retarget.refusals import refusal
from nvfp4.retarget.report import KernelRewrite, RewriteReport
from nvfp4.retarget.sequence import RULES, Impossible, Sequence
from nvfp4.retarget.targets import Target, parse_target

# Importing these modules fills the table.

Version = tuple[int, int]
Edit = tuple[int, int, str]

_CLUSTER_DIRECTIVES = (
    ".explicitcluster", ".reqnctapercluster", ".maxclusterrank", ".blocksareclusters",
)  # fmt: skip
# The version of PTX in which an architecture came to be.
_SINCE = {80: (7, 0), 86: (7, 1), 87: (7, 4), 89: (7, 8), 90: (8, 0), 100: (8, 6), 120: (8, 7)}


@dataclass(frozen=True)
class Rewritten:
    """The PTX of the target, and what was done to it."""

    ptx: str
    report: RewriteReport


def rewrite(ptx: str, target: str, newest: Version | None = None) -> Rewritten:
    """A module for `target`, such as sm_90a: same results, bit for bit.

    newest: the latest version of PTX that the driver takes; the text then names no later one. Text
    that need not change stays as it is, `.loc` included.
    Raises NotRetargetable with the line for what the target cannot do, PtxSyntaxError for what is
    no PTX, ValueError for a target before sm_80.
    """
    module, parser = read(ptx)
    wanted = parse_target(target)
    wanted = replace(wanted, ptx=_version(module.version, wanted, newest))
    prefix = _free_prefix(ptx)
    kernels = {name: KernelRewrite(name) for name in module.functions}
    report = RewriteReport(module.target, str(wanted), list(kernels.values()))
    edits = _header(module, parser, wanted)
    for placed in parser.found:
        kernel = kernels[placed.function]
        kernel.instructions += 1
        sequence = _replacement(placed, wanted, prefix, module)
        if sequence is not None:
            kernel.rewritten[placed.node.opcode] += 1
            kernel.added += len(sequence.lines) - 1
            edits.append((placed.start, placed.end, sequence.text()))
    return Rewritten(_edited(ptx, edits), report)


def _free_prefix(ptx: str) -> str:
    prefix = "%n"
    while prefix in ptx:
        prefix += "_"
    return prefix


def _replacement(placed: Placed, target: Target, prefix: str, module: Module) -> Sequence | None:
    """What takes the place of an instruction; None where it may stay."""
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
    source = module.sources.at(node.line)
    raise NotRetargetable(node.opcode, str(target), why, node.line, source)


def _header(module: Module, parser: PlacingParser, target: Target) -> list[Edit]:
    """The new `.version` and `.target`; before sm_90, what is said of clusters goes."""
    edits: list[Edit] = []
    for token, following in zip(parser.tokens, parser.tokens[1:], strict=False):
        end = following.start + len(following.text)
        if token.text == ".target" and module.target != str(target):
            edits.append((following.start, end, str(target)))
        elif token.text == ".version":
            edits.append((following.start, end, ".".join(map(str, target.ptx))))
        elif token.text in _CLUSTER_DIRECTIVES and target.number < 90:
            edits.append((token.start, _end_of_numbers(parser, token.start), ""))
    return edits


def _end_of_numbers(parser: PlacingParser, start: int) -> int:
    """Where a directive ends that may have numbers behind it."""
    matched = re.compile(r"\.\w+(\s+\d+(\s*,\s*\d+)*)?").match(parser.text, start)
    assert matched
    return matched.end()


def _version(text: str, target: Target, newest: Version | None) -> Version:
    """The version as it is, but no later than `newest` and no earlier than the target."""
    major, minor = (int(part) for part in text.split("."))
    version = (major, minor) if newest is None else min((major, minor), newest)
    return max(version, *(since for number, since in _SINCE.items() if number <= target.number))


def _edited(text: str, edits: list[Edit]) -> str:
    pieces, at = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


# (opcode, who has it, what it is)
