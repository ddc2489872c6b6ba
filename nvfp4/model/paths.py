"""Which machine instructions a warp executes, and in which order.

The emulator has counted the PTX, line by line; each machine instruction bears the line that it was
compiled from. What the compiler has unrolled holds a line several times and runs less often by as
much, which loads, stores, shuffles and barriers show: they are neither invented nor joined.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median

from nvfp4.model.sass import Block, Code

_ANCHORS = frozenset(
    ("LDG", "STG", "LDS", "STS", "SHFL", "BAR", "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "LDGSTS",
     "LDSM", "STSM", "HMMA", "IMMA", "QMMA", "OMMA", "VOTE", "LD", "ST")
)  # fmt: skip
_PTX_WIDTH = re.compile(r"(?:\.v([248]))?\.[busf](8|16|32|64|128)(?=\s|\{)")
_SASS_WIDTH = re.compile(r"\.(256|128|64|U16|S16|U8|S8)\b")
_MOST_STEPS = 4_000_000
_OF_GUESSES = 0.9
_EVEN = 0.02
_MANY = 50

_EPSILON = 1e-6
_TELLING = 4
_AHEAD = 8

_Key = tuple[int, str]
Loop = tuple[int, int]
"""Its first and last block."""


@dataclass(frozen=True)
class Paths:
    """traces: numbers of instructions in the order of execution. of_warp: which trace each warp of
    a CTA takes. executions: of each instruction, summed over the warps of a CTA.
    """

    traces: list[list[int]]
    of_warp: list[int]
    executions: list[int]

    def without(self, numbers: set[int]) -> Paths:
        """The same without some instructions; a warp still leaves by its last one."""
        kept = [[n for n in t[:-1] if n not in numbers] + t[-1:] for t in self.traces]
        left = [0 if n in numbers else times for n, times in enumerate(self.executions)]
        return Paths(kept, self.of_warp, left)


def paths(code: Code, ptx: list[str], runs: dict[int, int], warps: int, in_cta: int) -> Paths:
    """runs: warp instructions of each line of the PTX, which count from 1, over a launch of so many
    warps, `in_cta` of them in each CTA."""
    each = {line: count / warps for line, count in runs.items()}
    loops = _loops(code.blocks)
    wanted = _block_runs(code, ptx, each, loops)
    turns = _turns(code, wanted, loops)
    both = _both_ways(code, wanted)
    traces: list[list[int]] = []
    known: dict[tuple[int, ...], int] = {}
    of_warp = []
    for warp in range(in_cta):
        budget = tuple(_share(runs, warp) for runs in wanted)
        if budget not in known:
            known[budget] = len(traces)
            traces.append(_walk(code, list(budget), turns, both))
        of_warp.append(known[budget])
    executions = [0] * len(code.instructions)
    for trace, times in Counter(of_warp).items():
        for number in traces[trace]:
            executions[number] += times
    return Paths(traces, of_warp, executions)


def _share(runs: float, warp: int) -> int:
    """How often this warp runs a block that a warp runs so often on the average."""
    rounded = round(runs)
    if abs(runs - rounded) < _EVEN or runs > _MANY:
        return rounded
    # The first warps of a CTA do what not all do.
    whole = math.floor(runs)
    part = runs - whole
    return whole + math.ceil((warp + 1) * part) - math.ceil(warp * part)


def _loops(blocks: list[Block]) -> list[Loop]:
    """(first, last) block of each loop, the innermost first."""
    backwards = {(b.branch, b.index) for b in blocks if b.branch is not None}
    found = [(first, last) for first, last in backwards if first <= last]
    found = [each for each in found if not _is_trap(blocks, each)]
    return sorted(found, key=lambda loop: loop[1] - loop[0])


def _is_trap(blocks: list[Block], loop: Loop) -> bool:
    """The branch to itself behind the end of every kernel."""
    first, last = loop
    return first == last and blocks[first].end - blocks[first].start == 1


def _block_runs(
    code: Code, ptx: list[str], runs: dict[int, float], loops: list[Loop]
) -> list[float]:
    """How often a warp runs each block on the average."""
    copies: dict[_Key, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for block in code.blocks:
        for number in range(block.start, block.end):
            each = code.instructions[number]
            if each.line in runs:
                unit = _pieces(ptx[each.line - 1], each.opcode)
                copies[each.line, each.name][block.index] += 1 / unit
    inside = {n: _innermost(n, loops) for n in range(len(code.blocks))}
    said: dict[int, list[float]] = defaultdict(list)
    guessed: dict[int, list[float]] = defaultdict(list)
    for (line, name), by_block in copies.items():
        target = said if name in _ANCHORS else guessed
        for index, times in _distribute(runs[line], by_block, inside).items():
            target[index].append(times)
    known = {index: median(values) for index, values in said.items()}
    for block in code.blocks:
        if block.index not in known:
            known[block.index] = _guess(block, code, runs, guessed, known, inside)
    return [known[block.index] for block in code.blocks]


def _guess(
    block: Block,
    code: Code,
    runs: dict[int, float],
    guessed: dict[int, list[float]],
    known: dict[int, float],
    inside: dict[int, Loop | None],
) -> float:
    """How often a warp runs a block without anchors."""
    loop = inside[block.index]
    lines = [code.instructions[n].line for n in range(block.start, block.end)]
    counted = [runs[line] for line in lines if line in runs]
    if loop is None:
        return min(1.0, median(counted)) if counted else 1.0
    beside = [times for n, times in known.items() if inside[n] == loop]
    if beside:
        return min(max(counted, default=1.0), max(beside))
    values = sorted(guessed.get(block.index, [1.0]))
    # One line of PTX may take several instructions of a kind, which looks like several copies.
    return values[int(_OF_GUESSES * (len(values) - 1))]


def _innermost(index: int, loops: list[Loop]) -> Loop | None:
    return next((loop for loop in loops if loop[0] <= index <= loop[1]), None)


def _distribute(
    runs: float, copies: dict[int, float], inside: dict[int, Loop | None]
) -> dict[int, float]:
    """A line's executions over the blocks that hold copies of it. As many as fit go to the loop
    with the most copies. What stands in front of it is its first turn, or the turns that its copies
    do not divide; what stands behind it has the rest; both run once at most."""
    found: dict[int, float] = {}
    left = runs
    looped = sorted((n for n in copies if inside[n]), key=lambda n: -copies[n])
    main = looped[0] if looped else -1
    straight = [n for n in copies if not inside[n]]
    for n in [n for n in straight if n < main]:
        most = copies[main]
        odd = left if most <= 1 else left - most * math.floor(left / most + _EPSILON)
        found[n] = min(1.0, odd / copies[n]) if odd >= copies[n] or left < most else 0.0
        left -= found[n] * copies[n]
    behind = [n for n in straight if n > main]
    for n in looped:
        whole = left / copies[n]
        alone = n == looped[-1] and not behind
        found[n] = max(0.0, whole if alone else math.floor(whole + _EPSILON))
        left -= found[n] * copies[n]
    for n in behind:
        found[n] = max(0.0, min(1.0, left / copies[n]))
        left -= found[n] * copies[n]
    return found


def _pieces(ptx: str, opcode: str) -> float:
    """How many instructions of the machine one access of the PTX takes."""
    wide = _PTX_WIDTH.search(ptx)
    if wide is None or opcode.partition(".")[0] not in ("LDG", "STG", "LDS", "STS"):
        return 1.0
    asked = int(wide[1] or 1) * int(wide[2])
    found = _SASS_WIDTH.search(opcode)
    bits = {"U16": 16, "S16": 16, "U8": 8, "S8": 8}
    has = 32 if found is None else bits.get(found[1]) or int(found[1])
    return max(1.0, asked / has)


def _turns(code: Code, wanted: list[float], loops: list[Loop]) -> dict[Loop, float]:
    """How often a warp runs each loop when it comes to it."""
    inside = {n: _innermost(n, loops) for n in range(len(code.blocks))}
    total = {}
    for loop in loops:
        own = [wanted[n] for n in range(loop[0], loop[1] + 1) if inside[n] == loop]
        total[loop] = max(own, default=1.0)
    found = {}
    for loop in loops:
        outer = [each for each in loops if each != loop and _holds(each, loop)]
        found[loop] = total[loop] / max(total[outer[0]], _EPSILON) if outer else total[loop]
    return found


def _both_ways(code: Code, wanted: list[float]) -> dict[int, float]:
    """By the last block of a way that jumps over the other one: how often a warp goes that way too,
    since its threads part."""
    found = {}
    for block in code.blocks:
        if block.branch is None or block.following is None or block.branch <= block.index:
            continue
        other, end = block.branch, block.branch - 1
        last = code.blocks[end]
        jumps = last.following is None and (last.branch or 0) > other
        if jumps and end > block.index and wanted[block.index] > 0:
            twice = wanted[block.following] + wanted[other] - wanted[block.index]
            found[end] = min(1.0, max(0.0, twice / wanted[block.index]))
    return found


def _holds(outer: Loop, inner: Loop) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _walk(
    code: Code, left: list[int], turns: dict[Loop, float], both: dict[int, float]
) -> list[int]:
    """The instructions on the way of a warp that runs each block as often as `left` says."""
    trace: list[int] = []
    blocks = code.blocks
    entered = dict.fromkeys(turns, 0)
    turn = dict.fromkeys(turns, 0)
    parted = dict.fromkeys(both, _EPSILON)
    block: Block | None = blocks[0]
    while block is not None and len(trace) < _MOST_STEPS:
        left[block.index] -= 1
        trace += range(block.start, block.end)
        branch, following = block.branch, block.following
        loop = (branch if branch is not None else -1, block.index)
        if branch is None or following is None:
            way = following if branch is None else branch
            if block.index in both:
                parted[block.index] += both[block.index]
                if parted[block.index] >= 1:
                    parted[block.index] -= 1
                    way = block.index + 1
            if branch is None and following is not None and _leaves(code, block):
                way = following if _is_wanted(code, left, following, following + _AHEAD) else None
        elif loop in turns:
            turn[loop] += 1
            began = entered[loop] * turns[loop]
            if turn[loop] < round(began + turns[loop]) - round(began):
                way = branch
            else:
                way, turn[loop] = following, 0
                entered[loop] += 1
        else:
            way = following if _is_wanted(code, left, following, branch) else branch
        block = None if way is None else blocks[way]
    return trace


def _leaves(code: Code, block: Block) -> bool:
    """Whether it ends where some threads exit."""
    return code.instructions[block.end - 1].name in ("EXIT", "RET")


def _is_wanted(code: Code, left: list[int], start: int, end: int) -> bool:
    """Whether what a branch would leave out is still to be run. Of a few moves between two other
    blocks nobody knows how often they are."""
    end = min(end, len(code.blocks))
    sizes = {n: code.blocks[n].end - code.blocks[n].start for n in range(start, end)}
    telling = [n for n, size in sizes.items() if size >= _TELLING] or list(sizes)
    return any(left[n] > 0 for n in telling)
