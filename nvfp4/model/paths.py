"""The machine instructions that a warp executes, in order.

The emulator has counted each statement of the PTX for each warp, and each machine instruction bears
the statement that it was compiled from. How often a warp takes each edge of the machine code's
graph is the flow from its first to its last instruction that agrees best with those counts. The
compiler may unroll, peel, copy or join code; a flow holds whatever it did. Loads, stores, shuffles
and barriers weigh most: a compiler neither invents nor joins them.
"""

import math
import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median

import highspy
import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.model.gpu import NoPrediction
from nvfp4.model.graph import DIVERGING, PARTED, PLAIN, UNKNOWN, Graph, graph_of, reachable
from nvfp4.model.sass import Code, Instruction
from nvfp4.records.base import Record

MEMORY = frozenset(
    ("LDG", "STG", "LDS", "STS", "LD", "ST", "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "LDGSTS",
     "LDSM", "STSM", "UBLKCP", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKPF")
)  # fmt: skip
"""Instructions that access memory which the emulator has counted."""
_ANCHORS = MEMORY - {"UTMAREDG", "UBLKPF"} | {"SHFL", "BAR", "VOTE", "UTMACMDFLUSH"}
"""Instructions that a compiler neither invents nor joins."""
COPIES = frozenset(("UBLKCP", "UTMALDG"))
"""Instructions that start a copy whose arrival an mbarrier tells."""
COMPILERS_OWN = frozenset(("LDL", "STL", "MOV", "BRA", "BSSY", "BSYNC", "NOP", "WARPSYNC"))
"""Instructions that a compiler adds, which say little about how often a statement is executed."""
_WIDE = frozenset(("LDG", "STG", "LDS", "STS", "LD", "ST"))
_PTX_WIDTH = re.compile(r"(?:\.v([248]))?\.[busf](8|16|32|64|128)(?=\s|\{)")
_SASS_WIDTH = re.compile(r"\.(256|128|64|U16|S16|U8|S8)\b")
_BITS = {"U16": 16, "S16": 16, "U8": 8, "S8": 8}

_PTX_SUM = re.compile(r"add\.[su](?:32|64)\s+[%\w$]+,\s*[%\w$]+,\s*(-?\d+);")
_SAME = {"VIADD": "IADD3", "IMAD.IADD": "IADD3", "IMAD.SHL.U32": "SHF"}
"""Names and opcodes of what the compiler uses now and then in place of another instruction."""
_PTX_PAIR = re.compile(
    r"(?:add|sub|neg|min|max|sad|and|or|xor|not|sh[lr]|brev|setp\.[\w.]+|m(?:ul|ad)\.hi)\.[sub]64\s"
    r"|selp\.[subf]64\s|mma\.\S+\.e[45]m[23]\."
)
"""Statements of which one becomes two machine instructions of each of its kinds."""
_SASS_CONSTANT = re.compile(r"\s-?(0x[0-9a-f]+)\b")
_BLOCK_ENDS = re.compile(r"^\s*[%$\w]+:|\bbra(?:\.uni)?\s", re.MULTILINE)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PREDICATE = re.compile(r"@\s*!?\s*[%\w$]+\s*$")

_ANCHOR_WEIGHT, _WEIGHT = 20.0, 1.0
_EDGE_COSTS = {PLAIN: 1e-4, PARTED: 2e-2, DIVERGING: 1e-1, UNKNOWN: 10.0}
_BACKWARDS = 1e-2
"""Costs of edges, which select the shortest of several equally good flows; far below the cost of
missing a count. An edge backwards costs more than one forwards, so that a loop that runs n times is
entered and repeats n - 1 times, instead of n times without being entered."""
_INTEGRAL = 1e-5
_LIMIT_S = 2.0
_MOST_CUTS = 20
_MOST_STEPS = 4_000_000
_TOLERANCE, _TOLERANCE_OF_OTHERS = 0.03, 0.5
"""Relative difference allowed between machine code and the emulator's counts: for loads, stores,
shuffles and barriers, and for others, which compilers remove, join or move out of loops."""
_SMALL = 0.05
_NEGLIGIBLE = 4.0
"""A number of executions by a warp that is too small to matter."""


class Trace(Record):
    """The instructions of a warp in the order of execution, and how often it executes each."""

    steps: Array
    executions: Array

    def without(self, numbers: set[int]) -> "Trace":
        """Return the trace without some instructions. The last one stays, as it ends the warp."""
        kept = ~np.isin(self.steps, list(numbers))
        kept[-1] = True
        steps = self.steps[kept]
        return Trace(steps, np.bincount(steps, minlength=self.executions.size))


class Paths:
    """Finds the trace of each kind of warp of a kernel."""

    def __init__(self, code: Code, ptx: str) -> None:
        self._code = code
        self._ptx = ptx
        self._graph = graph_of(code)
        self._copies = _copies(code, ptx)
        copying = [
            any(each.name in COPIES for each in code.instructions[block.start : block.end])
            for block in code.blocks
        ]
        blocks = self._graph.blocks
        self._copying = {node for node, block in enumerate(blocks) if block >= 0 and copying[block]}
        # The two blocks before it choose the lane, and whether there is more to copy.
        for _ in range(2):
            edges = self._graph.edges
            self._copying |= {
                a for a, b, _ in edges if b in self._copying and blocks[a] == blocks[b] - 1
            }
        self._known: dict[tuple[tuple[int, int], ...], Trace] = {}
        self._branched: dict[int, int] = {}
        """Statements of barriers with a predicate, which the compiler makes of a branch."""
        for number, each in enumerate(code.instructions):
            if each.name == "BAR" and each.guarded and each.statement:
                if _PREDICATE.search(_COMMENT.sub(" ", ptx[: each.statement])):
                    raise NoPrediction("a predicate decides which warps meet at a barrier")
                self._branched[number] = each.statement

    def trace(self, runs: dict[int, int]) -> Trace:
        """Return the trace of a warp. runs: how often it executes each statement. Raises
        NoPrediction if no path through the machine code has these counts."""
        key = tuple(runs.items())
        if key not in self._known:
            taken = _Flow(self._graph, self._copies, runs).taken()
            nodes = np.zeros(len(self._graph.blocks), np.int64)
            for (_, stop, _), times in zip(self._graph.edges, taken, strict=True):
                nodes[stop] += times
            nodes[0] += 1
            self._reconcile(nodes, runs)
            steps = self._steps(taken)
            executions = np.bincount(steps, minlength=len(self._code.instructions))
            absent = {n for n, statement in self._branched.items() if not runs.get(statement)}
            self._known[key] = Trace(steps, executions).without(absent)
        return self._known[key]

    def _steps(self, taken: list[int]) -> Array:
        blocks = self._code.blocks
        way = _trail(self._graph, taken, self._copying)
        if sum(self._graph.sizes[node] for node in way) > _MOST_STEPS:
            raise NoPrediction(f"a warp executes more than {_MOST_STEPS:,} instructions")
        pieces = [
            np.arange(blocks[b].start, blocks[b].end, dtype=np.int64)
            for b in (self._graph.blocks[node] for node in way)
            if b >= 0
        ]
        return np.concatenate(pieces)

    def _reconcile(self, nodes: Array, runs: dict[int, int]) -> None:
        """Raise NoPrediction if loads, stores, shuffles or barriers are executed less or more often
        than the emulator has counted, or other statements far less often."""
        by_block: dict[int, int] = defaultdict(int)
        for block, times in zip(self._graph.blocks, nodes.tolist(), strict=True):
            by_block[block] += times
        for anchor, tolerance in ((True, _TOLERANCE), (False, _TOLERANCE_OF_OTHERS)):
            counted, missed, worst = 0.0, 0.0, (0.0, 0)
            for statement, copies in self._copies.items():
                if copies.anchor is not anchor or statement not in runs:
                    continue
                executed = sum(by_block[block] * share for block, share in copies.shares.items())
                off = runs[statement] - executed
                # An instruction whose predicate is false is issued, too: more is no work lost.
                off = abs(off) if anchor and not copies.guarded else max(0.0, off)
                counted += runs[statement]
                missed += off
                worst = max(worst, (off, statement))
            if missed > max(tolerance * counted, _NEGLIGIBLE):
                line = self._ptx.count("\n", 0, worst[1]) + 1
                raise NoPrediction(
                    f"the machine code of line {line} of the PTX does not run as often as counted"
                )


class _Copies(Record):
    """The places of a statement in the machine code."""

    shares: dict[int, float]
    """By block, how many executions of the statement one execution of the block stands for."""
    anchor: bool
    """Whether compilers keep the statement as it is."""
    guarded: bool
    """Whether a predicate guards it."""


def _copies(code: Code, ptx: str) -> dict[int, _Copies]:
    """Return the copies of each statement in the machine code.

    A statement is counted by its loads, stores, shuffles or barriers; if it has none, by its rarest
    kind of instruction, of which one statement may need several. A block of machine code then has
    no more copies of it than of such accesses beside it in the PTX, or of sums with a constant.
    """
    counts: dict[int, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    guarded: set[int] = set()
    sums: dict[tuple[int, int], list[float]] = defaultdict(list)
    # Lanes of a warp that add theirs up before an atomic vote on it once for each execution.
    voting = {each.statement for each in code.instructions if each.name == "VOTE"}
    scans = voting & {each.statement for each in code.instructions if each.name == "SHFL"}
    for block in code.blocks:
        for each in code.instructions[block.start : block.end]:
            if each.name in COMPILERS_OWN or not each.statement:
                continue
            anchor = each.name in (("VOTE",) if each.statement in scans else _ANCHORS)
            kind = _SAME.get(each.opcode) or _SAME.get(each.name) or each.name.removeprefix("U")
            here = counts[each.statement]["" if anchor else kind]
            here[block.index] = here.get(block.index, 0.0) + 1 / _pieces(ptx, each)
            if anchor and each.guarded:
                guarded.add(each.statement)
            if turns := _added(ptx, each):
                sums[each.statement, block.index].append(turns)
    ends = [each.start() for each in _BLOCK_ENDS.finditer(ptx)]
    block_of = {statement: bisect(ends, statement) for statement in counts}
    # Only one of the turns of a loop that are unrolled compares.
    computing = {block_of[at] for at in counts if not ptx.startswith("setp", at)}
    for at in [at for at in counts if ptx.startswith("setp", at) and block_of[at] in computing]:
        del counts[at]
    beside: dict[tuple[int, int], tuple[list[float], ...]] = defaultdict(lambda: ([], [], []))
    rarest: dict[int, dict[int, float]] = {}
    for statement, names in counts.items():
        # A kind that is missing in some of its blocks belongs to another statement.
        kept = min(names.values(), key=lambda at: (-len(at), sum(at.values())))
        rarest[statement] = names.get("") or kept
        for index, share in rarest[statement].items():
            anchored, summed, others = beside[index, block_of[statement]]
            if "" in names:
                anchored.append(share)
            elif added := sums.get((statement, index)):
                summed.append(max(len(added), *added))
            else:
                others.append(max(1.0, share))
    usual = {place: _usual(*found) for place, found in beside.items()}
    copies: dict[int, _Copies] = {}
    for statement, shares in rarest.items():
        anchor, own = "" in counts[statement], block_of[statement]
        if not anchor:
            shares = {at: max(1.0, usual[at, own]) for at in shares}
        copies[statement] = _Copies(shares, anchor, statement in guarded)
    return copies


def _usual(anchored: list[float], summed: list[float], others: list[float]) -> float:
    """Return how many copies a block has of most statements, given those of loads and the like, of
    sums with a constant, and of others. What sums say holds if another statement agrees: of most
    others the compiler may need one for all turns of an unrolled loop."""
    if anchored:
        return median(anchored)
    agreed = [each for each in set(summed) if (summed + others).count(each) > 1]
    return max(agreed, default=min(map(median, filter(None, (summed, others)))))


def _added(ptx: str, each: Instruction) -> float:
    """Return how many turns' constants a machine instruction adds at once, where the statement adds
    one: a loop of which the compiler has unrolled four turns counts by fours. 0 if it adds none."""
    asked = _PTX_SUM.match(ptx, each.statement)
    added = asked and _SASS_CONSTANT.search(each.text)
    if not asked or not added or not int(asked[1]):
        return 0.0
    constant = int(added[1], 16)
    turns = abs(min(constant, (1 << 32) - constant) / int(asked[1]))
    return turns if turns == int(turns) else 1.0


def _pieces(ptx: str, each: Instruction) -> float:
    """Return how many machine instructions of a kind one statement of the PTX becomes."""
    if ".CAST" in each.opcode:
        return math.inf  # of an atomic on shared memory, whose load is counted
    if each.name not in _WIDE:
        whole = ".64." in f"{each.opcode}." or not _PTX_PAIR.match(ptx, each.statement)
        return 1.0 if whole else 4.0 if each.name == "FADD" else 2.0
    wide = _PTX_WIDTH.search(ptx, each.statement, each.statement + 200)
    if wide is None:
        return 1.0
    asked = int(wide[1] or 1) * int(wide[2])
    found = _SASS_WIDTH.search(each.opcode)
    has = 32 if found is None else _BITS.get(found[1]) or int(found[1])
    return max(1.0, asked / has)


class _Flow:
    """The linear program for how often a warp takes each edge of the graph."""

    def __init__(self, graph: Graph, copies: dict[int, _Copies], runs: dict[int, int]) -> None:
        self._graph = graph
        asked: dict[tuple[tuple[tuple[int, float], ...], int, bool], float] = defaultdict(float)
        for statement, each in copies.items():
            if statement in runs:
                key = (tuple(sorted(each.shares.items())), runs[statement], each.guarded)
                asked[key] += _ANCHOR_WEIGHT if each.anchor else _WEIGHT
        nodes_of: dict[int, list[int]] = defaultdict(list)
        for node, block in enumerate(graph.blocks):
            nodes_of[block].append(node)
        self._entering: dict[int, list[int]] = defaultdict(list)
        self._leaving: dict[int, list[int]] = defaultdict(list)
        for edge, (start, stop, _) in enumerate(graph.edges):
            self._leaving[start].append(edge)
            self._entering[stop].append(edge)
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        self._highs.setOptionValue("time_limit", _LIMIT_S)
        rows: list[tuple[float, Mapping[int, float]]] = []
        costs = [
            _EDGE_COSTS[kind] + _BACKWARDS * (0 <= graph.blocks[stop] <= graph.blocks[start])
            for start, stop, kind in graph.edges
        ]
        self._edges = len(costs)
        kept = (each.shares for each in copies.values() if each.anchor)
        self._kept = {block for shares in kept for block in shares}
        for node in range(graph.end):
            row: Counter[int] = Counter(self._leaving[node])
            row.subtract(self._entering[node])
            rows.append((float(node == 0), row))
        for (shares, wanted, guarded), weight in asked.items():
            weighed: dict[int, float] = defaultdict(float)
            more, fewer = len(costs), len(costs) + 1
            # More executions than counted are no contradiction where a predicate decides.
            costs += [weight * (0.01 if guarded else 1.0), weight]
            offset = 0.0
            for block, share in shares:
                for node in nodes_of[block]:
                    offset += share if node == 0 else 0.0
                    for edge in self._entering[node]:
                        weighed[edge] += share
            weighed[more], weighed[fewer] = -1.0, 1.0
            rows.append((wanted - offset, weighed))
        count, none = len(costs), np.array([], np.int32)
        least, most = np.zeros(count), np.full(count, highspy.kHighsInf)
        self._highs.addCols(count, np.array(costs), least, most, 0, none, none, least[:0])
        bounds = np.array([bound for bound, _ in rows])
        starts = np.cumsum([0, *(len(row) for _, row in rows[:-1])], dtype=np.int32)
        index = np.array([edge for _, row in rows for edge in row], np.int32)
        value = np.array([each for _, row in rows for each in row.values()], np.float64)
        self._highs.addRows(len(rows), bounds, bounds, index.size, starts, index, value)

    def taken(self) -> list[int]:
        """Return how often each edge is taken. Raises NoPrediction."""
        for _ in range(_MOST_CUTS):
            taken = self._whole()
            island = self._island(taken)
            if self._is_small(island, taken):
                edges = self._graph.edges
                return [0 if edges[e][0] in island else times for e, times in enumerate(taken)]
            # Loops that no flow enters: a warp that runs one must have entered it.
            entries = {e for node in island for e in self._entering[node]}
            ways = [e for e in entries if self._graph.edges[e][0] not in island]
            inside = [e for e in entries if self._graph.edges[e][0] in island]
            most = sum(taken[e] for e in inside)
            index = np.array([*ways, *inside], np.int32)
            value = np.array([float(most)] * len(ways) + [-1.0] * len(inside))
            self._highs.addRow(0.0, highspy.kHighsInf, len(index), index, value)
        raise NoPrediction("no way through the machine code agrees with what was counted")

    def _whole(self) -> list[int]:
        values = self._solved()
        if np.abs(values - np.rint(values)).max(initial=0.0) > _INTEGRAL:
            kinds = np.full(self._edges, highspy.HighsVarType.kInteger)
            which = np.arange(self._edges, dtype=np.int32)
            self._highs.changeColsIntegrality(self._edges, which, kinds)
            values = self._solved()
            if np.abs(values - np.rint(values)).max(initial=0.0) > 1e-3:
                raise NoPrediction("the machine code's loops cannot be counted")
        return [int(each) for each in np.rint(values)]

    def _solved(self) -> Array:
        self._highs.run()
        values = np.array(self._highs.getSolution().col_value[: self._edges])
        if values.size != self._edges:
            raise NoPrediction("no way through the machine code agrees with what was counted")
        return values

    def _is_small(self, island: set[int], taken: list[int]) -> bool:
        """Return whether nodes that nothing leads to are a negligible part of all that is executed,
        without a load, store, shuffle or barrier.

        An example is the second try of a wait whose first try the compiler moved out of the loop.
        """
        if any(self._graph.blocks[node] in self._kept for node in island):
            return False
        executed = [0, 0]
        for (_, stop, _), times in zip(self._graph.edges, taken, strict=True):
            executed[stop in island] += times * self._graph.sizes[stop]
        return executed[True] <= _SMALL * executed[False]

    def _island(self, taken: list[int]) -> set[int]:
        """Return the nodes of taken edges that cannot be reached from the first node."""
        ways: dict[int, list[int]] = defaultdict(list)
        for (start, stop, _), times in zip(self._graph.edges, taken, strict=True):
            if times:
                ways[start].append(stop)
        return ways.keys() - reachable(0, ways)


def _trail(graph: Graph, taken: list[int], copying: set[int]) -> list[int]:
    """Return a way that takes each edge as often as asked (Hierholzer's algorithm). Where there is
    a choice, the edge of which the largest part is left goes first, so that turns of loops and ways
    of branches alternate as evenly as they can. Edges to the nodes `copying`, which start copies,
    go before others: the last turns of a loop have nothing more to fetch."""
    edges: dict[int, list[list[int]]] = defaultdict(list)
    for (start, stop, _), times in zip(graph.edges, taken, strict=True):
        if times:
            edges[start].append([times, 1 if stop in copying else times, stop])
    way: list[int] = []
    stack = [0]
    while stack:
        best: list[int] | None = None
        for each in edges[stack[-1]]:
            if each[0] and (best is None or each[0] * best[1] > best[0] * each[1]):
                best = each
        if best is None:
            way.append(stack.pop())
        else:
            best[0] -= 1
            stack.append(best[2])
            if len(stack) > _MOST_STEPS:
                raise NoPrediction(f"a warp executes more than {_MOST_STEPS:,} instructions")
    if way[0] != graph.end:
        raise NoPrediction("no way through the machine code ends where a warp ends")
    return way[::-1]
