"""Rewrites a PTX module for another architecture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from nvfp4.emulator.names import short_name
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
from nvfp4.retarget import (  # noqa: F401
    arithmetic_pairs,
    memory_accesses,
    narrow_floats,
    warps_and_order,
)
from nvfp4.retarget.errors import NotRetargetable
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


@dataclass
class KernelRewrite:
    """One kernel or device function. rewritten: opcode to how often, counted in the text.

    added: how many instructions more it has than before; fewer count as negative.
    """

    kernel: str
    instructions: int = 0
    rewritten: Counter[str] = field(default_factory=Counter)
    added: int = 0


@dataclass
class RewriteReport:
    """source, target: architectures. kernels: those of the module, in order."""

    source: str
    target: str
    kernels: list[KernelRewrite] = field(default_factory=list)

    @property
    def changed(self) -> list[KernelRewrite]:
        """The kernels in which something was rewritten."""
        return [kernel for kernel in self.kernels if kernel.rewritten]

    def entries(self) -> list[dict[str, Any]]:
        """Plain values of each kernel: `kernel` (its short name), `source`, `target`,
        `instructions`, `rewritten` (opcode to how often), `added` (instructions).
        """
        return [
            {
                "kernel": short_name(kernel.kernel),
                "source": self.source,
                "target": self.target,
                "instructions": kernel.instructions,
                "rewritten": dict(kernel.rewritten.most_common()),
                "added": kernel.added,
            }
            for kernel in self.kernels
        ]


Having = Callable[[Target], bool]


_BF16 = "before sm_90 bf16 converts from and to f32 only"


def _from(number: int) -> Having:
    return lambda target: target.number >= number


def _hopper(target: Target) -> bool:
    return target.number == 90 and bool(target.suffix)


def _tensor_memory(target: Target) -> bool:
    return target.has_tensor_memory


def _rtx_blackwell(target: Target) -> bool:
    return target.number >= 120 and bool(target.suffix)


# (opcode, who has it, what it is)
_ONLY: tuple[tuple[str, Having, str], ...] = (
    (r"tcgen05\.", _tensor_memory, "tensor memory and its tensor cores exist on sm_100a only"),
    (r"wgmma\.", _hopper, "wgmma exists on sm_90a only"),
    (
        r"mma\..*(kind::|block_scale|mxf|e2m1|e2m3|e3m2)",
        _rtx_blackwell,
        "products of block-scaled and 4 and 6-bit matrices by mma exist on sm_120a only",
    ),
    (r"mma\..*\.(e4m3|e5m2)\.", _from(89), "tensor cores take 8-bit floats from sm_89 on"),
    (r"clusterlaunchcontrol\.", _from(100), "a running CTA asks for another from sm_100 on"),
    (
        r"cp\.async\.bulk\..*(gather4|scatter4|im2col::w|cta_group::2)",
        _tensor_memory,
        "this form of a bulk copy starts with sm_100",
    ),
    (
        r"(cp\.async\.bulk|cp\.reduce\.async|st\.async|red\.async|tensormap)\b",
        _from(90),
        "copies by the engine (TMA) start with sm_90",
    ),
    (r"(st|red)\.async\..*mmio", _from(100), "it starts with sm_100"),
    (r"st\.bulk", _from(100), "it starts with sm_100"),
    (r"multimem\.", _from(90), "it starts with sm_90"),
    (r"barrier\.cluster", _from(90), "clusters start with sm_90"),
    (r"mbarrier\..*(expect_tx|complete_tx|cluster)", _from(90), "it starts with sm_90"),
    (r"(setp|set|tanh|ex2)\..*bf16", _from(90), "bf16 has it from sm_90 on"),
    (r"cvt\.(?!f32\.)(\w+\.)*bf16\.(?!f32$)\w+$", _from(90), _BF16),
    (r"cvt\.(?!f32\.bf16$)(\w+\.)*bf16$", _from(90), _BF16),
    (r"cvt\.(rn|rz)\.(\w+\.)*tf32", _from(90), "it starts with sm_90"),
    (r"cvt\.rn\.(\w+\.)*satfinite\.tf32", _from(100), "it starts with sm_100"),
    (r"fma\..*oob", _from(90), "it starts with sm_90"),
    (r"(min|max)\..*xorsign", _from(86), "it starts with sm_86"),
    (r"stmatrix\.", _from(90), "it starts with sm_90"),
    (r"(ldmatrix|stmatrix)\..*(m16n16|m8n16|m16n8)", _from(100), "it starts with sm_100"),
    (r"(?!mapa|getctarank).*shared::cluster", _from(90), "clusters start with sm_90"),
)


@lru_cache(maxsize=4096)
def refusal(opcode: str, target: Target) -> str | None:
    """Why nothing can take the place of an instruction; None where that is not so."""
    for pattern, has, why in _ONLY:
        if re.match(pattern, opcode) and not has(target):
            return why
    return None
