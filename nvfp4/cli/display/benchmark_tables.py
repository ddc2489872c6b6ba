"""The benchmarks of a verdict: a table of times, or of counts where kernels were emulated."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from rich.text import Text

from nvfp4.cli.display.console import Column
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import microseconds, percent
from nvfp4.cli.verdict import BenchmarkResult, Device, TestResult, Verdict, rankings
from nvfp4.records.cases import short_value

_b200_floor_note = (
    "about the least that its clock can show, as others have measured it, since its flush leaves "
    "lines in the cache that a call must write back"
)


unverified_note = "unverified: what host code computes is not counted"


def title(verdict: Verdict) -> str:
    """Return the title of the table of benchmarks."""
    if not verdict.emulated:
        unit, _ = _unit(verdict)
        return f"Benchmarks, times in {unit}{flushed(verdict.device)}"
    if any(each.emulation for each in verdict.benchmarks) and verdict.device:
        return f"Benchmarks, emulated as {verdict.device.emulates}: counts and bounds, no times"
    return "Benchmarks, not timed"


def benchmark_columns(verdict: Verdict) -> list[Column]:
    """Return the columns of times, or of counts if the kernels were emulated."""
    return _counts(verdict.benchmarks) if verdict.emulated else _times(verdict)


def _unit(verdict: Verdict) -> tuple[str, float]:
    """Return the unit of the times, ms if all are long and else us, and how many microseconds it
    has."""
    means = [each.mean_us for each in verdict.benchmarks if each.mean_us is not None]
    return ("ms", 1e3) if means and min(means) >= 1e3 else ("us", 1.0)


def _times(verdict: Verdict) -> list[Column]:
    """Return a row for each shape: statistics, bandwidth, floor, and what a B200 can do at best."""
    _, divisor = _unit(verdict)
    benchmarks = verdict.benchmarks

    def times(heading: str, name: str, rank: int, note: str = "") -> Column:
        values = [getattr(each, name) if each.timed else None for each in benchmarks]
        cells = ["" if value is None else microseconds(value / divisor) for value in values]
        return Column(heading, cells, rank, note=note)

    floors = [microseconds(each.floor_us and each.floor_us / divisor) for each in benchmarks]
    least = "no kernel is faster on this device"
    failed = any(each.timed and each.status != "pass" for each in benchmarks)
    results = [status_text(each.status) for each in benchmarks]
    return [
        Column(_names(benchmarks), [str(shape_of(each.spec)) for each in benchmarks], right=False),
        *([Column("result", results, right=False)] if failed else []),
        Column("mean", [_mean(each, divisor) for each in benchmarks]),
        times("err", "err_us", 2, "standard error of the mean"),
        times("median", "median_us", 3),
        times("best", "best_us", 4),
        times("worst", "worst_us", 6),
        times("queued", "batched_us", 9, "a call of many queued back to back, by another clock"),
        Column("GB/s", [_gbps(each) for each in benchmarks], 5),
        Column("floor", floors, 1, note=least),
        Column("of\nfloor", [percent(each.floor_us, each.mean_us) for each in benchmarks], 1),
        *b200_columns(benchmarks, ("B200\nSOL us", 7), ("B200\nfloor us", 8)),
    ]


def b200_columns(
    benchmarks: list[BenchmarkResult], sol: tuple[str, int], floor: tuple[str, int]
) -> list[Column]:
    """Return the columns of lower bounds on a B200. sol, floor: heading and rank of each."""
    bests = [microseconds(each.sol_us) for each in benchmarks]
    floors = [b200_floor(each.b200_floor_us) for each in benchmarks]
    return [
        Column(sol[0], bests, sol[1], note="the contest's speed of light"),
        Column(floor[0], floors, floor[1], note=_b200_floor_note),
    ]


def _names(benchmarks: list[BenchmarkResult]) -> str:
    """Return the heading of the column with the cases."""
    return shape_of(benchmarks[0].spec).names if benchmarks else "case"


def _mean(benchmark: BenchmarkResult, divisor: float) -> Text:
    if not benchmark.timed or benchmark.mean_us is None:
        return status_text(benchmark.status)
    style = "" if benchmark.status == "pass" else "bold red"
    return Text(microseconds(benchmark.mean_us / divisor), style=style)


def _gbps(benchmark: BenchmarkResult) -> str:
    if not benchmark.bytes or not benchmark.mean_us:
        return "-"
    gbps = benchmark.bytes / benchmark.mean_us / 1e3
    return f"{gbps:,.0f}" if gbps >= 100 else f"{gbps:.3g}"


def _counts(benchmarks: list[BenchmarkResult]) -> list[Column]:
    """Return a row for each shape: what the emulated call did, and bounds on a B200's time for
    it."""
    rows = [each.emulation for each in benchmarks]
    each_element = [
        f"{32 * row['warp_instructions_total'] / each.elements:.2f}"
        if row and each.elements
        else ""
        for row, each in zip(rows, benchmarks, strict=True)
    ]
    tensor = any(row and row.get("tensor_cycles") for row in rows)
    counted = [
        Column(heading, ["" if row is None else cell(row) for row in rows], rank, note=note)
        for heading, rank, cell, note in (*_count_columns, *(_tensor_columns if tensor else ()))
    ]
    sampled = _sampled_note if any(map(is_sampled, benchmarks)) else ""
    note = "a lane's instructions for each element of a"
    counted.insert(4, Column("instr\n/elem", each_element, 3, note=note))
    return [
        Column(_names(benchmarks), [str(shape_of(each.spec)) for each in benchmarks], right=False),
        Column("result", [result_text(each) for each in benchmarks], right=False, note=sampled),
        *_whose(benchmarks),
        *counted,
    ]


_sampled_note = "sampled: scaled from some of the thread blocks; the output is unknown"


def is_sampled(benchmark: BenchmarkResult) -> bool:
    """Return whether the counts are those of some of its thread blocks."""
    counts = benchmark.emulation or {}
    return bool(counts.get("ctas_run", 0) < counts.get("ctas_total", 0))


def result_text(benchmark: BenchmarkResult) -> Text:
    """Return the status of a benchmark, or that it was sampled."""
    return status_text("sampled" if is_sampled(benchmark) else benchmark.status)


Cell = Callable[[dict[str, Any]], str]


def _number(name: str) -> Cell:
    return lambda row: f"{row[name]:,}" if name in row else ""


def _millions(name: str, digits: int) -> Cell:
    return lambda row: f"{row[name] / 1e6:.{digits}f}" if row.get(name) else ""


def _over(name: str, least: str, digits: int) -> Cell:
    def cell(row: dict[str, Any]) -> str:
        return f"{row[name] / row[least]:.{digits}f}" if row.get(name) and row.get(least) else ""

    return cell


def _us(name: str) -> Cell:
    return lambda row: microseconds(row[name]) if row[name] else ""


def _tensor_megabytes(row: dict[str, Any]) -> str:
    moved = row.get("tensor_bytes_read", 0) + row.get("tensor_bytes_written", 0)
    return f"{moved / 1e6:.2f}" if moved else ""


_a_bound = "a bound, not a time: no B200 reads these bytes from memory in less"
_issued = "if a B200 issued these instructions; its machine code may have fewer"
_tensor_bound = "a bound, too: these products at the published rates, on all of a B200"
_least_moved = "distinct bytes over the least a kernel must move"
_instructions = "millions of warp instructions of the PTX"
_requested = "sectors that warps ask for, over the distinct ones"

_count_columns: tuple[tuple[str, int, Cell, str], ...] = (
    ("MB", 7, _millions("distinct_bytes", 1), "distinct 32-byte sectors"),
    ("x min", 1, _over("distinct_bytes", "minimum_bytes", 3), _least_moved),
    ("req x", 2, _over("sectors_requested", "sectors_distinct", 2), _requested),
    ("M\ninstr", 4, _millions("warp_instructions_total", 2), _instructions),
    ("bank", 5, _number("bank_conflicts"), "bank conflicts"),
    ("div.", 6, _number("divergent_branches"), "branches at which a warp diverges"),
    ("launches", 8, _number("launches"), "of kernels in a call"),
    ("memory\n>= us", 1, _us("b200_memory_us"), _a_bound),
    ("issue\nus", 5, _us("b200_issue_us"), _issued),
)
"""Heading, rank, cell and note."""

_tensor_columns = (
    ("tensor\ninstr", 6, _number("tensor_instructions"), "products of tensor cores"),
    ("tensor\nMB", 7, _tensor_megabytes, "to and from tensor memory"),
    ("tensor\n>= us", 1, _us("b200_tensor_us"), _tensor_bound),
)


def _whose(benchmarks: list[BenchmarkResult]) -> list[Column]:
    """Return a column that marks counts which may leave out work; none if no count does."""
    if not any(each.emulation and each.unverified for each in benchmarks):
        return []
    cells = ["unverified" if each.unverified else "all" for each in benchmarks]
    return [Column("counts", cells, 0, right=False, note=unverified_note)]


def flushed(device: Device | None) -> str:
    """After which flush calls are timed, as the end of a title; nothing without a GPU."""
    if device is None or device.flush is None:
        return ""
    flushes = {"clean": "a clean flush", "fill": "the problem's flush"}
    return ", after " + flushes.get(device.flush, "the contest's flush")


def b200_floor(value_us: float | None) -> str:
    """Return the floor on a B200 with one decimal place, like the published measurement."""
    return "-" if value_us is None else f"{value_us:.1f}"


def score_line(verdict: Verdict) -> Text:
    """Return what ranks and the geometric mean, or that there is none."""
    score = verdict.score
    if score.geomean_us is None:
        return Text(f"geometric mean: none, {score.reason}", style="bold")
    line = Text()
    if score.ranking_by != "geom":
        line.append(f"{rankings[score.ranking_by]}: {microseconds(score.ranked_us)} us   ", "bold")
    line.append("geometric mean: ", "bold")
    line.append(microseconds(score.geomean_us), "bold").append(" us")
    if score.floor_geomean_us:
        share = percent(score.floor_geomean_us, score.geomean_us)
        line.append(f"   floor here {microseconds(score.floor_geomean_us)} us ({share} of it)")
    if score.sol_geomean_us:
        line.append(f"   B200: {microseconds(score.sol_geomean_us)} us")
        if score.b200_floor_geomean_us:
            line.append(f", {b200_floor(score.b200_floor_geomean_us)} us")
    return line


styles = {
    "pass": "green",
    "fail": "bold red",
    "skipped": "dim",
    "unclear": "yellow",
    "sampled": "yellow",
}


def status_text(status: str) -> Text:
    """Return pass, fail, skipped or unclear, in its colour."""
    return Text(status, style=styles.get(status, ""))


def tests_columns(tests: list[TestResult]) -> list[Column]:
    """Return a row for each shape, a column for each dimension and for each kind of inputs."""
    contest = [test for test in tests if test.inputs == "contest"]
    full = [test for test in tests if test.inputs == "full"]
    rows = list(zip_longest(contest, full))
    sizes = [dict(shape_of((one or other).spec).sizes) for one, other in rows]
    names = dict.fromkeys(name for each in sizes for name in each)
    return [
        Column("#", [str(number) for number in range(len(rows))]),
        *(Column(name, [short_value(each.get(name, "")) for each in sizes]) for name in names),
        Column("contest inputs", [_status(one) for one, _ in rows], right=False),
        *([Column("full-range inputs", [_status(e) for _, e in rows], right=False)] * bool(full)),
    ]


def _status(test: TestResult | None) -> Text:
    return status_text(test.status) if test else Text()


def error_line(verdict: Verdict) -> Text | None:
    """Return how far the outputs are from the limit; None where nothing was compared."""
    shares = [each.error_share for each in verdict.tests if each.inputs == "contest"]
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Text(f"largest error on the contest's inputs: {max(known):.1%} of the allowed one")
