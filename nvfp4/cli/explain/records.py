"""What the kernels of a call cost by line, as it came from the submission's process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from nvfp4.cli.text import visible_json

slots_a_pass = 4
"""An SM issues four warp instructions in the cycle of one pass of shared memory, or of four sectors
of global memory."""

_largest = 2**63
_most_entries = 100_000

T = TypeVar("T")


class BadExplanation(ValueError):
    """What came is not what `local.explained_calls` writes."""


@dataclass(frozen=True)
class Access:
    """See `emulator.cost.AccessCost`."""

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
    conflict_ways: int | None
    conflict_bank: int | None
    conflict_lanes: list[int]


@dataclass(frozen=True)
class Read:
    """See `emulator.cost.ReadCost`."""

    buffer: str
    requested_bytes: int
    distinct_bytes: int

    @property
    def times(self) -> float:
        """How often each byte is loaded."""
        return self.requested_bytes / max(self.distinct_bytes, 1)


@dataclass(frozen=True)
class Code:
    """An instruction of PTX or SASS at a line of source; count: how many warps ran it, None for
    SASS.
    """

    file: str | None
    line: int | None
    text: str
    count: int | None = None


@dataclass(frozen=True)
class Line:
    """See `emulator.cost.LineCost`."""

    file: str | None
    line: int | None
    instructions: int
    lanes: int
    registers: int
    divergences: int
    idle: float
    callers: list[int]
    opcodes: dict[str, int]
    accesses: list[Access]
    reads: list[Read]

    @property
    def sectors(self) -> int:
        """Sectors of global memory that warps ask for."""
        return sum(each.sectors for each in self.accesses)

    @property
    def least_sectors(self) -> int:
        """What as many bytes would need next to each other."""
        return sum(each.least_sectors for each in self.accesses)

    @property
    def passes(self) -> int:
        """Passes of shared memory."""
        return sum(each.passes for each in self.accesses)

    @property
    def least_passes(self) -> int:
        """The same without bank conflicts."""
        return sum(each.least_passes for each in self.accesses)

    @property
    def slots(self) -> float:
        """The cost: issue slots of an SM, of which a sector takes one."""
        return self.instructions + self.sectors + slots_a_pass * self.passes


@dataclass(frozen=True)
class Kernel:
    """See `emulator.cost.KernelCost`. assembled_registers, spilled_bytes: None without ptxas.
    no_sass: why there is none.
    """

    kernel: str
    grid: list[int]
    block: list[int]
    shared_bytes: int
    local_bytes: int
    ctas_run: int
    ctas_total: int
    launches: int
    instructions: int
    registers: int
    lines: list[Line]
    assembled_registers: int | None
    spilled_bytes: int | None
    ptx: list[Code]
    sass: list[Code]
    no_sass: str | None

    @property
    def slots(self) -> float:
        """The cost of all lines."""
        return sum(line.slots for line in self.lines)


def read_explanations(text: str) -> list[dict[str, Any]]:
    """An object for each case: `kernels` as Kernel records, or `error` and its `code`. Raises
    BadExplanation."""
    try:
        cases = visible_json(text)
    except (ValueError, RecursionError):
        raise BadExplanation("the counts are not JSON") from None
    found = []
    for case in _list(cases):
        if not isinstance(case, dict):
            raise BadExplanation("a case is no object")
        error = case.get("error")
        kernels = (
            [] if error is not None else [_kernel(each) for each in _list(case.get("kernels"))]
        )
        code = case.get("code")
        said = {"error": None if error is None else str(error), "kernels": kernels}
        found.append({**said, "code": code if isinstance(code, str) else None})
    return found


def _kernel(value: Any) -> Kernel:
    plain = dict(value) if isinstance(value, dict) else {}
    plain["lines"] = [_line(each) for each in _list(plain.get("lines"))]
    plain["ptx"] = [_record(Code, each) for each in _list(plain.get("ptx", []))]
    plain["sass"] = [
        _record(Code, {**each, "count": None} if isinstance(each, dict) else each)
        for each in _list(plain.get("sass", []))
    ]
    plain.setdefault("no_sass", None)
    return _record(Kernel, plain)


def _line(value: Any) -> Line:
    plain = dict(value) if isinstance(value, dict) else {}
    plain["accesses"] = [_record(Access, each) for each in _list(plain.get("accesses"))]
    plain["reads"] = [_record(Read, each) for each in _list(plain.get("reads"))]
    return _record(Line, plain)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _most_entries:
        raise BadExplanation("a list is missing")
    return value


def _record(kind: type[T], value: Any) -> T:
    """A record from an object that has each of its fields, of its type."""
    if not isinstance(value, dict):
        raise BadExplanation(f"{kind.__name__} is no object")
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        each = value.get(field.name)
        if not _fits(str(field.type), each):
            raise BadExplanation(f"{kind.__name__} has no {field.name}")
        values[field.name] = each
    return kind(**values)


def _fits(wanted: str, value: Any) -> bool:
    if wanted.endswith(" | None"):
        return value is None or _fits(wanted.removesuffix(" | None"), value)
    if wanted in ("int", "float"):
        number = isinstance(value, (int, float)) if wanted == "float" else isinstance(value, int)
        return number and not isinstance(value, bool) and -_largest < value < _largest
    if wanted == "list[int]":
        return isinstance(value, list) and all(_fits("int", each) for each in value)
    if wanted == "dict[str, int]":
        return isinstance(value, dict) and all(_fits("int", each) for each in value.values())
    return isinstance(value, {"str": str}.get(wanted, list))


def all_lines(kernels: list[Kernel]) -> Iterator[tuple[Kernel, Line]]:
    """Every line of every kernel."""
    for kernel in kernels:
        for line in kernel.lines:
            yield kernel, line
