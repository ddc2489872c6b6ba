"""What went wrong, in the judge's words: messages of failures, and findings; and what it
printed."""

import re
from collections.abc import Iterator

from rich.text import Text

from nvfp4.cli.findings import summarise, who
from nvfp4.cli.text import first_lines, several
from nvfp4.cli.verdict import BenchmarkResult, TestResult, Verdict
from nvfp4.records.failures import BY_SUBMISSION

_shown_failures = 3
_shown_findings = 5
_shown_outputs = 3


def named_results(verdict: Verdict) -> list[tuple[str, TestResult | BenchmarkResult]]:
    """Every case with what it is in words, in the order in which they were judged."""
    return [
        *((f"test, {test.inputs} inputs", test) for test in verdict.tests),
        *(("benchmark", benchmark) for benchmark in verdict.benchmarks),
    ]


def failure_lines(verdict: Verdict) -> Iterator[Text]:
    """The messages of the first failures that decide, then of those that only warn, equal ones
    once. Then of what nobody could judge."""
    named = named_results(verdict)
    failed = [each for each in named if each[1].status == "fail"]
    deciding = [each for each in failed if not verdict.only_warns(each[1])]
    warning = [each for each in failed if verdict.only_warns(each[1])]
    left = [each for each in named if each[1].status == "skipped"]
    yield from _lines_of(
        "failures", ("failed", "bold red", deciding), ("only a warning", "bold yellow", warning)
    )
    yield from _lines_of("cases", ("not judged", "bold yellow", left))


def _lines_of(
    noun: str, *groups: tuple[str, str, list[tuple[str, TestResult | BenchmarkResult]]]
) -> Iterator[Text]:
    """groups: what is said of their cases, the style, the cases."""
    said: set[str] = set()
    hidden = 0
    for word, style, results in groups:
        shown = 0
        for what, result in results:
            if not result.message or result.failure is None:
                continue
            # The same fault lies at another address in each case.
            same = re.sub(r"\b0x[0-9a-f]+\b", "", result.message)
            if same in said or shown == _shown_failures:
                hidden += 1
                continue
            said.add(same)
            shown += 1
            yield Text.assemble((f"{word}: {what}, {result.spec}", style))
            for line in first_lines(result.message.removeprefix("not judged: ")):
                yield Text(f"  {line}")
    if hidden:
        yield Text(f"and {hidden} more {noun}; --json shows every message", style="dim")


def finding_lines(verdict: Verdict) -> Iterator[Text]:
    """Each finding once, with its place, how often it was found, and a hint."""
    results: list[TestResult | BenchmarkResult] = [*verdict.tests, *verdict.benchmarks]
    summaries = summarise(each.findings for each in results)
    for summary in summaries[:_shown_findings]:
        finding = summary.finding
        yield Text.assemble(("finding: ", "yellow"), f"{summary.place}: {finding.message}")
        for other in finding.related:
            place = f"{other.file or 'PTX'}:{other.line or other.ptx_line}"
            yield Text(f"  {place}: {other.message}{who(other)}")
        often = f"{finding.code}, {summary.count:,} times in {summary.cases} cases"
        whose = ", its own process says" if finding.told_by == BY_SUBMISSION else ""
        hint = f"; {finding.hint}" if finding.hint else ""
        yield Text(f"  {often}{whose}{hint}", style="dim")
        if finding.rule:
            yield Text(f"  rule: {finding.rule}", style="dim")
    hidden = len(summaries) - _shown_findings
    if hidden > 0:
        yield Text(f"and {hidden} more findings; --json shows every one", style="dim")


def output_lines(verdict: Verdict) -> Iterator[Text]:
    """What was printed in each case, equal outputs once, with the first case that has it."""
    cases: dict[str, list[str]] = {}
    for what, result in named_results(verdict):
        if result.output:
            cases.setdefault(result.output, []).append(f"{what}, {result.spec}")
    for output, names in list(cases.items())[:_shown_outputs]:
        others = f", and {several(len(names) - 1, 'more case')}" if len(names) > 1 else ""
        yield Text.assemble(("output: ", "bold"), f"{names[0]}{others}")
        for line in output.split("\n"):
            yield Text(f"  {line}")
    hidden = len(cases) - _shown_outputs
    if hidden > 0:
        yield Text(f"and {hidden} other outputs; --json shows every one", style="dim")
