"""Workflow commands of GitHub Actions: annotations at the lines of the submission."""

from collections.abc import Iterator
from typing import Any

from nvfp4.cli.display.formats.cases import Case, cases_of, path_of, summary_of
from nvfp4.cli.findings import summarise
from nvfp4.cli.text import several, visible
from nvfp4.cli.verdict import Verdict

_most_annotations = 10
"""Of a kind: GitHub shows no more of a step."""


def write(verdict: Verdict) -> str:
    """A line for each failure (the same one once), finding and warning; the verdict last."""
    lines = list(_failures(verdict))
    if verdict.mistake:
        title = {"title": f"nvfp4: {verdict.mistake.code}"}
        place = _place(vars(verdict.mistake), verdict)
        lines.append(_command("error", {**place, **title}, verdict.mistake.message))
    lines += _findings(verdict)
    for warning in verdict.warnings:
        message = f"{warning.message}\n{warning.hint}"
        lines.append(_command("warning", {"title": f"nvfp4: {warning.code}"}, message))
    title = {"title": "nvfp4"}
    kind = {"passed": "notice", "unclear": "warning", "failed": "error"}[verdict.outcome]
    lines.append(_command(kind, title, summary_of(verdict)))
    return "\n".join(lines)


def _failures(verdict: Verdict) -> Iterator[str]:
    alike: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases_of(verdict):
        failure = case.result.failure
        if failure:
            only_warns = case.result.status == "skipped" or verdict.only_warns(case.result)
            same = (only_warns, failure.code, failure.file, failure.line, failure.column)
            alike.setdefault(same, []).append(case)
    deciding_first = sorted(alike.items(), key=lambda each: each[0][0])
    for (only_warns, *_), cases in deciding_first[: _most_annotations - 1]:
        first = cases[0]
        failure = first.result.failure
        assert failure, "as each of these cases has"
        others = f" and {several(len(cases) - 1, 'more case')}" if len(cases) > 1 else ""
        place = _place(vars(failure), verdict)
        properties = {**place, "title": f"nvfp4: {failure.code}, {first.name}{others}"}
        message = first.result.message or failure.message
        yield _command("warning" if only_warns else "error", properties, message)


def _findings(verdict: Verdict) -> Iterator[str]:
    summaries = summarise(case.result.findings for case in cases_of(verdict))
    for summary in summaries[:_most_annotations]:
        finding = summary.finding
        place = _place(vars(finding), verdict)
        more = "".join(f"\n{each}" for each in (finding.rule, finding.hint) if each)
        properties = {**place, "title": f"nvfp4: {finding.code}"}
        yield _command("warning", properties, f"{finding.message}{more}")


def _place(found: dict[str, Any], verdict: Verdict) -> dict[str, str]:
    """The properties that GitHub knows, as far as they are known here."""
    file = path_of(found.get("file"), verdict)
    if not file:
        return {}
    values = {"file": file, "line": found.get("line"), "col": found.get("column")}
    return {name: str(value) for name, value in values.items() if value}


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {listed}::{_data(message)}"


def _data(text: str) -> str:
    """As the runner reads it: a message ends at a line break, and % begins an escape."""
    escaped = visible(text).replace("%", "%25")
    return escaped.replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
