"""CSV, a row for each case."""

import csv
import io

from nvfp4.cli.display.formats.cases import Case, cases_of, path_of
from nvfp4.cli.text import visible
from nvfp4.cli.verdict import Verdict

columns = (
    *("kind", "m", "k", "l", "inputs", "status", "code", "causes", "message"),
    *("file", "line", "column", "kernel", "error_share", "findings"),
    *("timed", "runs", "mean_us", "median_us", "std_us", "err_us", "best_us", "worst_us"),
    *("batched_us", "floor_us", "sol_us", "b200_floor_us", "bytes"),
    *("full_range", "unverified"),
    *("warp_instructions", "sectors_requested", "sectors_distinct", "bank_conflicts"),
)

_formulas = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""A spreadsheet computes a cell that begins with one of these, the last four being full-width."""


def write(verdict: Verdict) -> str:
    """A header, then the rows, one of kind `file` where nothing could be run. Empty where nothing
    is known; text never is a formula."""
    page = io.StringIO()
    writer = csv.DictWriter(page, columns, lineterminator="\n")
    writer.writeheader()
    if verdict.mistake:
        told = {**vars(verdict.mistake), "kind": "file", "status": "fail"}
        told["code"] = f"mistake.{verdict.mistake.code}"
        told["file"] = path_of(verdict.mistake.file, verdict)
        writer.writerow({name: _cell(told.get(name)) for name in columns})
    for case in cases_of(verdict):
        cells = _cells(case, verdict)
        writer.writerow({name: _cell(cells.get(name)) for name in columns})
    return page.getvalue()


def _cells(case: Case, verdict: Verdict) -> dict[str, object]:
    result, shape = case.result, case.shape
    cells: dict[str, object] = dict(vars(result))
    cells |= {"kind": case.kind, "inputs": case.inputs, "m": shape.m, "k": shape.k, "l": shape.l}
    cells["findings"] = " ".join(each.code for each in result.findings)
    failure = result.failure
    if failure:
        cells |= vars(failure) | {"message": result.message}
        cells["file"] = path_of(failure.file, verdict)
        cells["causes"] = " ".join(each["code"] for each in failure.causes)
    counts = case.benchmark.emulation if case.benchmark else None
    if counts:
        cells |= {name: counts.get(name) for name in columns[-3:]}
        cells["warp_instructions"] = counts["warp_instructions_total"]
    return cells


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_formulas) else text
