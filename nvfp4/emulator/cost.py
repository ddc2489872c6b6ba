"""The costs of a launch by line of source."""

from collections import Counter
from dataclasses import asdict, field, replace
from typing import Any

from nvfp4.emulator.report import LaunchReport
from nvfp4.emulator.work import Work
from nvfp4.records.costs import AccessCost, KernelCounts, LineCost, ReadCost


class KernelCost(KernelCounts):
    """The costs of a launch, with its PTX."""

    entry: str
    work: Work | None = field(repr=False, compare=False, default=None)
    """Counts for each warp of the first launch, in the CTAs that ran."""
    ptx: str = field(repr=False, default="")
    ptx_lines: dict[int, tuple[int, str | None, int | None]] = field(
        repr=False, default_factory=dict
    )
    """(warp instructions, file, line) for each line of the PTX that has instructions."""

    def report(self) -> LaunchReport:
        """Return the counts that scale from the CTAs that ran to all of them."""
        return LaunchReport(
            kernel=self.entry,
            grid=self.grid,
            block=self.block,
            shared_bytes=self.shared_bytes,
            ctas_run=self.ctas_run,
            ctas_total=self.ctas_total,
            warp_instructions={"scaled": self.instructions},
            tensor_instructions=sum(each.tensor_products for each in self.lines),
            tensor_cycles=sum(each.tensor_cycles for each in self.lines),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the PTX."""
        left_out = ("ptx", "ptx_lines", "work")
        plain = {name: value for name, value in vars(self).items() if name not in left_out}
        plain["lines"] = [asdict(line) for line in self.lines]
        return plain


def merged(costs: list[KernelCost]) -> list[KernelCost]:
    """Return one entry for each kernel, in the order of first launches.

    Launches of equal code are added up; grid and block are those of the first.
    """
    found: dict[tuple[str, str], KernelCost] = {}
    for cost in costs:
        code = cost.entry, cost.ptx
        found[code] = _sum(found[code], cost) if code in found else cost
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
"""The counts of accesses that a line and an instruction have in common."""


def _access_sum(one: AccessCost, other: AccessCost) -> AccessCost:
    worst = one if (one.conflict_ways or 0) >= (other.conflict_ways or 0) else other
    return replace(worst, **_added(one, other, *ADDED))


def _added(one: object, other: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in names}
