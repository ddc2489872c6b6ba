"""The ways that a warp can take through machine code; every call of a function has a copy of its
own.

The threads of a warp that part at a branch go one way after the other. So an edge also leads from
where one way of a branch ends to where the other begins.
"""

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from nvfp4.model.gpu import NoPrediction
from nvfp4.model.sass import Code

_MOST_NODES = 20_000

PLAIN, PARTED, DIVERGING, UNKNOWN = range(4)
"""Kinds of edges: as the code says; from one way of a branch to the other; to where only threads
that have parted go; over a call of a function whose code is not known."""


@dataclass
class Graph:
    """The control flow of a kernel. Node 0 is where a warp begins, the last node where it ends."""

    blocks: list[int] = field(default_factory=list)
    """The block of each node."""
    sizes: list[int] = field(default_factory=list)
    """Number of instructions of each node."""
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    """(from, to, kind)."""

    @property
    def end(self) -> int:
        """The node where every warp ends."""
        return len(self.blocks) - 1


def graph_of(code: Code) -> Graph:
    """Return the graph of a kernel's machine code. Raises NoPrediction for recursive functions."""
    graph = Graph()
    exits: list[int] = []
    _add_function(code, 0, graph, exits, ())
    end = len(graph.blocks)
    graph.blocks.append(-1)
    graph.sizes.append(0)
    graph.edges += [(node, end, PLAIN) for node in exits]
    graph.edges += _between_ways(graph)
    graph.edges = list(dict.fromkeys(graph.edges))
    return graph


def _add_function(
    code: Code, entry: int, graph: Graph, exits: list[int], callers: tuple[int, ...]
) -> tuple[int, list[int]]:
    """Add a copy of all that is reachable from a block; return its first node and the nodes that
    return."""
    if entry in callers:
        raise NoPrediction("a function calls itself")
    nodes: dict[int, int] = {}
    returning: list[int] = []
    todo: list[int] = []

    def node_of(block: int) -> int:
        if block not in nodes:
            nodes[block] = len(graph.blocks)
            graph.blocks.append(block)
            graph.sizes.append(code.blocks[block].end - code.blocks[block].start)
            todo.append(block)
        return nodes[block]

    node_of(entry)
    while todo:
        block = code.blocks[todo.pop()]
        node = nodes[block.index]
        if len(graph.blocks) > _MOST_NODES:
            raise NoPrediction("the machine code has too many calls")
        following = None if block.following is None else node_of(block.following)
        kind = DIVERGING if block.diverging else PLAIN
        graph.edges += [(node, node_of(target), kind) for target in block.branches]
        if block.calls is not None:
            first, ends = _add_function(code, block.calls, graph, exits, (*callers, entry))
            graph.edges.append((node, first, PLAIN))
            if following is not None:
                graph.edges += [(each, following, PLAIN) for each in ends]
                if code.instructions[block.end - 1].guarded:
                    graph.edges.append((node, following, PLAIN))
        elif following is not None:
            graph.edges.append((node, following, UNKNOWN if block.unknown_call else PLAIN))
        if block.returns:
            returning.append(node)
        if block.exits:
            exits.append(node)
    return nodes[entry], returning


def _between_ways(graph: Graph) -> list[tuple[int, int, int]]:
    """Return edges from where one way of a branch ends to where the other begins."""
    successors: dict[int, list[int]] = defaultdict(list)
    for start, stop, _ in graph.edges:
        successors[start].append(stop)
    meets = _immediate_postdominators(graph, successors)
    found = []
    for node, ways in list(successors.items()):
        if len(ways) < 2 or node not in meets:
            continue
        meeting = meets[node]
        # One order is enough, and both would be a circle.
        sides = sorted(way for way in dict.fromkeys(ways) if way != meeting)
        if len(sides) < 2:
            continue
        for side in sides:
            reached = reachable(side, successors, {meeting})
            ends = [each for each in reached if meeting in successors[each]]
            later = [other for other in sides if other > side and other not in reached]
            found += [(end, other, PARTED) for end in ends for other in later]
    return found


def reachable(
    first: int, ways: Mapping[int, list[int]], without: Set[int] = frozenset()
) -> Set[int]:
    """Return all nodes that one leads to, itself first, by ways through none of `without`, in the
    order in which a search finds them."""
    found: dict[int, None] = {}
    todo = [first]
    while todo:
        node = todo.pop()
        if node not in found and node not in without:
            found[node] = None
            todo += ways.get(node, ())
    return found.keys()


def _immediate_postdominators(graph: Graph, successors: dict[int, list[int]]) -> dict[int, int]:
    """Return the immediate postdominator of each node that reaches the end: among the other nodes
    on every way from it to the end, the one that a search from the end finds last."""
    before: dict[int, list[int]] = defaultdict(list)
    for start, stops in successors.items():
        for stop in stops:
            before[stop].append(start)
    order = [*reachable(graph.end, before)]
    place = {node: number for number, node in enumerate(order)}
    # For each node, a bit for every node that no way to the end avoids, by its place.
    always = {graph.end: 1}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            common = -1
            for each in successors[node]:
                common &= always.get(each, -1)
            found = common | 1 << place[node]
            changed |= always.get(node) != found
            always[node] = found
    others = {node: always[node] ^ 1 << place[node] for node in order[1:]}
    return {node: order[bits.bit_length() - 1] for node, bits in others.items()}
