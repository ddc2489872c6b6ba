"""A verdict as tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from nvfp4.cli.display.benchmark_tables import (
    benchmark_columns,
    error_line,
    score_line,
    status_text,
    tests_columns,
    title,
)
from nvfp4.cli.display.closing import closing_line
from nvfp4.cli.display.columns import Column, fitted, legend, table
from nvfp4.cli.display.console import columns_of, rule_of, say
from nvfp4.cli.display.failures import failure_lines, finding_lines
from nvfp4.cli.display.retargeting import retargeting_lines
from nvfp4.cli.output import output_lines
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import microseconds
from nvfp4.cli.verdict import BenchmarkResult, Device, TestResult, Verdict


def show(console: Console, verdict: Verdict) -> None:
    """Tables of tests and benchmarks, the score, failures, warnings, and the verdict last."""
    if verdict.tests:
        show_table(console, "Tests", tests_columns(verdict.tests))
        say(console, error_line(verdict) or "")
    if verdict.benchmarks:
        _show_benchmarks(console, verdict)
    for text in retargeting_lines(verdict.device.retargeted if verdict.device else []):
        say(console, text, "dim")
    for line in (*failure_lines(verdict), *finding_lines(verdict)):
        say(console, line)
    for line in (*output_lines(verdict), *warning_lines(verdict)):
        say(console, line)
    say(console, closing_line(verdict))


def show_table(console: Console, heading: str, columns: list[Column]) -> None:
    """A table that fits the screen, with its heading above and its legend below."""
    width = columns_of(console)
    shown = fitted(columns, width)
    say(console, heading, "bold")
    for line in table(shown, width, rule_of(console)):
        say(console, line)
    said = legend(shown, width)
    if said:
        say(console)
        say(console, said, "dim")


def _show_benchmarks(console: Console, verdict: Verdict) -> None:
    reasons = {each.message for each in verdict.benchmarks if each.status == "skipped"}
    if all(each.status == "skipped" for each in verdict.benchmarks):
        say(console, f"Benchmarks: {', '.join(filter(None, reasons)) or 'not run'}", "bold")
        return
    say(console)
    show_table(console, title(verdict), benchmark_columns(verdict))
    if not verdict.emulated:
        say(console, score_line(verdict))


def warning_lines(verdict: Verdict) -> Iterator[Text]:
    """What the verdict should not be read without."""
    for warning in verdict.warnings:
        yield Text.assemble(("warning: ", "yellow"), warning.message)
        yield Text(f"  {warning.hint}", style="dim")


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
        status_text(test.status),
    )


def benchmark_line(benchmark: BenchmarkResult) -> Text:
    """A finished benchmark as one line."""
    line = Text.assemble(
        f"benchmark  {shape_of(benchmark.spec)!s:<18} ", status_text(benchmark.status)
    )
    if benchmark.mean_us is not None:
        line.append(f"  mean {microseconds(benchmark.mean_us)} us")
    return line


_bins = 12
_longest_bar = 40


def show_histograms(console: Console, verdict: Verdict) -> None:
    """A table for each benchmark whose calls were timed, or a sentence where none was."""
    sampled = [(each, each.samples_us) for each in verdict.benchmarks if each.samples_us]
    for benchmark, samples in sampled:
        say(console)
        heading = f"{shape_of(benchmark.spec)}: how long {len(samples)} calls took"
        show_table(console, heading, _columns(samples, "#" if rule_of(console) == "-" else "█"))
    if not sampled:
        say(console, "no timed calls to draw")


def _columns(samples: list[float], mark: str) -> list[Column]:
    least = min(samples)
    step = (max(samples) - least) / _bins or 1.0
    counts = [0] * _bins
    for each in samples:
        counts[min(int((each - least) / step), _bins - 1)] += 1
    bars = [mark * round(_longest_bar * count / max(counts)) for count in counts]
    return [
        Column("from us", [microseconds(least + index * step) for index in range(_bins)]),
        Column("calls", [str(count) for count in counts]),
        Column("", bars, right=False),
    ]
