"""The history as people and programs read it: a line for each judgement, or one of them again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

import click
from rich.text import Text

from nvfp4.cli.display.columns import Column
from nvfp4.cli.display.console import new_console, say
from nvfp4.cli.display.render import show_table, show_verdict
from nvfp4.cli.history.database import Entry, History, HistoryError, Record
from nvfp4.cli.history.keeping import benchmarks_key, kept_verdict
from nvfp4.cli.problem import load_problem
from nvfp4.cli.text import microseconds, one_line, several, visible

_longest_cell = 40
_styles = {"passed": "green", "failed": "bold red", "unclear": "yellow", "interrupted": "yellow"}
_whose = "unverified: the submission's own process says so"
_seconds_a_day = 86_400.0


def show_log(history: History, most: int, file: str | None, as_json: bool) -> None:
    """Prints the newest judgements. Raises HistoryError."""
    entries = history.entries(most, file)
    usual = benchmarks_key(load_problem().benchmarks)
    best = history.best(usual)
    if as_json:
        content = {"judgements": [_plain(each, each.id in best) for each in entries]}
        click.echo(json.dumps(content, indent=2))
        return
    console = new_console()
    if entries:
        show_table(console, "Judgements, the newest first", _log_columns(entries, best, usual))
    else:
        named = f" of {visible(file)}" if file else ""
        say(console, f"no judgement{named} is kept; nvfp4 eval, test and bench keep theirs")


def _log_columns(entries: Sequence[Entry], best: set[int], usual: str) -> list[Column]:
    """usual: the contest's benchmarks, which need no mention."""
    outcomes = [Text(each.outcome, style=_styles.get(each.outcome, "")) for each in entries]
    tests = [f"{each.tests_passed}/{each.tests}" if each.tests else "" for each in entries]
    times = [microseconds(each.geomean_us) if each.geomean_us else "" for each in entries]
    bounds = [microseconds(each.bound_us) if each.bound_us else "" for each in entries]
    others = ["" if each.benchmarks == usual else _cut(each.benchmarks) for each in entries]
    marks = ["*" if each.id in best else "" for each in entries]
    whose = ["unverified" if each.unverified else "" for each in entries]
    return [
        Column("id", [str(each.id) for each in entries]),
        Column("when", [_when(each) for each in entries], 3, right=False),
        Column("file", [_cut(one_line(each.path)) for each in entries], right=False),
        Column("verdict", outcomes, right=False),
        Column("tests", tests, 5, note="passed, of those that were judged"),
        Column("geomean\nus", times, 1, note="geometric mean of the benchmarks"),
        Column("B200\n>= us", bounds, 2, note="a bound, not a time: no B200 runs them in less"),
        *([Column("counts", whose, 1, right=False, note=_whose)] if any(whose) else []),
        Column("best", marks, 1, right=False, note="* the fastest that passed on its device"),
        Column("other shapes", others, 6, right=False, note="instead of the contest's benchmarks"),
        Column("device", [one_line(each.device or "") for each in entries], 4, right=False),
    ]


def _when(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.judged_at))


def _cut(text: str) -> str:
    return text if len(text) <= _longest_cell else f"...{text[3 - _longest_cell :]}"


def _plain(entry: Entry, best: bool) -> dict[str, Any]:
    at = datetime.fromtimestamp(entry.judged_at, timezone.utc)
    return {**asdict(entry), "judged_at": at.isoformat(timespec="seconds"), "best": best}


def chosen_record(history: History, number: int | None) -> Record:
    """The judgement of a number, or the newest. Raises HistoryError where there is none."""
    if number is not None:
        return history.find(number)
    newest = history.newest()
    if newest is None:
        hint = "nvfp4 eval, test and bench keep theirs."
        raise HistoryError("no judgement is kept", hint, "setup.not_kept")
    return newest


def show_record(record: Record) -> None:
    """Prints a judgement as it was shown when it was made. Raises HistoryError."""
    console = new_console()
    verdict = kept_verdict(record)
    say(console, heading_of(record), "dim")
    show_verdict(console, verdict)


def heading_of(record: Entry) -> str:
    """Which judgement it is: ``judgement 12: mine.py, 2026-11-21 14:03, NVIDIA H200``."""
    parts = [one_line(record.path), _when(record), one_line(record.device or "no device")]
    return f"judgement {record.id}: {', '.join(parts)}, sha256 {one_line(record.sha256)[:12]}"


def show_source(record: Record) -> None:
    """Writes the submission's text byte for byte; to a terminal only what it may show."""
    if sys.stdout.isatty():
        click.echo(visible(record.content.decode("utf-8", "replace")), nl=False)
    else:
        click.echo(record.content, nl=False)


def prune(history: History, keep: int | None, older_than: float | None, file: str | None) -> int:
    """Deletes old judgements and returns how many. keep: so many of the newest stay. older_than:
    days; younger ones stay. file: only those of this name or path go. Raises HistoryError.
    """
    since = None if older_than is None else time.time() - older_than * _seconds_a_day
    entries = history.entries(file=file)[keep or 0 :]
    return history.delete([each.id for each in entries if since is None or each.judged_at < since])


def show_pruned(deleted: int, left: int, as_json: bool) -> None:
    """Says what has become of the history."""
    if as_json:
        click.echo(json.dumps({"deleted": deleted, "left": left}))
    else:
        verb = "is" if left == 1 else "are"
        click.echo(f"deleted {several(deleted, 'judgement')}; {left} {verb} left")
