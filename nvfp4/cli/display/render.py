"""A verdict as tables for people."""

import io
import re
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from nvfp4.cli.display import benchmark_tables, sentences
from nvfp4.cli.display.console import say, show_table
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import first_lines, microseconds
from nvfp4.cli.verdict import BenchmarkResult, CaseResult, Device, TestResult, Verdict, rankings

_addresses = re.compile(r"\b0x[0-9a-f]+\b")


def show_verdict(console: Console, verdict: Verdict) -> None:
    """Shows a verdict as tables, unless one sentence is enough."""
    (show_briefly if is_brief(verdict) else show)(console, verdict)


def plain_text(verdict: Verdict) -> str:
    """Return the text that a person sees, without colours, a hundred columns wide."""
    page = io.StringIO()
    show_verdict(Console(file=page, width=100, highlight=False, color_system=None), verdict)
    return page.getvalue().rstrip("\n")


def show(console: Console, verdict: Verdict) -> None:
    """Shows tables of tests and benchmarks, the score, failures, warnings, and the verdict last."""
    if verdict.tests:
        show_table(console, "Tests", benchmark_tables.tests_columns(verdict.tests))
        say(console, benchmark_tables.error_line(verdict) or "")
    if verdict.benchmarks:
        _show_benchmarks(console, verdict)
    for text in sentences.retargeting_lines(verdict.device.retargeted if verdict.device else []):
        say(console, text, "dim")
    for line in (*sentences.failure_lines(verdict), *sentences.finding_lines(verdict)):
        say(console, line)
    for line in (*sentences.output_lines(verdict), *warning_lines(verdict)):
        say(console, line)
    say(console, sentences.closing_line(verdict))


def _show_benchmarks(console: Console, verdict: Verdict) -> None:
    reasons = {each.message for each in verdict.benchmarks if not each.failure}
    if not any(each.status != "skipped" or each.emulation for each in verdict.benchmarks):
        say(console, f"Benchmarks: {', '.join(filter(None, reasons)) or 'not judged'}", "bold")
        return
    say(console)
    columns = benchmark_tables.benchmark_columns(verdict)
    show_table(console, benchmark_tables.title(verdict), columns)
    if not verdict.emulated:
        say(console, benchmark_tables.score_line(verdict))
    for line in predicted_lines(verdict):
        say(console, line)


def warning_lines(verdict: Verdict) -> Iterator[Text]:
    """Yield each warning of the verdict and its hint."""
    for warning in verdict.warnings:
        yield Text.assemble(("warning: ", "yellow"), warning.message)
        yield Text(f"  {warning.hint}", style="dim")


def device_line(device: Device) -> Text:
    """Return a sentence on the judging device: the GPU, or that there is none."""
    if device.kind == "cuda":
        return Text(f"judging on {device.name} (sm_{(device.capability or '').replace('.', '')})")
    if device.emulates:
        how = f"kernels are emulated as {device.emulates}, they are not timed"
        return Text(f"judging on the CPU: {how}")
    return Text("judging on the CPU; CuTe DSL is not installed, so its kernels cannot run")


def case_line(result: CaseResult) -> Text:
    """Return a finished case as one line."""
    shape = f"{shape_of(result.spec)!s:<18}"
    if isinstance(result, TestResult):
        inputs, status = f"{result.inputs} inputs", benchmark_tables.status_text(result.status)
        return Text.assemble(f"test       {shape} {inputs:<15} ", status)
    assert isinstance(result, BenchmarkResult)
    line = Text.assemble(f"benchmark  {shape} ", benchmark_tables.result_text(result))
    if result.mean_us is not None:
        line.append(f"  mean {microseconds(result.mean_us)} us")
    return line


def is_brief(verdict: Verdict) -> bool:
    """Return whether every row of a table would be the same."""
    tests = verdict.tests
    alike = len(tests) > 1 and len({_same(each) for each in tests}) == 1
    failed = all(each.status == "fail" for each in tests)
    return verdict.mistake is not None or (alike and failed)


def returned_wrongly(test: TestResult) -> bool:
    """Return whether custom_kernel returned something that is not a valid output of any test."""
    return test.failure is not None and test.failure.code == "contract.returned"


def _same(test: TestResult) -> str:
    """Return a message without the parts in which two of the same failure may differ."""
    message = _addresses.sub("", test.message or "")
    # The expected shape, and often the returned one, is that of the test.
    return re.sub(r"\d+", "", message) if returned_wrongly(test) else message


def show_briefly(console: Console, verdict: Verdict) -> None:
    """Show the failure once, then findings, warnings and the verdict."""
    mistake = verdict.mistake
    failure = map(Text, first_lines(mistake.text)) if mistake else alike_lines(verdict.tests)
    for line in (*failure, *sentences.finding_lines(verdict), *warning_lines(verdict)):
        console.print(line, soft_wrap=True)
    console.print(sentences.closing_line(verdict))


def alike_lines(tests: list[TestResult]) -> Iterator[Text]:
    """Yield the failure that all tests share, with the message of the first."""
    first = tests[0]
    where = f"the first at {shape_of(first.spec)} with {first.inputs} inputs"
    yield Text(f"all {len(tests)} tests failed alike, {where}", style="bold red")
    for line in first_lines(first.message or ""):
        yield Text(f"  {line}")


def predicted_lines(verdict: Verdict) -> Iterator[Text]:
    """Yield a line for each benchmark, and one of what ranks; nothing where nothing was
    predicted."""
    shown = [(each, each.predicted) for each in verdict.benchmarks if each.predicted]
    if not shown:
        return
    gpus = sorted({told.gpu for _, told in shown})
    yield Text(f"{', '.join(gpus)}, predicted by a model, not measured (docs/model.md)", "bold")
    for each, told in shown:
        mark = ", from some of its thread blocks" if benchmark_tables.is_sampled(each) else ""
        yield Text(f"  {shape_of(each.spec)!s:<18} {told.text}{mark}")
    mean = verdict.score.predicted
    if mean is not None and len(shown) > 1:
        yield Text(f"  {rankings[verdict.ranking_by]:<18} {mean.text}")
