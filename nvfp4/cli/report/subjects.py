"""Subjects of a report: judgements from the history, and files that are judged now."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nvfp4.cli.display.console import new_console
from nvfp4.cli.display.progress import observed
from nvfp4.cli.history.database import History, HistoryError, Record, recorded
from nvfp4.cli.history.judgements import entry_values, keep, kept_verdict
from nvfp4.cli.invocation import Invocation, judge
from nvfp4.cli.judging.assess import Plan, read_submission
from nvfp4.cli.problem import Problem
from nvfp4.cli.verdict import Verdict


@dataclass(frozen=True)
class Subject:
    """A judgement on the page."""

    record: Record
    """The judgement as the history has it; its id is 0 if it was not kept."""
    verdict: Verdict
    """The verdict with control characters visible."""
    problem: Problem | None = None
    """The problem of a file; only the name is known for a judgement that is named by its number."""


def load_subjects(names: Sequence[str], invocation: Invocation) -> list[Subject]:
    """Return the judgements that the names stand for; without names the newest one. A file is not
    judged again if there is a whole judgement of the same contents. Raises SetupError, and
    KeyboardInterrupt.
    """
    history = History()
    if not names:
        newest = history.newest()
        return [Subject(newest, kept_verdict(newest))]
    kept = [recorded(name, history) for name in names]  # wrong numbers raise at once
    return [
        Subject(record, kept_verdict(record))
        if record
        else _of_file(Path(name), history, invocation)
        for name, record in zip(names, kept, strict=True)
    ]


def _of_file(path: Path, history: History, invocation: Invocation) -> Subject:
    described, content = read_submission(path)
    problem = invocation.problem(path)
    try:
        known = history.whole(described.sha256, problem.sha256)
    except HistoryError:
        known = None  # a history that cannot be used stops no judgement
    if known is not None:
        return Subject(replace(known, path=str(path)), kept_verdict(known), problem)
    with observed(new_console(stderr=True)) as observer:
        verdict = judge(path, Plan.of(problem), invocation, observer, (described, content))
    if verdict.interrupted:
        raise KeyboardInterrupt
    number = (keep(verdict, content) if invocation.kept else None) or 0
    values = {**entry_values(verdict), "content": content, "verdict_object": verdict.as_json()}
    record = Record(id=number, **values)
    return Subject(record, kept_verdict(record), problem)
