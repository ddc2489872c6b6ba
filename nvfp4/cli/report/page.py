"""Judgements as one page of HTML that needs nothing else. Its one script sorts tables; the page's
policy lets no other run, and no network be asked.
"""

import base64
import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nvfp4.cli.b200 import bound_note, predicted_note, predicted_text
from nvfp4.cli.display import benchmark_tables, sentences
from nvfp4.cli.display.console import Column, fitted, legend
from nvfp4.cli.display.render import predicted_lines, warning_lines
from nvfp4.cli.invocation import Invocation, check_output, write_output
from nvfp4.cli.problem import shape_of
from nvfp4.cli.report.source import longest_source, source_of
from nvfp4.cli.report.subjects import Subject, load_subjects
from nvfp4.cli.text import microseconds, one_line, percent
from nvfp4.cli.verdict import BenchmarkResult

_folder = Path(__file__).parent


Table = dict[str, Any]
"""Text: headings, rows, and notes, which are the meanings of columns."""

Section = dict[str, Any]
"""A judgement as the page shows it."""


def write_report(named: Sequence[str], invocation: Invocation, with_cost: bool) -> int:
    """Writes a page about these judgements or files to `invocation.output`; returns its bytes.

    with_cost: whether a call of each is emulated, for the cost of its lines. Raises SetupError,
    before anything is judged where that is possible.
    """
    assert invocation.output is not None
    check_output(invocation.output, named)
    write_output(invocation.output, report_page(load_subjects(named, invocation), with_cost))
    return invocation.output.stat().st_size


def report_page(subjects: Sequence[Subject], with_cost: bool) -> str:
    """Return the page. with_cost: whether a call of each submission is emulated, for the cost of
    its lines."""
    longest = longest_source // len(subjects)
    sections = [_section(*each, longest, with_cost) for each in enumerate(subjects, 1)]
    environment = Environment(
        loader=FileSystemLoader(_folder),
        autoescape=True,  # names, messages and sources are a submission's
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (_folder / "report.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    return environment.get_template("report.html").render(
        sections=sections,
        comparison=_comparison(sections) if len(sections) > 1 else None,
        style=Markup((_folder / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        # By which a Content-Security-Policy names the only script that may run.
        script_hash=Markup(f"sha256-{base64.b64encode(digest).decode()}"),
        made=time.strftime("%Y-%m-%d %H:%M"),
    )


def _section(number: int, subject: Subject, longest: int, with_cost: bool) -> Section:
    verdict, record = subject.verdict, subject.record
    timed = verdict.benchmarks and not verdict.emulated
    judged = any(each.status != "skipped" for each in verdict.benchmarks)
    benchmarks = benchmark_tables.benchmark_columns(verdict) if judged else []
    return {
        "anchor": f"s{number}",
        "name": f"{record.id}: {one_line(record.path)}" if record.id else one_line(record.path),
        "subject": subject,
        "when": _when(subject),
        "summary": sentences.closing_line(verdict).plain,
        "tests": _table(benchmark_tables.tests_columns(verdict.tests)) if verdict.tests else None,
        "error": _text(benchmark_tables.error_line(verdict)),
        "benchmarks_title": benchmark_tables.title(verdict),
        "benchmarks": _table(benchmarks) if benchmarks else None,
        "score": _text(benchmark_tables.score_line(verdict)) if timed else "",
        "predicted": _plain(predicted_lines(verdict)),
        "bars": _bars(verdict.benchmarks),
        "messages": _messages(subject),
        "source": source_of(subject, longest, with_cost),
        "facts": _facts(subject),
    }


def _bars(benchmarks: Sequence[BenchmarkResult]) -> list[tuple[str, str, str, float]]:
    """Return times and their bounds: the shape, the kind of the time, microseconds as text, and its
    share of the longest one."""
    times: list[tuple[str, str, float]] = []
    for benchmark in benchmarks:
        counts, timed = benchmark.emulation or {}, benchmark.timed
        by_kind = {
            "mean": benchmark.mean_us if timed else None,
            "floor here": benchmark.floor_us if timed else None,
            "memory, B200 >=": counts.get("b200_memory_us"),
            "issue, B200": counts.get("b200_issue_us"),
            "predicted": benchmark.predicted.us if benchmark.predicted else None,
            "B200 speed of light": benchmark.sol_us if timed or counts else None,
        }
        shape = str(shape_of(benchmark.spec))
        times += [(shape, kind, us) for kind, us in by_kind.items() if us]
    longest_us = max((us for _, _, us in times), default=1.0)
    return [(shape, kind, microseconds(us), us / longest_us) for shape, kind, us in times]


def _when(subject: Subject) -> str:
    device = subject.verdict.device
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(subject.record.judged_at))
    at += f" for {one_line(subject.verdict.problem)}"
    if device is None:
        return f"judged {at}"
    emulated = subject.verdict.emulated and device.emulates
    how = f", kernels emulated as {one_line(emulated)}" if emulated else ""
    return f"judged {at} on {one_line(device.name)}{how}"


def _messages(subject: Subject) -> dict[str, list[str]]:
    """Return headings with the lines below them."""
    verdict = subject.verdict
    device = verdict.device
    mistake = verdict.mistake.text.split("\n") if verdict.mistake else []
    found = {
        "Failures": [*mistake, *_plain(sentences.failure_lines(verdict))],
        "Findings": _plain(sentences.finding_lines(verdict)),
        "Warnings": _plain(warning_lines(verdict)),
        "Rewritten kernels": [*sentences.retargeting_lines(device.retargeted if device else [])],
        "What it printed": _plain(sentences.output_lines(verdict)),
    }
    return {heading: lines for heading, lines in found.items() if lines}


def _facts(subject: Subject) -> dict[str, str]:
    record, verdict = subject.record, subject.verdict
    device = vars(verdict.device) if verdict.device else {}
    found: dict[str, Any] = {
        "judgement": record.id or "not kept",
        "sha256": record.sha256,
        **{name.replace("_", " "): device[name] for name in device if name != "retargeted"},
        **record.environment,
        **{f"confined: {name}": how for name, how in verdict.confined.items()},
    }
    return {name: one_line(str(value)) for name, value in found.items() if value is not None}


def _comparison(sections: Sequence[Section]) -> Table:
    """Return a table with a row for each section; its columns are the shapes that any section
    has."""
    verdicts = [section["subject"].verdict for section in sections]
    records = [section["subject"].record for section in sections]
    scores = [verdict.score for verdict in verdicts]
    shapes = dict.fromkeys(str(shape_of(each.spec)) for v in verdicts for each in v.benchmarks)
    figures = [
        {
            str(shape_of(each.spec)): microseconds(each.mean_us) if each.timed else each.status
            for each in verdict.benchmarks
        }
        for verdict in verdicts
    ]
    marks = [" (unverified)" if each.unverified else "" for each in records]
    bounds = [microseconds(e.bound_us) + mark for e, mark in zip(records, marks, strict=True)]
    shares = [percent(each.floor_geomean_us, each.geomean_us) for each in scores]
    means = [each.predicted for each in scores]
    predicted = [predicted_text(each.us, each.gpu) if each else "" for each in means]
    return _table(
        [
            Column("file", [section["name"] for section in sections]),
            Column("verdict", [each.outcome for each in records]),
            Column("tests", [f"{each.tests_passed}/{each.tests}" for each in records]),
            Column("geomean us", [microseconds(each.geomean_us) for each in records], 1),
            Column("of floor", shares, 1),
            Column("B200 pred. us", predicted, 1, note=predicted_note),
            Column("B200 >= us", bounds, 1, note=bound_note),
            *(Column(each, [of.get(each, "") for of in figures], 1) for each in shapes),
            Column("device", [one_line(each.device or "") for each in records], 1),
        ]
    )


def _table(columns: Sequence[Column]) -> Table:
    shown = fitted(columns, None)
    headings = [each.heading.replace("\n", " ") for each in shown]
    rows = zip(*([text.plain for text in each.texts] for each in shown), strict=True)
    notes = legend(shown, None).splitlines()
    return {"headings": headings, "rows": [list(row) for row in rows], "notes": notes}


def _plain(lines: Iterable[Any]) -> list[str]:
    return [_text(line) for line in lines]


def _text(line: Any) -> str:
    return "" if line is None else line.plain
