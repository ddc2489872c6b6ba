"""One quick test while a kernel is being written: what the leaderboard would say, in small."""

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nvfp4.cli.display.progress import quiet
from nvfp4.cli.display.render import (
    finding_lines,
    is_brief,
    returned_wrongly,
    show_briefly,
    warning_lines,
)
from nvfp4.cli.invocation import Invocation, judge_and_show
from nvfp4.cli.judging.assess import Plan
from nvfp4.cli.problem import Problem, case_line, load_problem, shape_of
from nvfp4.cli.text import first_lines
from nvfp4.cli.verdict import (
    TestResult,
    Verdict,
    full_range_suffix,
)

seed = 1111

contest_shape = 512, 512, 2
"""The smallest test of the contest with several batches and more than one tile of 128 rows."""

awkward_shape = 384, 640, 2
"""None of the contest's. Several batches; three tiles of 128 rows; ten groups of four scales and
2.5 blocks of 256 elements, so that power-of-two tiles do not divide it; c and the scales fill no
whole page."""


def check_plan(shape: tuple[int, int, int] | None) -> Plan:
    """The contest's inputs decide. Full-range ones, and an awkward shape unless one is asked for,
    are a second look."""
    line = _line(shape or contest_shape)
    second = [line, *([] if shape else [_line(awkward_shape)])]
    return Plan(
        [line],
        [],
        run_alone=False,
        inputs=("contest",),
        second_look=tuple(each + full_range_suffix for each in second),
        stop_at="fail",
        repeat=False,
    )


def check_and_show(path: Path, shape: tuple[int, int, int] | None, invocation: Invocation) -> int:
    """Judges, shows the verdict, and nothing while it runs; returns the exit code. Raises
    SetupError."""
    shown = partial(show_check, problem=load_problem())
    return judge_and_show(path, check_plan(shape), invocation, shown, quiet)


def _line(shape: tuple[int, int, int]) -> str:
    m, k, l = shape
    return case_line({"m": m, "k": k, "l": l, "seed": seed})


def show_check(console: Console, verdict: Verdict, problem: Problem) -> None:
    """Whether the shape that decides is right, and the first fault; then what only warns."""
    if is_brief(verdict) or not verdict.tests:
        show_briefly(console, verdict)
        return
    test, *second_look = verdict.tests
    place = f"{shape_of(test.spec)} with the contest's inputs"
    if test.status != "pass":
        failed = test.status == "fail"
        word, style = ("failed", "bold red") if failed else ("unclear", "bold yellow")
        _show_message(console, test, Text(f"{word} at {place}", style=style))
    for other in second_look:
        if other.status == "fail":
            where = f"{shape_of(other.spec)} with full-range inputs"
            heading = Text(f"failed at {where}", style="bold red")
            if verdict.only_warns(other):
                heading = Text(f"only a warning: {where}", style="bold yellow")
            _show_message(console, other, heading)
    for note in (*finding_lines(verdict), *warning_lines(verdict)):
        console.print(note, soft_wrap=True)
    if test.status == "pass":
        share = f"; {test.error_share:.1%} of the allowed error" if test.error_share else ""
        if verdict.passed:
            console.print(Text(f"passed at {place}{share}", style="bold green"))
        return
    known = shape_of(test.spec) in map(shape_of, problem.tests + problem.benchmarks)
    if test.status == "fail" and not known and not returned_wrongly(test):
        shape = shape_of(problem.tests[-1])
        hint = f"none of the contest's shapes: --shape {shape.m},{shape.k},{shape.l} is one"
        console.print(Text(f"{shape_of(test.spec)} is valid, but {hint}", style="dim"))


def _show_message(console: Console, test: TestResult, heading: Text) -> None:
    console.print(heading)
    for line in first_lines(test.message or ""):
        console.print(Text(f"  {line}"), soft_wrap=True)
