"""The tests of a verdict as a table and a line each."""

from itertools import zip_longest

from rich.text import Text

from nvfp4.cli.display.columns import Column
from nvfp4.cli.problem import shape_of
from nvfp4.cli.verdict import TestResult, Verdict

styles = {"pass": "green", "fail": "bold red", "skipped": "dim", "unclear": "yellow"}


def status_text(status: str) -> Text:
    """pass, fail, skipped or unclear, in its colour."""
    return Text(status, style=styles.get(status, ""))


def tests_columns(tests: list[TestResult]) -> list[Column]:
    """A row for each shape, a column for each kind of inputs."""
    contest = [test for test in tests if test.inputs == "contest"]
    full = [test for test in tests if test.inputs == "full"]
    rows = list(zip_longest(contest, full))
    shapes = [shape_of((one or other).spec) for one, other in rows]
    return [
        Column("#", [str(number) for number in range(1, len(rows) + 1)]),
        Column("m", [str(shape.m) for shape in shapes]),
        Column("k", [str(shape.k) for shape in shapes]),
        Column("l", [str(shape.l) for shape in shapes]),
        Column("contest inputs", [_status(one) for one, _ in rows], right=False),
        Column("full-range inputs", [_status(other) for _, other in rows], right=False),
    ]


def _status(test: TestResult | None) -> Text:
    return status_text(test.status) if test else Text()


def error_line(verdict: Verdict) -> Text | None:
    """How far the outputs are from the limit; None where nothing was compared."""
    shares = [each.error_share for each in verdict.tests if each.inputs == "contest"]
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Text(f"largest error on the contest's inputs: {max(known):.1%} of the allowed one")
