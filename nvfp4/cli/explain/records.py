"""What the kernels of a call cost by line, as it came from the submission's process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from nvfp4.cli.text import visible_json
from nvfp4.records.plain import NotPlain, record
from nvfp4.records.prediction import Prediction, read_prediction

slots_a_pass = 4
"""An SM issues four warp instructions in the cycle of one pass of shared memory, or of four sectors
of global memory."""

_most_entries = 100_000


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
    """See `emulator.cost.LineCost`. us: of the predicted time; without_us: what that would be if
    the line cost nothing. None where that is not known.
    """

    file: str | None
    line: int | None
    instructions: int
    lanes: int
    registers: int
    divergences: int
    tensor_cycles: int
    idle: float
    callers: list[int]
    opcodes: dict[str, int]
    accesses: list[Access]
    reads: list[Read]
    us: float | None = None
    without_us: float | None = None
    tensor_products: int = 0
    tensor_bytes: int = 0

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
    predicted: Prediction | None = None

    @property
    def tensor_products(self) -> int:
        """Products of tensor cores."""
        return sum(line.tensor_products for line in self.lines)

    @property
    def tensor_bytes(self) -> int:
        """Bytes to and from tensor memory."""
        return sum(line.tensor_bytes for line in self.lines)

    @property
    def tensor_cycles(self) -> int:
        """How long the tensor cores of all multiprocessors are busy, added up."""
        return sum(line.tensor_cycles for line in self.lines)

    @property
    def slots(self) -> float:
        """The cost of all lines."""
        return sum(line.slots for line in self.lines)


def read_explanations(text: str) -> list[dict[str, Any]]:
    """An object for each case: `kernels` as Kernel records, or `error` and its `code`. Raises
    NotPlain."""
    found = []
    for case in _list(visible_json(text)):
        if not isinstance(case, dict):
            raise NotPlain("a case is no object")
        error = case.get("error")
        kernels = (
            [] if error is not None else [_kernel(each) for each in _list(case.get("kernels"))]
        )
        code = case.get("code")
        said = {"error": None if error is None else str(error), "kernels": kernels}
        found.append({**said, "code": code if isinstance(code, str) else None})
    return found


def _kernel(value: Any) -> Kernel:
    plain = {"no_sass": None, **value} if isinstance(value, dict) else {}
    predicted = read_prediction(plain.pop("predicted", None))
    plain["lines"] = [_line(each) for each in _list(plain.get("lines"))]
    for name in ("ptx", "sass"):
        codes = _list(plain.get(name, []))
        plain[name] = [record(Code, _with_count(each)) for each in codes]
    return replace(record(Kernel, {**plain, "predicted": None}), predicted=predicted)


def _with_count(value: Any) -> Any:
    return {"count": None, **value} if isinstance(value, dict) else value


def _line(value: Any) -> Line:
    plain = {"us": None, "without_us": None, **value} if isinstance(value, dict) else {}
    plain["accesses"] = [record(Access, each) for each in _list(plain.get("accesses"))]
    plain["reads"] = [record(Read, each) for each in _list(plain.get("reads"))]
    return record(Line, plain)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _most_entries:
        raise NotPlain("a list is missing")
    return value


def all_lines(kernels: list[Kernel]) -> Iterator[tuple[Kernel, Line]]:
    """Every line of every kernel."""
    for kernel in kernels:
        for line in kernel.lines:
            yield kernel, line
