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
from nvfp4.cli.judging.unclear_policy import Pace, again_s
from nvfp4.cli.problem import Problem, Shape, add_problems, known_problems, load_problem, shape_of
from nvfp4.cli.text import roughly
from nvfp4.records.options import Options

_widest = 60
"""Characters of a column; longer sizes are left out."""

_start_s = 8.0
"""Before the first case, once caches are filled: the start of every process, and an import."""


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
    names = ("name", "tests", "benchmarks", "cases", "ranked by")
    columns = [
        Column(each, [str(row[each]) for row in rows], max(0, rank), right=False)
        for rank, each in enumerate(names, -2)
    ]
    told = [_told(row) for row in rows]
    note = "about how long, by earlier judgements here; empty without any"
    columns.append(Column("without a GPU", told, right=False, note=note))
    show_table(console, "Problems", columns)
    for row in rows:
        if row["error"]:
            say(console, f"{row['name']}: {row['error']}", "yellow")


def _row(name: str, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "folder": str(folder), "error": None, "without_gpu": None}
    try:
        problem = load_problem(folder)
    except SetupError as error:
        empty = dict.fromkeys(("tests", "benchmarks", "cases", "ranked by"), "")
        return {**row, **empty, "error": str(error)}
    return {
        **row,
        "tests": len(problem.tests),
        "benchmarks": len(problem.benchmarks),
        "cases": _range(problem),
        "ranked by": problem.ranking_by,
        "without_gpu": _without_gpu(problem),
    }


def _without_gpu(problem: Problem) -> dict[str, float] | None:
    """About how many seconds the tests take without a GPU, and the benchmarks, and how many of them
    there is time for; None where nothing is known. By the cases that were judged here last, or by
    the speed that the extras give."""
    pace, took = Pace(), dict[Shape, float]()
    with suppress(HistoryError):
        known = History().emulated(problem.name)
        for each in kept_verdict(known).results if known else ():
            if each.status == "pass" and each.elapsed_s:
                pace.add(each)
                took[shape_of(each.spec)] = each.elapsed_s

    def seconds(line: str) -> float:
        shape = shape_of(line)
        expected_s = took.get(shape) or pace.expected_s(shape.elements)
        return expected_s or shape.elements / problem.emulated_per_s

    if not took and not problem.emulated_per_s:
        return None
    tests = sorted(map(seconds, problem.tests * len(problem.inputs)))
    benchmarks = list(map(seconds, problem.benchmarks))
    budget_s = Options().timeout_s
    in_time = [each < budget_s - _start_s for each in accumulate(tests)]
    whole = [each < budget_s / 2 / len(benchmarks) for each in benchmarks]
    return {
        "tests_s": _start_s + sum(tests) + min(sum(tests), again_s),
        "tests_in_time": sum(in_time) // len(problem.inputs),
        "benchmarks_s": _start_s + sum(benchmarks) + min(sum(benchmarks), again_s),
        "benchmarks_whole": sum(whole),
    }


def _told(row: dict[str, Any]) -> str:
    known, tests, benchmarks = row["without_gpu"], row["tests"], row["benchmarks"]
    if known is None:
        return ""
    judged, sampled = known["tests_in_time"], benchmarks - known["benchmarks_whole"]
    told = [f"tests ~{roughly(known['tests_s'])}", f"benchmarks ~{roughly(known['benchmarks_s'])}"]
    if judged < tests:
        told[0] = f"{judged} of {tests} tests in time"
    if sampled:
        told[1] = f"{sampled} of {benchmarks} benchmarks sampled"
    return ", ".join(told)


def _range(problem: Problem) -> str:
    """The smallest and the largest case, with the names of the sizes."""
    shapes = sorted(
        map(shape_of, [*problem.tests, *problem.benchmarks]), key=lambda shape: shape.elements
    )
    if not shapes:
        return ""
    whole = f"{shapes[0].names}: {shapes[0]} to {shapes[-1]}"
    return whole if len(whole) <= _widest else shapes[0].names[:_widest]
