"""One quick test while a kernel is being written: what the leaderboard would say, in small."""

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nvfp4.cli.display import render, sentences
from nvfp4.cli.display.progress import observed
from nvfp4.cli.invocation import Invocation, judge_and_show
from nvfp4.cli.judging.assess import Plan
from nvfp4.cli.problem import Problem, find_problem, shape_of
from nvfp4.cli.text import first_lines
from nvfp4.cli.verdict import TestResult, Verdict
from nvfp4.records.cases import full_range_suffix


def check_plan(problem: Problem, case: str | None) -> Plan:
    """Return the plan of a check. The contest's inputs decide; full-range inputs, and an awkward
    shape unless a case is given, only warn."""
    line = problem.case(case, problem.tests) if case else problem.check_case
    second = [line, *([] if case or not problem.cases[1] else [problem.cases[1]])]
    full = (each + full_range_suffix for each in second)
    return Plan(
        [line],
        [],
        problem,
        run_alone=False,
        inputs=("contest",),
        second_look=tuple(full) if problem.draws_full_range else (),
        stop_at="fail",
        repeat=False,
    )


def check_and_show(path: Path, case: str | None, invocation: Invocation) -> int:
    """Judges, shows the verdict, and on a terminal a line while it runs; returns the exit code.
    Raises SetupError."""
    problem = find_problem(invocation.options.problem, path)
    shown = partial(show_check, problem=problem)
    briefly = partial(observed, brief=True)
    return judge_and_show(path, check_plan(problem, case), invocation, shown, briefly)


def show_check(console: Console, verdict: Verdict, problem: Problem) -> None:
    """Shows whether the deciding shape is right, with the first fault; then the warnings."""
    if render.is_brief(verdict) or not verdict.tests:
        render.show_briefly(console, verdict)
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
            warns = verdict.only_warns(other)
            word, style = ("only a warning:", "bold yellow") if warns else ("failed at", "bold red")
            _show_message(console, other, Text(f"{word} {where}", style=style))
    for note in (*sentences.finding_lines(verdict), *render.warning_lines(verdict)):
        console.print(note, soft_wrap=True)
    if test.status == "pass":
        share = f"; {test.error_share:.1%} of the allowed error" if test.error_share else ""
        if verdict.passed:
            console.print(Text(f"passed at {place}{share}", style="bold green"), soft_wrap=True)
        return
    known = shape_of(test.spec) in map(shape_of, problem.tests + problem.benchmarks)
    if test.status == "fail" and not known and not render.returned_wrongly(test):
        shape = str(shape_of(problem.tests[-1])).replace(" x ", ",")
        hint = f"none of the contest's shapes, such as --shape {shape}"
        text = Text(f"{shape_of(test.spec)} is valid, but {hint}", style="dim")
        console.print(text, soft_wrap=True)


def _show_message(console: Console, test: TestResult, heading: Text) -> None:
    console.print(heading, soft_wrap=True)
    for line in first_lines(test.message or ""):
        console.print(Text(f"  {line}"), soft_wrap=True)
