"""Subjects of a report: judgements from the history, and files that are judged now."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nvfp4.cli.display.console import new_console
from nvfp4.cli.display.progress import observed
from nvfp4.cli.history.database import Entry, History, HistoryError, Record, recorded
from nvfp4.cli.history.judgements import entry_values, keep, kept_verdict
from nvfp4.cli.invocation import Invocation, judge
from nvfp4.cli.judging.assess import Plan, read_submission
from nvfp4.cli.verdict import Verdict


@dataclass(frozen=True)
class Subject:
    """record: its id is 0 where the judgement is not kept. verdict: with every text visible.
    others: judgements whose times or bounds can be compared with this one's, the oldest first.
    """

    record: Record
    verdict: Verdict
    others: list[Entry]


def load_subjects(names: Sequence[str], invocation: Invocation) -> list[Subject]:
    """Return the judgements that the names stand for; without names the newest one. A file is not
    judged again if there is a whole judgement of the same contents. Raises SetupError, and
    KeyboardInterrupt.
    """
    history = History()
    if not names:
        newest = history.newest()
        if newest is None:
            hint = "Name a file to judge."
            raise HistoryError("no judgement is kept", hint, "setup.not_kept")
        return [_subject(newest, history)]
    records = [recorded(name, history) for name in names]  # wrong numbers raise at once
    return [
        _subject(record or _of_file(Path(name), history, invocation), history)
        for name, record in zip(names, records, strict=True)
    ]


def _of_file(path: Path, history: History, invocation: Invocation) -> Record:
    described, content = read_submission(path)
    problem = invocation.problem(path)
    try:
        known = history.whole(described.sha256)
    except HistoryError:
        known = None  # a history that cannot be used stops no judgement
    if known is not None and kept_verdict(known).problem == problem.name:
        return replace(known, path=str(path))
    plan = Plan.of(problem)
    with observed(new_console(stderr=True)) as observer:
        verdict = judge(path, plan, invocation, observer, (described, content))
    if verdict.interrupted:
        raise KeyboardInterrupt
    number = (keep(verdict, content) if invocation.kept else None) or 0
    return Record(
        id=number,
        **entry_values(verdict),
        content=content,
        verdict_object=verdict.as_json(),
    )


def _subject(record: Record, history: History) -> Subject:
    try:
        others = history.entries()
    except HistoryError:
        others = []
    comparable = [each for each in reversed(others) if _compares(each, record)]
    return Subject(record, kept_verdict(record), comparable)


def _compares(one: Entry, other: Entry) -> bool:
    names = ("benchmarks", "kind", "device", "flush")
    alike = all(getattr(one, name) == getattr(other, name) for name in names)
    return (
        alike and one.outcome == "passed" and (one.geomean_us is None) == (other.geomean_us is None)
    )
