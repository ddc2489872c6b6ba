"""A verdict in sentences: failures, findings, output of the submission, and the closing line."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from rich.text import Text

from nvfp4.cli.judging.unclear_policy import way_out
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import first_lines, seconds, several
from nvfp4.cli.verdict import CaseResult, TestResult, Verdict
from nvfp4.records.base import Record
from nvfp4.records.failures import ADVICE, BY_SUBMISSION, Finding, Place

_shown_failures = 3
_shown_findings = 5
_shown_outputs = 3
_shown_kernels = 3
_shown_opcodes = 4


def named_results(verdict: Verdict) -> list[tuple[str, CaseResult]]:
    """Return (description, result) of every case, in the order in which they were judged."""
    return [
        *((f"test, {test.inputs} inputs", test) for test in verdict.tests),
        *(("benchmark", benchmark) for benchmark in verdict.benchmarks),
    ]


def failure_lines(verdict: Verdict) -> Iterator[Text]:
    """Yield the messages of the first deciding failures, then of the first that only warn, then of
    cases that could not be judged. Equal messages appear once."""
    named = named_results(verdict)
    failed = [each for each in named if each[1].status == "fail"]
    deciding = [each for each in failed if not verdict.only_warns(each[1])]
    warning = [each for each in failed if verdict.only_warns(each[1])]
    left = [each for each in named if each[1].status == "skipped"]
    yield from _lines_of(
        "failures", ("failed", "bold red", deciding), ("only a warning", "bold yellow", warning)
    )
    yield from _lines_of("cases", ("not judged", "bold yellow", left))


def _lines_of(noun: str, *groups: tuple[str, str, list[tuple[str, CaseResult]]]) -> Iterator[Text]:
    """Yield a line for each distinct message. groups: (word for their cases, style, cases)."""
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
    """Yield each finding once, with its place, how often it was found, and a hint."""
    summaries = summarise(each.findings for each in verdict.results)
    for summary in summaries[:_shown_findings]:
        finding = summary.finding
        yield Text.assemble(("finding: ", "yellow"), f"{summary.place}: {finding.message}")
        for other in finding.related:
            place = f"{other.file or 'PTX'}:{other.line or other.ptx_line}"
            yield Text(f"  {place}: {other.message}{who(other)}")
        times = f", {summary.count:,} times in {summary.cases} cases"
        often = "" if finding.code in ADVICE else times
        whose = ", its own process says" if finding.told_by == BY_SUBMISSION else ""
        hint = f"; {finding.hint}" if finding.hint else ""
        yield Text(f"  {finding.code}{often}{whose}{hint}", style="dim")
        if finding.rule:
            yield Text(f"  rule: {finding.rule}", style="dim")
    hidden = len(summaries) - _shown_findings
    if hidden > 0:
        yield Text(f"and {hidden} more findings; --json shows every one", style="dim")


def output_lines(verdict: Verdict) -> Iterator[Text]:
    """Yield what each case printed; equal outputs once, with the first case that has it."""
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


def closing_line(verdict: Verdict) -> Text:
    """Return the closing line: the outcome, the counts, the duration, and the first failed case."""
    if verdict.mistake:
        return Text("failed: nothing was run", style="bold red")
    if verdict.interrupted:
        line = f"interrupted{_taken(verdict, 'after')}: {_counts(verdict)}"
        return Text(line, style="bold yellow")
    if verdict.passed:
        return Text(_passed(verdict), style="bold green")
    if verdict.unclear:
        codes = {each.failure.code for each in verdict.results if each.failure}
        line = f"unclear{_taken(verdict)}: {_counts(verdict)}; {way_out(codes)}"
        return Text(line, style="bold yellow")
    return Text(_failed(verdict), style="bold red")


def _passed(verdict: Verdict) -> str:
    # Of full-range ones alone.
    wrong = sum(test.status == "fail" for test in verdict.tests)
    left = sum(test.status == "skipped" for test in verdict.tests)
    what = [several(len(verdict.tests) - wrong - left, "test")] if verdict.tests else []
    if verdict.benchmarks:
        how = "emulated" if verdict.emulated else "timed"
        mark = " (unverified)" if any(each.unverified for each in verdict.benchmarks) else ""
        what.append(f"{several(len(verdict.benchmarks), 'benchmark')} {how}{mark}")
    sentence = f"passed: {', '.join(what)}{_taken(verdict)}"
    for word, count in (("failed", wrong), ("not judged", left)):
        if count:
            sentence += f"; {word}: {several(count, 'test')} with full-range inputs"
    return sentence


def _failed(verdict: Verdict) -> str:
    first = verdict.decider
    if first is None or first.status != "fail":
        return f"failed: nothing was judged{_taken(verdict)}"
    tested = isinstance(first, TestResult)
    results = verdict.tests if tested else verdict.benchmarks
    failed = sum(each.status == "fail" for each in results)
    count = f"{failed} of {several(len(results), 'test' if tested else 'benchmark')}"
    sentence = f"failed: {count}{_taken(verdict)}, first: {_case(first)}"
    left = sum(each.status == "skipped" for each in results)
    if left:
        sentence += f"; {several(left, 'test' if tested else 'benchmark')} not run"
    warn = sum(each.status == "fail" for each in verdict.tests)
    if not tested and warn:
        sentence += f"; {several(warn, 'test')} with full-range inputs failed, which only warns"
    return sentence


def _counts(verdict: Verdict) -> str:
    if all(each.status == "skipped" for each in verdict.results):
        return "nothing was judged"
    parts = []
    for noun, results in (("test", verdict.tests), ("benchmark", verdict.benchmarks)):
        counts = {"pass": "passed", "fail": "failed", "skipped": "not judged"}
        said = [
            f"{count} {word}"
            for status, word in counts.items()
            if (count := sum(each.status == status for each in results))
        ]
        if all(each.status == "skipped" for each in results):
            said = ["none judged"]
        if results:
            parts.append(f"of {several(len(results), noun)} {', '.join(said)}")
    return "; ".join(parts)


def _taken(verdict: Verdict, preposition: str = "in") -> str:
    return "" if verdict.elapsed_s is None else f" {preposition} {seconds(verdict.elapsed_s)}"


def _case(result: CaseResult) -> str:
    shape = str(shape_of(result.spec))
    return f"{shape}, {result.inputs} inputs" if isinstance(result, TestResult) else shape


def retargeting_lines(kernels: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence about the meaning of the times, and each kernel's rewritten instructions."""
    if not kernels:
        return
    source, target = kernels[0]["source"], kernels[0]["target"]
    yield f"retargeted from {source} to {target}: times hold for this GPU and this code, no other"
    for kernel in kernels[:_shown_kernels]:
        opcodes = sorted(kernel["rewritten"].items(), key=lambda item: -item[1])
        listed = [f"{count} {opcode}" for opcode, count in opcodes[:_shown_opcodes]]
        if len(opcodes) > _shown_opcodes:
            listed.append("...")
        what = ", ".join(listed) or "nothing rewritten"
        total = kernel["instructions"]
        yield f"  {kernel['kernel']}: {total} PTX instructions {kernel['added']:+d}: {what}"
    if len(kernels) > _shown_kernels:
        yield f"  and {len(kernels) - _shown_kernels} more kernels; --json shows every one"


def who(place: Place) -> str:
    """Return text like ``, by CTA (0, 1, 0), thread (33, 0, 0)``; empty if these are unknown."""
    if place.cta is None or place.thread is None:
        return ""
    return f", by CTA {tuple(place.cta)}, thread {tuple(place.thread)}"


class Summary(Record, frozen=False):
    """One finding, summed over all cases."""

    finding: Finding
    cases: int
    """Number of cases that have it."""
    count: int
    """How often it was found in all cases together."""

    @property
    def place(self) -> str:
        """The line, such as ``submission.py:57``, or the kernel if no line is known."""
        found = self.finding
        if found.file and found.line:
            return f"{found.file}:{found.line}"
        return f"kernel {found.kernel}" if found.kernel else "the output"


def summarise(cases: Iterable[list[Finding]]) -> list[Summary]:
    """Return each finding once. Findings are equal if their code, kernel and line are."""
    seen: dict[tuple[object, ...], Summary] = {}
    for findings in cases:
        for finding in findings:
            same: tuple[object, ...] = (finding.code, finding.kernel, finding.file, finding.line)
            if finding.line is None:
                same = (*same, finding.message.partition(":")[0])
            summary = seen.setdefault(same, Summary(finding, 0, 0))
            if finding.code in ADVICE and (finding.count or 0) > (summary.finding.count or 0):
                summary.finding = finding  # where it costs most
            summary.cases += 1
            summary.count += finding.count or 1
    return list(seen.values())
