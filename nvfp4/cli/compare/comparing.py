"""The course of a comparison: every file is tested, then they are timed in turn; without a GPU what
they count is shown side by side.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from nvfp4.cli import errors as exits
from nvfp4.cli.compare.interval import Change, changes_of, confidence, threshold
from nvfp4.cli.display.console import Column, new_console, say, show_table
from nvfp4.cli.display.progress import observed
from nvfp4.cli.display.render import show_verdict
from nvfp4.cli.errors import SetupError, json_schema
from nvfp4.cli.info import capability_of
from nvfp4.cli.invocation import Invocation, judge
from nvfp4.cli.judging.assess import Plan, read_submission
from nvfp4.cli.problem import Problem, shape_of
from nvfp4.cli.text import microseconds, one_line, visible_json
from nvfp4.cli.verdict import BenchmarkResult, Device, Submission, Verdict, by_what, rankings
from nvfp4.records.failures import read_failure

_styles = {"faster": "green", "slower": "bold red", "same": "bold", "unclear": "yellow"}

_counts = {
    "warp_instructions_total": "warp instructions",
    "sectors_requested": "sectors requested",
    "distinct_bytes": "distinct bytes",
    "bank_conflicts": "bank conflicts",
}
"""Counts of an emulated call: the name in docs/json.md to the heading in a table."""


def show_changes(
    console: Console, labels: Sequence[str], problem: Problem, changes: list[list[Change]]
) -> None:
    """Shows a table that compares all files with the first, and a sentence for each."""
    specs, ranking_by = problem.benchmarks, problem.ranking_by
    rows = [(label, index) for label in range(len(changes)) for index in range(len(specs) + 1)]
    shapes = [*(str(shape_of(each)) for each in specs), rankings[ranking_by]]
    found = [changes[label][index] for label, index in rows]
    note = f"of the change, at {confidence:.0%} confidence"
    verdicts = [Text(each.verdict, _styles[each.verdict]) for each in found]
    columns = [
        Column("file", [labels[label + 1] for label, _ in rows], right=False),
        Column(shape_of(specs[0]).names, [shapes[index] for _, index in rows], right=False),
        Column(f"{labels[0]} us", [microseconds(each.baseline_us) for each in found]),
        Column("us", [microseconds(each.file_us) for each in found]),
        Column("change", [f"{each.change:+.2%}" for each in found]),
        Column("interval", [_interval(each) for each in found], note=note),
        Column("verdict", verdicts, right=False),
    ]
    show_table(console, f"Against {labels[0]}, medians of calls, means over rounds", columns)
    for label, of_file in zip(labels[1:], changes, strict=True):
        total = of_file[-1]
        said = {
            "faster": f"{label} takes {-total.change:.2%} less time than {labels[0]}",
            "slower": f"{label} takes {total.change:.2%} more time than {labels[0]}",
            "same": f"{label} takes as long as {labels[0]}, within {threshold:.2%}",
            "unclear": f"the change from {labels[0]} to {label} lies from {_interval(total)}",
        }
        word = total.verdict
        say(console, Text.assemble((f"{word}: ", _styles[word]), said[word], by_what(ranking_by)))


def _interval(change: Change) -> str:
    return f"{change.low:+.2%} to {change.high:+.2%}"


def show_counts(console: Console, labels: Sequence[str], verdicts: Sequence[Verdict]) -> None:
    """A table of what emulated calls count and a model predicts, a column for each file."""
    benchmarks = list(zip(*(verdict.benchmarks for verdict in verdicts), strict=True))
    rows = [(each, name) for each in benchmarks for name in _counts]
    names = shape_of(benchmarks[0][0].spec).names if benchmarks else "case"
    totals = [verdict.score.predicted for verdict in verdicts]
    columns = [
        Column(names, [*(str(shape_of(each[0].spec)) for each, _ in rows), ""], right=False),
        Column("", [*(_counts[name] for _, name in rows), "predicted us"], right=False),
    ]
    for index, label in enumerate(labels):
        cells = [_count(each[index].emulation, name) for each, name in rows]
        total = totals[index]
        cells.append(microseconds(total.us) if total and total.us else "-")
        unverified = any(each.unverified for each in verdicts[index].results)
        columns.append(Column(label + "\n(unverified)" * unverified, cells))
    show_table(console, "Counts of emulated calls", columns)
    for label, total in zip(labels, totals, strict=True):
        if total and totals[0]:
            word = "" if total is totals[0] else f": {total.word_against(totals[0])}"
            how = f"predicted (docs/model.md){by_what(verdicts[0].ranking_by)}"
            say(console, f"{label} on a {total.gpu}, {how}: {total.text}{word}")
    say(console, "all are right; without a GPU there is no verdict about time")


def _count(counts: dict[str, Any] | None, name: str) -> str:
    return "-" if counts is None else f"{counts[name]:,.0f}"


class _Wrong(Exception):
    """A file failed or could not be judged."""

    def __init__(self, label: str, verdict: Verdict) -> None:
        super().__init__(label)
        self.label, self.verdict = label, verdict


def compare_and_show(paths: Sequence[Path], rounds: int, judging: Invocation) -> int:
    """Compares files, shows what came of it and returns the exit code. Raises SetupError, and
    KeyboardInterrupt."""
    started_s = time.monotonic()
    on_gpu = capability_of(judging.options.device) is not None
    if on_gpu and find_spec("scipy") is None:
        hint = "pip install 'nvfp4[compare]' brings it."
        raise SetupError("a comparison of times needs scipy, which is missing", hint)
    files = {chr(ord("A") + index): read_submission(path) for index, path in enumerate(paths)}
    problem = judging.problem(paths[0])
    comparing = _Comparing(files, rounds, judging, new_console(stderr=judging.as_json), problem)
    found: dict[str, Any]
    try:
        code, found = comparing.timed() if on_gpu else comparing.counted()
    except _Wrong as wrong:
        code = exits.unclear if wrong.verdict.unclear else exits.failed
        found = {"failed": {"file": wrong.label, "verdict": wrong.verdict.as_json()}}
        if not judging.as_json:
            show_verdict(comparing.console, wrong.verdict)
        why = "could not be judged" if wrong.verdict.unclear else "is wrong"
        say(comparing.console, f"{wrong.label} {why}, so nothing is compared", "bold red")
    if judging.as_json:
        content = {
            "schema": json_schema,
            "passed": "failed" not in found,
            "files": [{"label": label, **asdict(each)} for label, (each, _) in files.items()],
            "device": asdict(comparing.device) if comparing.device else None,
            "elapsed_s": time.monotonic() - started_s,
            **dict.fromkeys(("verdict", "rounds", "comparisons", "counts", "failed")),
            **found,
        }
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    return code


@dataclass
class _Comparing:
    """A comparison in progress.

    Methods raise _Wrong, SetupError and KeyboardInterrupt, and return an exit code and what --json
    shows.
    """

    files: dict[str, tuple[Submission, bytes]]
    """The submissions with their contents, by label."""
    rounds: int
    """Number of rounds; in each, a fresh process of every file is timed."""
    judging: Invocation
    console: Console
    problem: Problem
    device: Device | None = None

    def timed(self) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and how the time of each other file differs from that of the
        first."""
        self._judged([])
        labels, specs = list(self.files), self.problem.benchmarks
        times = self._times(specs)
        changes = [changes_of(times[0], each, self.problem.ranking_by) for each in times[1:]]
        show_changes(self.console, labels, self.problem, changes)
        words = {each[-1].verdict for each in changes}
        word = next((each for each in ("slower", "unclear", "same") if each in words), "faster")
        comparisons = [
            {
                "file": label,
                "baseline": labels[0],
                **asdict(total),
                "shapes": [
                    {"spec": spec, **asdict(each)} for spec, each in zip(specs, shapes, strict=True)
                ],
            }
            for label, (*shapes, total) in zip(labels[1:], changes, strict=True)
        ]
        rounds = [dict(zip(labels, each, strict=True)) for each in zip(*times, strict=True)]
        found = {"verdict": word, "rounds": rounds, "comparisons": comparisons}
        return {"slower": exits.failed, "unclear": exits.unclear}.get(word, exits.passed), found

    def counted(self) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and counts and predicted times of the emulated benchmarks."""
        verdicts = self._judged(self.problem.benchmarks)
        show_counts(self.console, list(self.files), verdicts)
        counts = [
            {
                "file": label,
                "unverified": next(filter(None, (each.unverified for each in verdict.tests)), None),
                "predicted": asdict(predicted) if (predicted := verdict.score.predicted) else None,
                "shapes": [
                    {"spec": each.spec, "unverified": each.unverified, "counts": each.emulation}
                    for each in verdict.benchmarks
                ],
            }
            for label, verdict in zip(self.files, verdicts, strict=True)
        ]
        return exits.passed, {"counts": counts}

    def _judged(self, benchmarks: list[str]) -> list[Verdict]:
        """Return the verdicts of all files, which have passed. Raises _Wrong for a file that has
        not."""
        plan, verdicts = Plan.of(self.problem, benchmarks=benchmarks), []
        for label, read in self.files.items():
            path = Path(read[0].path)
            say(self.console, f"{label}  {one_line(str(path))}")
            with observed(self.console) as observer:
                verdict = judge(path, plan, self.judging, observer, read)
            self.device = verdict.device or self.device
            if verdict.interrupted:
                raise KeyboardInterrupt
            if not verdict.passed:
                raise _Wrong(label, verdict)
            for warning in verdict.warnings:
                if warning.code in ("full_range", "other_leaderboard"):
                    say(self.console, f"{label}: {warning.message}", "yellow")
            verdicts.append(verdict)
        return verdicts

    def _times(self, specs: list[str]) -> list[list[list[float]]]:
        """Microseconds [files][rounds][shapes]."""
        rounds: list[list[list[float]]] = []
        failed: list[dict[str, Any]] = []

        def on_result(key: str, value: str) -> None:
            if key.startswith("round."):
                rounds.append(json.loads(value))
                say(self.console, f"round {len(rounds)} of {self.rounds}", "dim")
            elif key == "failed":
                failed.append(visible_json(value))

        contents = [content for _, content in self.files.values()]
        bot = self.judging.bot(self.problem, b"")
        ended = bot.run_comparison(contents, self.rounds, specs, on_result)
        if failed:
            raise self._wrong(failed[0], specs)
        if len(rounds) < self.rounds:
            last = ended.stderr.splitlines()[-1:] or [f"it ended with {ended.exit_code}"]
            why = f"the files could not be timed: {ended.values.get('error', last[0])}"
            raise SetupError(why, "nvfp4 eval says more of each.")
        return [list(of_file) for of_file in zip(*rounds, strict=True)]

    def _wrong(self, failed: dict[str, Any], specs: list[str]) -> _Wrong:
        """Return the error for a file: its benchmark with the failure, the others skipped."""
        label = list(self.files)[failed["file"]]
        benchmarks = [BenchmarkResult(spec, "skipped", message="not run") for spec in specs]
        at, message = failed["case"] or 0, failed["message"]
        failure = read_failure(failed["failure"])
        benchmarks[at] = BenchmarkResult(specs[at], "fail", message=message, failure=failure)
        return _Wrong(label, Verdict(self.files[label][0], self.device, benchmarks=benchmarks))
