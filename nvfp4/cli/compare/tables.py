"""A comparison as a table for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from nvfp4.cli.compare.interval import Change, confidence, threshold
from nvfp4.cli.display.columns import Column, show_table
from nvfp4.cli.display.console import say
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import microseconds
from nvfp4.cli.verdict import Verdict

_styles = {"faster": "green", "slower": "bold red", "same": "bold", "unclear": "yellow"}

_counts = {
    "warp_instructions_total": "warp instructions",
    "sectors_requested": "sectors requested",
    "distinct_bytes": "distinct bytes",
    "bank_conflicts": "bank conflicts",
}
"""Counts of an emulated call: the name in docs/json.md to the heading in a table."""


def show_changes(
    console: Console, labels: Sequence[str], specs: Sequence[str], changes: list[list[Change]]
) -> None:
    """A table of all files but the first against the first, and a sentence for each."""
    rows = [(label, index) for label in range(len(changes)) for index in range(len(specs) + 1)]
    shapes = [*(str(shape_of(each)) for each in specs), "geometric mean"]
    found = [changes[label][index] for label, index in rows]
    note = f"of the change, at {confidence:.0%} confidence"
    columns = [
        Column("file", [labels[label + 1] for label, _ in rows], right=False),
        Column(shape_of(specs[0]).names, [shapes[index] for _, index in rows], right=False),
        Column(f"{labels[0]} us", [microseconds(each.baseline_us) for each in found]),
        Column("us", [microseconds(each.file_us) for each in found]),
        Column("change", [f"{each.change:+.2%}" for each in found]),
        Column("interval", [_interval(each) for each in found], note=note),
        Column(
            "verdict", [Text(each.verdict, _styles[each.verdict]) for each in found], right=False
        ),
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
        say(console, Text.assemble((f"{word}: ", _styles[word]), said[word]))


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
        mark = (
            "\n(unverified)" if any(each.unverified for each in verdicts[index].benchmarks) else ""
        )
        columns.append(Column(f"{label}{mark}", cells))
    show_table(console, "Counts of emulated calls", columns)
    for label, total in zip(labels, totals, strict=True):
        if total and totals[0]:
            word = "" if total is totals[0] else f": {total.word_against(totals[0])}"
            say(console, f"{label} on a {total.gpu}, predicted (docs/model.md): {total.text}{word}")
    say(console, "all are right; without a GPU there is no verdict about time")


def _count(counts: dict[str, Any] | None, name: str) -> str:
    return "-" if counts is None else f"{counts[name]:,.0f}"
