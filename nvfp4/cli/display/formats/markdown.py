"""A table for a pull request."""

import re
from collections.abc import Iterator

from nvfp4.cli.display.formats.cases import Case, cases_of, place_of, summary_of
from nvfp4.cli.findings import summarise
from nvfp4.cli.text import visible
from nvfp4.cli.verdict import Verdict

_longest_cell = 160
_marks = {"pass": "pass", "fail": "**fail**", "skipped": "not run"}


def write(verdict: Verdict) -> str:
    """The verdict, a table of the cases, findings and warnings.

    What a submission may have written stands in code spans: there GitHub reads no links, mentions
    or HTML.
    """
    heading = [f"### nvfp4: {summary_of(verdict)}", "", _subject(verdict)]
    cases = list(cases_of(verdict))
    table = [*_rows(cases, verdict)] if cases else []
    return "\n".join([*heading, *([""] if table else []), *table, *_notes(verdict)])


def _subject(verdict: Verdict) -> str:
    digest = verdict.submission.sha256[:12]
    subject = f"{_code(verdict.submission.path)} (sha256 {_code(digest)})"
    device = verdict.device
    if device is None:
        return subject
    if device.emulates:
        return f"{subject}, emulated as {_code(device.emulates)}: right or wrong, no times"
    return f"{subject}, on {_code(device.name)}"


def _rows(cases: list[Case], verdict: Verdict) -> Iterator[str]:
    timed = any(each.benchmark and each.benchmark.timed for each in cases)
    headings = ["case", "m x k x l", "result", *(["mean us", "of floor"] if timed else []), "why"]
    yield _row(headings)
    yield _row(["---"] * len(headings))
    for case in cases:
        what = case.kind if case.inputs is None else f"{case.kind}, {case.inputs}"
        status = _marks.get(case.result.status, case.result.status)
        times = _times(case) if timed else []
        yield _row([what, str(case.shape), status, *times, _why(case, verdict)])


def _times(case: Case) -> list[str]:
    benchmark = case.benchmark
    if benchmark is None or benchmark.mean_us is None:
        return ["", ""]
    floor = benchmark.floor_us
    return [f"{benchmark.mean_us:.3f}", f"{floor / benchmark.mean_us:.1%}" if floor else ""]


def _why(case: Case, verdict: Verdict) -> str:
    failure = case.result.failure
    if failure is None:
        return _code(case.result.message) if case.result.message else ""
    place = place_of(failure, verdict)
    causes = " or ".join(_code(each["code"]) for each in failure.causes)
    cause = f", cause {causes}" if causes else ""
    at = f" at {_code(place)}" if place else ""
    return f"{_code(failure.code)}{at}{cause}: {_code(failure.message)}"


def _notes(verdict: Verdict) -> Iterator[str]:
    found = summarise(case.result.findings for case in cases_of(verdict))
    if found or verdict.warnings:
        yield ""
    for summary in found:
        finding = summary.finding
        message = _code(finding.message)
        yield f"- finding {_code(finding.code)} at {_code(summary.place)}: {message}"
    for warning in verdict.warnings:
        yield f"- warning {_code(warning.code)}: {_code(warning.message)}"


def _row(cells: list[str]) -> str:
    # A pipe would end the cell, in a code span too, and a backslash would hide the pipe's own.
    whole = [re.sub(r"\\(?=\|)", r"\\ ", cell).replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(whole)} |"


def _code(text: str) -> str:
    """A code span, on one line and cut."""
    line = " ".join(visible(text).split()) or " "
    line = line if len(line) <= _longest_cell else f"{line[: _longest_cell - 4]} ..."
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"
