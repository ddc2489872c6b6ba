"""A submission's source line by line: what each costs, and what was found there."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from pathlib import PurePath

from nvfp4.cli.display.sentences import summarise
from nvfp4.cli.errors import SetupError
from nvfp4.cli.explain.command import Explained, explain
from nvfp4.cli.explain.listing import Shown, short_count
from nvfp4.cli.problem import find_problem
from nvfp4.cli.report.subjects import Subject
from nvfp4.cli.text import one_line, visible
from nvfp4.cli.verdict import Verdict
from nvfp4.records.base import Record
from nvfp4.records.costs import all_lines
from nvfp4.records.options import Options

longest_source = 600_000
"""Limit on the characters of all sources of a report together, which keeps it under 3 MB."""

_longest_line = 400


class SourceLine(Record, frozen=False):
    """An annotated line of a submission."""

    number: int
    text: str
    share: float | None = None
    """Share of the cost of all kernels; None if nothing was counted."""
    instructions: str = ""
    """Warps that issue instructions there, as text."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """(kind, text) of what was found there; kinds are failure, finding and cost."""


class Source(Record):
    """The annotated source of a submission."""

    lines: list[SourceLine]
    cost: str
    """The cost that lines have shares of, or why nothing was counted."""
    cut: int
    """Number of lines that are not shown."""


def source_of(subject: Subject, longest: int, with_cost: bool) -> Source:
    """Return the source with costs and findings, the lines that fit into ``longest`` characters."""
    verdict, record = subject.verdict, subject.record
    texts = visible(record.content.decode("utf-8", "replace")).split("\n")
    lines = [SourceLine(number, _cut(text)) for number, text in enumerate(texts, 1)]
    name = one_line(PurePath(record.path).name)
    uncounted = None, "Costs were not asked for."
    explained, cost = _explained(subject, name) if with_cost else uncounted
    if explained is not None:
        _add_costs(lines, explained, name)
    for number, kind, text in _places(verdict, name):
        if 0 < number <= len(lines) and (kind, text) not in lines[number - 1].notes:
            lines[number - 1].notes.append((kind, text))
    shown, length = 0, 0
    while shown < len(lines) and (length := length + len(lines[shown].text)) <= longest:
        shown += 1
    return Source(lines[:shown], cost, len(lines) - shown)


def _cut(text: str) -> str:
    line = text.expandtabs(4).rstrip()
    return line if len(line) <= _longest_line else f"{line[: _longest_line - 3]}..."


def _explained(subject: Subject, name: str) -> tuple[Explained | None, str]:
    """Return the cost of an emulated call of the first benchmark or None, and a sentence on it."""
    verdict = subject.verdict
    if not verdict.passed:
        return None, "Costs are counted for submissions that pass."
    try:
        problem = subject.problem or find_problem(verdict.problem)
        specs = [each.spec for each in verdict.benchmarks] or problem.benchmarks
        content, shown = subject.record.content, Shown(top=3)
        (explained,) = explain(content, specs[:1], Options(name=name), problem, shown)
    except SetupError as error:
        return None, f"Costs are not known: {error}"
    if explained.error is not None:
        return None, f"Costs are not known: {visible(explained.error).splitlines()[0]}"
    if not explained.kernels:
        return None, "No kernel was launched: there are no costs."
    return explained, (
        f"Cost of a call of {explained.shape}, emulated: shares of the issue slots of an SM (a "
        "warp instruction takes one, a sector of global memory one, a pass of shared memory four), "
        "and how many warps issue there."
    )


def _add_costs(lines: list[SourceLine], explained: Explained, name: str) -> None:
    instructions: Counter[int] = Counter()
    total = sum(kernel.slots for kernel in explained.kernels) or 1.0
    for _, cost in all_lines(explained.kernels):
        if cost.file == name and cost.line and cost.instructions and cost.line <= len(lines):
            instructions[cost.line] += cost.instructions
            line = lines[cost.line - 1]
            line.share = (line.share or 0.0) + cost.slots / total
            line.instructions = short_count(instructions[cost.line])
    for costly in explained.costly:
        place = costly.line.line
        if costly.line.file == name and place and place <= len(lines):
            lines[place - 1].notes.append(("cost", costly.sentence))


def _places(verdict: Verdict, name: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of everything found in the submission's own file."""
    own = ("submission.py", name)
    if verdict.mistake and verdict.mistake.line:
        yield verdict.mistake.line, "failure", verdict.mistake.message
    for result in verdict.results:
        failure = result.failure
        if failure and failure.file in own and failure.line:
            yield failure.line, "failure", failure.message
    for summary in summarise(each.findings for each in verdict.results):
        finding = summary.finding
        if finding.file in own and finding.line:
            yield finding.line, "finding", finding.message
