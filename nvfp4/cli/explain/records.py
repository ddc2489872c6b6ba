"""What the kernels of a call cost by line, as it came from the submission's process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from nvfp4.cli.text import visible_json
from nvfp4.records.channel import NotPlain, record
from nvfp4.records.costs import AccessCost, LineCost, ReadCost
from nvfp4.records.failures import Finding, read_findings
from nvfp4.records.prediction import Prediction, read_prediction

_most_entries = 100_000


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
class Kernel:
    """See `emulator.cost.KernelCost`. assembled_registers, spilled_bytes: None without ptxas.
    no_sass: why there is none. findings: those that advise, with their lines.
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
    lines: list[LineCost]
    assembled_registers: int | None
    spilled_bytes: int | None
    ptx: list[Code]
    sass: list[Code]
    no_sass: str | None
    predicted: Prediction | None = None
    findings: list[Finding] = field(default_factory=list)

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
    findings = read_findings(plain.pop("findings", None))
    plain["lines"] = [_line(each) for each in _list(plain.get("lines"))]
    for name in ("ptx", "sass"):
        codes = _list(plain.get(name, []))
        plain[name] = [record(Code, _with_count(each)) for each in codes]
    known = record(Kernel, {**plain, "predicted": None, "findings": []})
    return replace(known, predicted=predicted, findings=findings)


def _with_count(value: Any) -> Any:
    return {"count": None, **value} if isinstance(value, dict) else value


def _line(value: Any) -> LineCost:
    plain = {"us": None, "without_us": None, **value} if isinstance(value, dict) else {}
    plain["accesses"] = [record(AccessCost, each) for each in _list(plain.get("accesses"))]
    plain["reads"] = [record(ReadCost, each) for each in _list(plain.get("reads"))]
    return record(LineCost, plain)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _most_entries:
        raise NotPlain("a list is missing")
    return value


def all_lines(kernels: list[Kernel]) -> Iterator[tuple[Kernel, LineCost]]:
    """Every line of every kernel."""
    for kernel in kernels:
        for line in kernel.lines:
            yield kernel, line
