"""`nvfp4 problems`: what is known, and what a checkout adds."""

import json
from pathlib import Path
from typing import Any

import click

from nvfp4.cli.display.console import Column, new_console, say
from nvfp4.cli.display.render import show_table
from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import Problem, add_problems, known_problems, load_problem, shape_of

_widest = 60
"""Characters of a column; longer sizes are left out."""


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
    columns = [Column(each, [str(row[each]) for row in rows], right=False) for each in names]
    show_table(console, "Problems", columns)
    for row in rows:
        if row["error"]:
            say(console, f"{row['name']}: {row['error']}", "yellow")


def _row(name: str, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "folder": str(folder), "error": None}
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
    }


def _range(problem: Problem) -> str:
    """The smallest and the largest case, with the names of the sizes."""
    shapes = sorted(
        map(shape_of, [*problem.tests, *problem.benchmarks]), key=lambda shape: shape.elements
    )
    if not shapes:
        return ""
    whole = f"{shapes[0].names}: {shapes[0]} to {shapes[-1]}"
    return whole if len(whole) <= _widest else shapes[0].names[:_widest]
