"""`nvfp4 problems`: what is known, and what a checkout adds."""

import json
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import click

from nvfp4.cli.display.console import Column, new_console, say
from nvfp4.cli.display.render import show_table
from nvfp4.cli.errors import SetupError
from nvfp4.cli.history.database import History, HistoryError
from nvfp4.cli.history.judgements import kept_verdict
from nvfp4.cli.judging.unclear_policy import Pace
from nvfp4.cli.problem import Problem, add_problems, known_problems, load_problem, shape_of
from nvfp4.cli.text import roughly
from nvfp4.records.options import Options
from nvfp4.records.unanswered import longest_again_s

_widest = 60
"""Width of a column; longer sizes are left out."""

_columns = {"name": 0, "tests": 0, "benchmarks": 0, "cases": 1, "ranked by": 2, "without a GPU": 0}
"""The columns of the list with their ranks; see ``Column``."""

_start_s = 8.0
"""Seconds before the first case once caches are filled: processes start and import torch."""


def add_and_show(folder: Path) -> None:
    """Remember a checkout's problems. Raises SetupError."""
    found = add_problems(folder)
    console = new_console()
    for name, path in found.items():
        say(console, f"{name}  {path}")
    say(console, f"added {len(found)}; a file that says #!POPCORN leaderboard NAME is judged by it")


def show_problems(as_json: bool) -> None:
    """List every problem that is known, with the sizes of its cases."""
    rows = [_row(name, folder) for name, folder in known_problems().items()]
    if as_json:
        click.echo(json.dumps({"problems": rows}, indent=2))
        return
    console = new_console()
    notes = {"without a GPU": "about how long, by earlier judgements here; empty without any"}
    columns = [
        Column(each, [str(row[each]) for row in rows], rank, right=False, note=notes.get(each, ""))
        for each, rank in _columns.items()
    ]
    show_table(console, "Problems", columns)
    for row in rows:
        if row["error"]:
            say(console, f"{row['name']}: {row['error']}", "yellow")


def _row(name: str, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "folder": str(folder), "error": None}
    try:
        problem = load_problem(folder)
    except SetupError as error:
        return {**dict.fromkeys(_columns, ""), **row, "error": str(error)}
    return {
        **row,
        "tests": len(problem.tests),
        "benchmarks": len(problem.benchmarks),
        "cases": _range(problem),
        "ranked by": problem.ranking_by,
        "without a GPU": _without_gpu(problem),
    }


def _without_gpu(problem: Problem) -> str:
    """Return about how long tests and benchmarks take without a GPU, or for how many of them there
    is time.

    It goes by the last judgement of these cases on this machine, or by the speed that the extras
    give. Empty if neither is known.
    """
    pace = Pace()
    with suppress(HistoryError):
        known = History().emulated(problem.name)
        for each in kept_verdict(known).results if known else ():
            pace.add(each)

    def seconds(line: str) -> float:
        elements = shape_of(line).elements
        return pace.expected_s(elements) or elements / problem.emulated_per_s

    if pace.expected_s(0) is None and not problem.emulated_per_s:
        return ""
    budget_s = Options().timeout_s
    tests = sorted(map(seconds, problem.tests * len(problem.inputs)))
    benchmarks = list(map(seconds, problem.benchmarks))
    judged = sum(each < budget_s - _start_s for each in accumulate(tests)) // len(problem.inputs)
    sampled = sum(each > budget_s / 2 / len(benchmarks) for each in benchmarks)
    told = [
        f"{kind} ~{roughly(_start_s + sum(cases) + min(sum(cases), longest_again_s))}"
        for kind, cases in (("tests", tests), ("benchmarks", benchmarks))
    ]
    if judged < len(problem.tests):
        told[0] = f"{judged} of {len(problem.tests)} tests in time"
    if sampled:
        told[1] = f"{sampled} of {len(benchmarks)} benchmarks sampled"
    return ", ".join(told)


def _range(problem: Problem) -> str:
    """Return the smallest and the largest case, with the names of the sizes."""
    shapes = [shape_of(line) for line in (*problem.tests, *problem.benchmarks)]
    shapes.sort(key=lambda shape: shape.elements)
    whole = f"{shapes[0].names}: {shapes[0]} to {shapes[-1]}"
    return whole if len(whole) <= _widest else shapes[0].names[:_widest]
