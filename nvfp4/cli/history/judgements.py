"""Stores verdicts in the history and shows them again, for people and programs."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import click
from rich.text import Text

from nvfp4 import __version__
from nvfp4.cli.b200 import bound_note, bound_us, predicted_note, predicted_text, read_counts
from nvfp4.cli.display.benchmark_tables import unverified_note
from nvfp4.cli.display.console import Column, new_console, say
from nvfp4.cli.display.render import show_table, show_verdict
from nvfp4.cli.history.database import Entry, History, HistoryError, Record
from nvfp4.cli.problem import leaderboard, load_problem, shape_of
from nvfp4.cli.text import microseconds, one_line, visible, visible_parts
from nvfp4.cli.verdict import Score, Verdict, rankings, read_retargeted
from nvfp4.records.cases import parse_case
from nvfp4.records.channel import read, record
from nvfp4.records.failures import read_failure, read_findings
from nvfp4.records.prediction import read_prediction

off_variable = "NVFP4_NO_LOG"
"""Environment variable that switches the history off with any value but 0 or the empty string."""


def keep(verdict: Verdict, content: bytes, history: History | None = None) -> int | None:
    """Keep a verdict and return its number in the history; None where it is not kept: if the
    history is switched off, if an interrupt came before anything was judged, or, with a warning
    on stderr, if writing failed.

    Never raises: a judgement counts whether or not it can be kept.
    """
    judged = not verdict.interrupted or any(each.status != "skipped" for each in verdict.results)
    if not judged or os.environ.get(off_variable, "0") not in ("", "0"):
        return None
    try:
        history = history or History()
        return history.add(entry_values(verdict), content, verdict.as_json())
    except Exception as error:  # whatever it is, the verdict stands
        reason = visible(" ".join(str(error).split())) or type(error).__name__
        with suppress(OSError):
            click.echo(f"warning: this judgement is not kept: {reason}", err=True)
        return None


def keep_printed(printed: dict[str, Any], content: bytes) -> None:
    """Keep the verdict in an object of `nvfp4 eval --json`; an error is not kept."""
    if "error" not in printed:
        keep(verdict_of(printed), content)


def benchmarks_key(lines: list[str], problem: str = leaderboard) -> str:
    """Return a key of the judged cases: geometric means with the same key can be compared."""
    cases = ", ".join(str(shape_of(line)) for line in lines)
    return cases if problem == leaderboard else f"{problem}: {cases}"


def entry_values(verdict: Verdict) -> dict[str, Any]:
    """Return the fields of `cli.history.database.Entry` except its id."""
    device = verdict.device
    counts = [each.emulation if each.status == "pass" else None for each in verdict.benchmarks]
    return {
        "judged_at": time.time(),
        "path": verdict.submission.path,
        "sha256": verdict.submission.sha256,
        "outcome": "interrupted" if verdict.interrupted else verdict.outcome,
        "tests_passed": sum(test.status == "pass" for test in verdict.tests),
        "tests": len(verdict.tests),
        "benchmarks": benchmarks_key([e.spec for e in verdict.benchmarks], verdict.problem),
        "geomean_us": verdict.score.geomean_us,
        "bound_us": bound_us(counts),
        "kind": device.kind if device else None,
        "device": _device_name(verdict),
        "flush": device.flush if device else None,
        "elapsed_s": verdict.elapsed_s,
        "unverified": sum(bool(each.unverified) for each in verdict.results),
        "environment": {
            "nvfp4": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
    }


def _device_name(verdict: Verdict) -> str | None:
    device = verdict.device
    if device is None:
        return None
    return f"{device.emulates}, emulated" if verdict.emulated and device.emulates else device.name


T = TypeVar("T")


def kept_verdict(record: Record) -> Verdict:
    """Return a verdict as it was when it was kept, with control characters visible. Raises
    HistoryError if the object is not a verdict."""
    try:
        return verdict_of(visible_parts(record.verdict_object))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        hint = "nvfp4 show --json prints what is kept."
        raise HistoryError(f"judgement {record.id} is no verdict", hint) from None


def verdict_of(found: dict[str, Any]) -> Verdict:
    """Return the verdict that an object describes. Raises KeyError, TypeError, AttributeError or
    ValueError if it describes none."""
    score = record(Score, {"ranking_by": "geom", **found["score"]})
    if score.ranking_by not in rankings:
        raise ValueError(score.ranking_by)
    for each in (*found["tests"], *found["benchmarks"]):
        parse_case(each["spec"])
    return _record(Verdict, {**found, "ranking_by": score.ranking_by})


_readers: dict[str, Callable[[Any], Any]] = {
    "findings": read_findings,
    "failure": read_failure,
    "predicted": read_prediction,
    "retargeted": read_retargeted,
    "emulation": lambda found: (
        found and read_counts(found, read(int | None, found["minimum_bytes"]))
    ),
}
"""The fields whose values have readers of their own."""


def _record(kind: type[T], found: dict[str, Any]) -> T:
    """Build a record. Unknown keys (of later versions) are ignored, missing ones have defaults."""
    types, values = get_type_hints(kind), {}
    for name in types.keys() & found.keys():
        wanted, value = types[name], found[name]
        inner = next(iter(get_args(wanted)), wanted)
        if name in _readers:
            values[name] = _readers[name](value)
        elif not hasattr(inner, "__dataclass_fields__") or value is None:
            values[name] = read(wanted, value)
        elif get_origin(wanted) is list:
            values[name] = [_record(inner, each) for each in value]
        else:
            values[name] = _record(inner, value)
    return kind(**values)


_longest_cell = 40
_styles = {"passed": "green", "failed": "bold red", "unclear": "yellow", "interrupted": "yellow"}


def show_log(history: History, most: int, as_json: bool) -> None:
    """Prints the newest judgements. Raises HistoryError."""
    entries = history.entries(most)
    usual = benchmarks_key(load_problem().benchmarks)
    entries = [replace(each, best=each.best and each.benchmarks == usual) for each in entries]
    if as_json:
        click.echo(json.dumps({"judgements": [_plain(each) for each in entries]}, indent=2))
        return
    console = new_console()
    if entries:
        show_table(console, "Judgements, the newest first", _log_columns(entries, usual))
    else:
        say(console, "no judgement is kept; nvfp4 eval, test and bench keep theirs")


def _log_columns(entries: Sequence[Entry], usual: str) -> list[Column]:
    """Return the columns of the log. usual: the contest's benchmarks, which are not mentioned."""
    outcomes = [Text(each.outcome, style=_styles.get(each.outcome, "")) for each in entries]
    tests = [f"{each.tests_passed}/{each.tests}" if each.tests else "" for each in entries]
    times = [microseconds(each.geomean_us) if each.geomean_us else "" for each in entries]
    bounds = [microseconds(each.bound_us) if each.bound_us else "" for each in entries]
    predicted = [predicted_text(each.predicted_us, each.predicted_gpu) for each in entries]
    others = ["" if each.benchmarks == usual else _cut(each.benchmarks) for each in entries]
    marks = ["*" if each.best else "" for each in entries]
    whose = ["unverified" if each.unverified else "" for each in entries]
    return [
        Column("id", [str(each.id) for each in entries]),
        Column("when", [_when(each) for each in entries], 3, right=False),
        Column("file", [_cut(one_line(each.path)) for each in entries], right=False),
        Column("verdict", outcomes, right=False),
        Column("tests", tests, 5, note="passed, of those that were judged"),
        Column("geomean\nus", times, 1, note="geometric mean of the benchmarks"),
        Column("B200\npred. us", predicted, 1, note=predicted_note),
        Column("B200\n>= us", bounds, 2, note=bound_note),
        Column("counts", whose, 1, right=False, note=unverified_note),
        Column("best", marks, 1, right=False, note="* the fastest that passed on its device"),
        Column("other shapes", others, 6, right=False, note="instead of nvfp4_gemv's benchmarks"),
        Column("device", [one_line(each.device or "") for each in entries], 4, right=False),
    ]


def _when(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.judged_at))


def _cut(text: str) -> str:
    return text if len(text) <= _longest_cell else f"...{text[3 - _longest_cell :]}"


def _plain(entry: Entry) -> dict[str, Any]:
    at = datetime.fromtimestamp(entry.judged_at, timezone.utc)
    return {**asdict(entry), "judged_at": at.isoformat(timespec="seconds")}


def show_record(record: Record) -> None:
    """Prints a judgement as it was shown when it was made. Raises HistoryError."""
    console = new_console()
    verdict = kept_verdict(record)
    parts = [one_line(record.path), _when(record), one_line(record.device or "no device")]
    parts.append(f"sha256 {one_line(record.sha256)[:12]}")
    say(console, f"judgement {record.id}: {', '.join(parts)}", "dim")
    show_verdict(console, verdict)


def show_source(record: Record) -> None:
    """Writes the submission's text byte for byte; on a terminal, with control characters
    visible."""
    on_terminal = sys.stdout and sys.stdout.isatty()  # it is None if it was closed
    text = record.content.decode("utf-8", "replace")
    click.echo(visible(text) if on_terminal else record.content, nl=False)
