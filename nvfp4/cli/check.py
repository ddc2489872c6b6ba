"""One quick test while a kernel is being written."""

from rich.console import Console
from rich.text import Text

from nvfp4.cli.assess import Plan
from nvfp4.cli.brief import is_brief, returned_wrongly, show_briefly
from nvfp4.cli.problem import Problem, case_line, shape_of
from nvfp4.cli.render import finding_lines, warning_lines
from nvfp4.cli.text import first_lines
from nvfp4.cli.verdict import Verdict

seed = 1111

awkward_shape = 384, 640, 2
"""Several batches; three tiles of 128 rows; ten groups of four scales and 2.5 blocks of 256
elements, so that power-of-two tiles do not divide it; c and the scales fill no whole page."""


def check_plan(shape: tuple[int, int, int] | None) -> Plan:
    """One test on full-range inputs, and nothing beside it."""
    m, k, l = shape or awkward_shape
    line = case_line({"m": m, "k": k, "l": l, "seed": seed})
    return Plan([line], [], run_alone=False, inputs=("full",), repeat=False)


def show_check(console: Console, verdict: Verdict, problem: Problem) -> None:
    """The first fault, or that there is none."""
    if is_brief(verdict):
        show_briefly(console, verdict)
        return
    (test,) = verdict.tests
    shape, passed = shape_of(test.spec), test.status == "pass"
    if not passed:
        failed = test.status == "fail"
        word, style = ("failed", "bold red") if failed else ("unclear", "bold yellow")
        console.print(Text(f"{word} at {shape} with full-range inputs", style=style))
        for line in first_lines(test.message or ""):
            console.print(Text(f"  {line}"), soft_wrap=True)
    for note in (*finding_lines(verdict), *warning_lines(verdict)):
        console.print(note, soft_wrap=True)
    if passed:
        share = f"; {test.error_share:.1%} of the allowed error" if test.error_share else ""
        console.print(Text(f"passed at {shape} with full-range inputs{share}", style="bold green"))
        return
    known = shape in map(shape_of, problem.tests + problem.benchmarks)
    if test.status == "fail" and not known and not returned_wrongly(test):
        other = shape_of(problem.tests[-1])
        hint = f"none of the contest's shapes: --shape {other.m},{other.k},{other.l} is one"
        console.print(Text(f"{shape} is valid, but {hint}", style="dim"))
