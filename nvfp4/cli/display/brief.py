"""A verdict that needs no table: a mistake, or one failure that every test shares."""

import re
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from nvfp4.cli.display.render import closing_line, finding_lines, warning_lines
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import first_lines
from nvfp4.cli.verdict import TestResult, Verdict

_addresses = re.compile(r"\b0x[0-9a-f]+\b")


def is_brief(verdict: Verdict) -> bool:
    """Whether a table would say the same in every row."""
    return verdict.mistake is not None or failed_alike(verdict.tests)


def failed_alike(tests: list[TestResult]) -> bool:
    """Whether there are several tests and all of them failed with the same message."""
    messages = {_same(each) for each in tests}
    return len(tests) > 1 and len(messages) == 1 and all(each.status == "fail" for each in tests)


def returned_wrongly(test: TestResult) -> bool:
    """Whether custom_kernel returned what is no output of any test."""
    return test.failure is not None and test.failure.code == "contract.returned"


def _same(test: TestResult) -> str:
    """What two messages of the same failure have in common."""
    message = _addresses.sub("", test.message or "")
    # The expected shape, and often the returned one, is that of the test.
    return re.sub(r"\d+", "", message) if returned_wrongly(test) else message


def show_briefly(console: Console, verdict: Verdict) -> None:
    """The failure once, then findings, warnings and the verdict."""
    for line in mistake_lines(verdict) if verdict.mistake else alike_lines(verdict.tests):
        console.print(line, soft_wrap=True)
    for line in (*finding_lines(verdict), *warning_lines(verdict)):
        console.print(line, soft_wrap=True)
    if verdict.mistake:
        console.print(Text("failed: nothing was run", style="bold red"))
    else:
        console.print(closing_line(verdict))


def mistake_lines(verdict: Verdict) -> Iterator[Text]:
    """The mistake as compilers print it."""
    assert verdict.mistake
    for line in first_lines(verdict.mistake.text):
        yield Text(line)


def alike_lines(tests: list[TestResult]) -> Iterator[Text]:
    """The failure that all tests have, in the words of the first."""
    first = tests[0]
    where = f"the first at {shape_of(first.spec)} with {first.inputs} inputs"
    yield Text(f"all {len(tests)} tests failed alike, {where}", style="bold red")
    for line in first_lines(first.message or ""):
        yield Text(f"  {line}")
