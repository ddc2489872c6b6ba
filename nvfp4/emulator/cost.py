"""What a launch costs, by line of source."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class AccessCost:
    """The accesses of a line with one opcode and one stride; the counts are those of
    `state.tally.SiteTally`, the conflict is the worst one.
    """

    opcode: str
    nbytes: int
    requests: int
    sectors: int
    least_sectors: int
    passes: int
    least_passes: int
    repeats: int
    moves: int
    stride_bytes: int | None
    conflict_ways: int | None = None
    conflict_bank: int | None = None
    conflict_lanes: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReadCost:
    """What a line reads of a buffer: bytes, each counted once a request of a warp, and how many
    different ones there are.
    """

    buffer: str
    requested_bytes: int
    distinct_bytes: int


@dataclass
class LineCost:
    """Counts of a line over the launch.

    file, line: of the user's source; both None for what comes from no line that is known. callers:
    lines of the same file into which the code of this one was inlined, the nearest ones. opcodes:
    warp instructions by opcode. lanes: active threads, summed over the warp instructions.
    registers: 32-bit registers that are live there at most. divergences: branches at which a warp's
    threads went different ways. tensor_products: of tensor cores, which are busy with them for
    tensor_cycles; tensor_bytes: to and from tensor memory. idle: warp instructions that would be
    saved if the threads that go different ways here did all they do together.
    """

    file: str | None
    line: int | None
    instructions: int = 0
    lanes: int = 0
    registers: int = 0
    divergences: int = 0
    tensor_products: int = 0
    tensor_cycles: int = 0
    tensor_bytes: int = 0
    idle: float = 0.0
    callers: list[int] = field(default_factory=list)
    opcodes: dict[str, int] = field(default_factory=dict)
    accesses: list[AccessCost] = field(default_factory=list)
    reads: list[ReadCost] = field(default_factory=list)


@dataclass
class KernelCost:
    """A launch. ctas_run: of ctas_total, to which the counts are scaled. Bytes that are read more
    than once are counted in those that ran.

    ptx_lines: by line of the PTX text that has instructions, (warp instructions, file, line).
    """

    kernel: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    local_bytes: int
    ctas_run: int
    ctas_total: int
    instructions: int
    registers: int
    lines: list[LineCost]
    launches: int = 1
    ptx: str = field(repr=False, default="")
    ptx_lines: dict[int, tuple[int, str | None, int | None]] = field(
        repr=False, default_factory=dict
    )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the PTX."""
        plain = {name: value for name, value in vars(self).items() if not name.startswith("ptx")}
        plain["lines"] = [asdict(line) for line in self.lines]
        return plain


def merged(costs: list[KernelCost]) -> list[KernelCost]:
    """One entry for each kernel, in the order of first launches: those of equal code are added up,
    and the grid and block are the first one's.
    """
    found: dict[tuple[str, str], KernelCost] = {}
    for cost in costs:
        known = found.get((cost.entry, cost.ptx))
        if known is None:
            found[cost.entry, cost.ptx] = cost
        else:
            found[cost.entry, cost.ptx] = _sum(known, cost)
    return list(found.values())


def _sum(one: KernelCost, other: KernelCost) -> KernelCost:
    return replace(
        one,
        **_added(one, other, "launches", "ctas_run", "ctas_total", "instructions"),
        # Of the same code: the same lines in the same order.
        lines=[_line_sum(*pair) for pair in zip(one.lines, other.lines, strict=True)],
        ptx_lines={
            number: (count + other.ptx_lines[number][0], file, line)
            for number, (count, file, line) in one.ptx_lines.items()
        },
    )


def _line_sum(one: LineCost, other: LineCost) -> LineCost:
    accesses = {(each.opcode, each.nbytes, each.stride_bytes): each for each in one.accesses}
    for access in other.accesses:
        kind = access.opcode, access.nbytes, access.stride_bytes
        accesses[kind] = _access_sum(accesses[kind], access) if kind in accesses else access
    reads = {each.buffer: each for each in one.reads}
    for read in other.reads:
        known = reads.get(read.buffer, ReadCost(read.buffer, 0, 0))
        reads[read.buffer] = replace(known, **_added(known, read, *_READ))
    return replace(
        one,
        **_added(one, other, "instructions", "lanes", "divergences", "idle", *_TENSOR),
        opcodes=dict(Counter(one.opcodes) + Counter(other.opcodes)),
        accesses=list(accesses.values()),
        reads=list(reads.values()),
    )


_TENSOR = ("tensor_products", "tensor_cycles", "tensor_bytes")
_READ = ("requested_bytes", "distinct_bytes")
ADDED = ("requests", "sectors", "least_sectors", "passes", "least_passes", "repeats", "moves")
"""The counts of accesses, of a line as of an instruction."""


def _access_sum(one: AccessCost, other: AccessCost) -> AccessCost:
    worst = one if (one.conflict_ways or 0) >= (other.conflict_ways or 0) else other
    return replace(worst, **_added(one, other, *ADDED))


def _added(one: object, other: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in names}
