"""A verdict as tables for people."""

import math
import re
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nvfp4.cli.findings import summarise
from nvfp4.cli.problem import shape_of
from nvfp4.cli.retargeting import retargeting_lines
from nvfp4.cli.text import first_lines
from nvfp4.cli.verdict import BenchmarkResult, Device, TestResult, Verdict

_styles = {"pass": "green", "fail": "bold red", "skipped": "dim"}
_shown_failures = 3
_shown_findings = 5


def show(console: Console, verdict: Verdict) -> None:
    """Tables of tests and benchmarks, the score, failures, warnings, and the verdict last."""
    if verdict.tests:
        console.print(tests_table(verdict.tests), "")
        error = error_line(verdict)
        if error:
            console.print(error)
    if verdict.benchmarks:
        if not verdict.emulated:
            console.print(benchmarks_table(verdict), "")
        else:
            console.print(emulation_table(verdict), "")
            console.print(Text(emulation_legend, style="dim"))
        console.print(Text(b200_legend, style="dim"))
        console.print(score_line(verdict))
    for text in retargeting_lines(verdict.device.retargeted if verdict.device else []):
        console.print(Text(text, style="dim"))
    for line in failure_lines(verdict):
        console.print(line)
    for line in finding_lines(verdict):
        console.print(line)
    for warning in verdict.warnings:
        console.print(Text.assemble(("warning: ", "yellow"), warning.message))
        console.print(Text(f"  {warning.hint}", style="dim"))
    console.print(closing_line(verdict))


def new_table(title: str) -> Table:
    """A plain table, narrow enough for a hundred columns."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )


def tests_table(tests: list[TestResult]) -> Table:
    """A row for each shape, a column for each kind of inputs."""
    table = new_table("Tests")
    for heading in ("#", "m", "k", "l"):
        table.add_column(heading, justify="right")
    table.add_column("contest inputs")
    table.add_column("full-range inputs")
    contest = [test for test in tests if test.inputs == "contest"]
    full = [test for test in tests if test.inputs == "full"]
    for number, (one, other) in enumerate(zip(contest, full, strict=True), 1):
        shape = shape_of(one.spec)
        row = [str(value) for value in (number, shape.m, shape.k, shape.l)]
        table.add_row(*row, _status(one.status), _status(other.status))
    return table


def benchmarks_table(verdict: Verdict) -> Table:
    """A row for each shape: statistics, bandwidth, floor, and what a B200 can do at best.

    Times are in microseconds, or in milliseconds where all of them are long.
    """
    means = [each.mean_us for each in verdict.benchmarks if each.mean_us is not None]
    unit, divisor = ("ms", 1e3) if means and min(means) >= 1e3 else ("us", 1.0)
    table = new_table(f"Benchmarks, times in {unit}{flushed(verdict.device)}")
    table.add_column("m x k x l", no_wrap=True)
    headings = ("mean", "± err", "median", "best", "worst", "queued", "GB/s", "floor", "of floor")
    for heading in (*headings, "SOL us", "floor us"):
        table.add_column(f"B200\n{heading}" if heading.endswith("us") else heading, justify="right")
    for benchmark in verdict.benchmarks:
        shape = str(shape_of(benchmark.spec))
        table.add_row(shape, *_benchmark_cells(benchmark, divisor))
    return table


def _benchmark_cells(benchmark: BenchmarkResult, divisor: float) -> Iterator[str | Text]:
    def time(value_us: float | None) -> str:
        return microseconds(None if value_us is None else value_us / divisor)

    if not benchmark.timed:
        yield _status(benchmark.status)
        yield from [""] * 6
    else:
        style = "" if benchmark.status == "pass" else "bold red"
        yield Text(time(benchmark.mean_us), style=style)
        for value in (benchmark.err_us, benchmark.median_us, benchmark.best_us, benchmark.worst_us):
            yield time(value)
        yield time(benchmark.batched_us)
        yield _gbps(benchmark)
    yield time(benchmark.floor_us)
    yield _percent(benchmark.floor_us, benchmark.mean_us)
    yield microseconds(benchmark.sol_us)
    yield b200_floor(benchmark.b200_floor_us)


b200_legend = (
    "B200: the contest's speed of light; then the least that its clock can show, as others have\n"
    "measured it, since its flush leaves lines in the cache that a call must write back"
)


def flushed(device: Device | None) -> str:
    """After which flush calls are timed, as the end of a title; nothing without a GPU."""
    if device is None or device.flush is None:
        return ""
    return ", after the contest's flush" if device.flush == "contest" else ", after a clean flush"


def b200_floor(value_us: float | None) -> str:
    """With the digits that those who measured it gave."""
    return "-" if value_us is None else f"{value_us:.1f}"


emulation_legend = (
    "MB: distinct 32-byte sectors; x min: over the least a kernel must move; M instr: millions of\n"
    "warp instructions of the PTX; /elem: a lane's for each element of a; bank: shared-memory\n"
    "conflicts; div.: branches at which a warp diverges; memory, issue: the least time a B200\n"
    "needs for the bytes at 8 TB/s and for the instructions at full rate"
)


def emulation_table(verdict: Verdict) -> Table:
    """A row for each shape: what the emulated call did, and what a B200 needs for it at least."""
    arch = verdict.device.emulates if verdict.device else ""
    table = new_table(f"Benchmarks, emulated as {arch}: counts, no times")
    table.add_column("m x k x l", no_wrap=True)
    table.add_column("result", no_wrap=True)
    headings = ("MB", "x min", "M instr", "/elem", "bank", "div.")
    for heading in (*headings, "memory us", "issue us", "SOL us", "floor us"):
        table.add_column(f"B200\n{heading}" if heading.endswith("us") else heading, justify="right")
    for benchmark in verdict.benchmarks:
        shape, counts = shape_of(benchmark.spec), benchmark.emulation
        if counts is None:
            table.add_row(str(shape), _status(benchmark.status))
            continue
        instructions = counts["warp_instructions_total"]
        table.add_row(
            str(shape),
            _status(benchmark.status),
            f"{counts['distinct_bytes'] / 1e6:.1f}",
            f"{counts['distinct_bytes'] / (counts['minimum_bytes'] or math.nan):.3f}",
            f"{instructions / 1e6:.2f}",
            f"{32 * instructions / (shape.m * shape.k * shape.l):.2f}",
            f"{counts['bank_conflicts']:,}",
            f"{counts['divergent_branches']:,}",
            microseconds(counts["b200_memory_us"]),
            microseconds(counts["b200_issue_us"]),
            microseconds(benchmark.sol_us),
            b200_floor(benchmark.b200_floor_us),
        )
    return table


def score_line(verdict: Verdict) -> Text:
    """The geometric mean, or that there is none."""
    score = verdict.score
    if score.geomean_us is None:
        return Text(f"geometric mean: none, {score.reason}", style="bold")
    line = Text.assemble(
        ("geometric mean: ", "bold"), (microseconds(score.geomean_us), "bold"), " us"
    )
    if score.floor_geomean_us:
        share = _percent(score.floor_geomean_us, score.geomean_us)
        line.append(f"   floor here {microseconds(score.floor_geomean_us)} us ({share} of it)")
    if score.sol_geomean_us:
        line.append(f"   B200: {microseconds(score.sol_geomean_us)} us")
        if score.b200_floor_geomean_us:
            line.append(f", {b200_floor(score.b200_floor_geomean_us)} us")
    return line


def failure_lines(verdict: Verdict) -> Iterator[Text]:
    """The messages of the first failures; equal ones once."""
    shown: dict[str, int] = {}
    results: list[tuple[str, TestResult | BenchmarkResult]] = [
        *((f"test, {test.inputs} inputs", test) for test in verdict.tests),
        *(("benchmark", benchmark) for benchmark in verdict.benchmarks),
    ]
    for what, result in results:
        if result.status != "fail" or not result.message:
            continue
        # The same fault lies at another address in each case.
        same = re.sub(r"\b0x[0-9a-f]+\b", "", result.message)
        shown[same] = shown.get(same, 0) + 1
        if shown[same] > 1 or len(shown) > _shown_failures:
            continue
        yield Text.assemble((f"failed: {what}, {result.spec}", "bold red"))
        for line in first_lines(result.message):
            yield Text(f"  {line}")
    hidden = sum(shown.values()) - min(len(shown), _shown_failures)
    if hidden:
        yield Text(f"and {hidden} more failures; --json shows every message", style="dim")


def finding_lines(verdict: Verdict) -> Iterator[Text]:
    """Each finding once, with its place, how often it was found, and a hint."""
    results: list[TestResult | BenchmarkResult] = [*verdict.tests, *verdict.benchmarks]
    summaries = summarise(each.findings for each in results)
    for summary in summaries[:_shown_findings]:
        finding = summary.finding
        yield Text.assemble(("finding: ", "yellow"), f"{summary.place}: {finding['message']}")
        often = f"{finding['code']}, {summary.count:,} times in {summary.cases} cases"
        hint = f"; {finding['hint']}" if finding.get("hint") else ""
        yield Text(f"  {often}{hint}", style="dim")
    hidden = len(summaries) - _shown_findings
    if hidden > 0:
        yield Text(f"and {hidden} more findings; --json shows every one", style="dim")


def error_line(verdict: Verdict) -> Text | None:
    """How far the outputs are from the limit; None where nothing was compared."""
    shares = [each.error_share for each in verdict.tests if each.inputs == "contest"]
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Text(f"largest error on the contest's inputs: {max(known):.1%} of the allowed one")


def closing_line(verdict: Verdict) -> Text:
    """Passed or failed, in one line."""
    contest = [test for test in verdict.tests if test.inputs == "contest"]
    right = sum(test.status == "pass" for test in contest)
    if verdict.passed:
        return Text("passed", style="bold green")
    if right < len(contest):
        return Text(f"failed: {right} of {len(contest)} contest tests passed", style="bold red")
    return Text("failed", style="bold red")


def device_line(device: Device) -> Text:
    """What judges: the GPU, or that there is none."""
    if device.kind == "cuda":
        return Text(f"judging on {device.name} (sm_{(device.capability or '').replace('.', '')})")
    if device.emulates:
        return Text(
            f"judging on the CPU: kernels are emulated as {device.emulates}, they are not timed"
        )
    return Text("judging on the CPU; CuTe DSL is not installed, so its kernels cannot run")


def test_line(test: TestResult) -> Text:
    """A finished test as one line."""
    return Text.assemble(
        f"test       {shape_of(test.spec)!s:<18} {test.inputs + ' inputs':<15} ",
        _status(test.status),
    )


def benchmark_line(benchmark: BenchmarkResult) -> Text:
    """A finished benchmark as one line."""
    line = Text.assemble(f"benchmark  {shape_of(benchmark.spec)!s:<18} ", _status(benchmark.status))
    if benchmark.mean_us is not None:
        line.append(f"  mean {microseconds(benchmark.mean_us)} us")
    return line


def microseconds(value: float | None) -> str:
    """A time with the digits that mean something; a dash for None."""
    if value is None:
        return "-"
    digits = 3 if value < 100 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}"


def _status(status: str) -> Text:
    return Text(status, style=_styles.get(status, ""))


def _gbps(benchmark: BenchmarkResult) -> str:
    if not benchmark.bytes or not benchmark.mean_us:
        return "-"
    gbps = benchmark.bytes / benchmark.mean_us / 1e3
    return f"{gbps:,.0f}" if gbps >= 100 else f"{gbps:.3g}"


def _percent(part: float | None, whole: float | None) -> str:
    if not part or not whole:
        return "-"
    share = part / whole
    return f"{share:.1%}" if share < 0.9995 else f"{share:.0%}"
