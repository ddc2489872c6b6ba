"""What the live line says: cases, elapsed time, and what happens now."""

import io

import pytest
from bot import case
from rich.console import Console
from screens.verdicts import Clock, cpu, play

from nvfp4.capture import activity
from nvfp4.cli.display.progress import _Progress
from nvfp4.cli.text import seconds
from nvfp4.cli.verdict import TestResult, full_range_suffix


def progress_on(clock: Clock) -> tuple[_Progress, io.StringIO]:
    file = io.StringIO()
    return _Progress(Console(file=file, width=100), clock), file


def test_the_line_says_what_is_done_and_what_happens_now() -> None:
    clock = Clock()
    progress, _ = progress_on(clock)
    lines = [progress.line.plain for _ in play(progress.observer(), clock)]
    assert lines == [
        "0 of 20 cases, 3.5 s: importing",
        "5 of 20 cases, 8.4 s: compiling 2432 x 4608 x 2, 0.8 s",
        "20 of 20 cases, 26.2 s: two of the tests again, in a fresh process",
        "21 of 23 cases, 47.9 s: emulating 4096 x 7168 x 8, 3.0 s",
    ]


def test_a_case_is_imported_compiled_and_emulated() -> None:
    progress, _ = progress_on(Clock())
    told = progress.observer()
    assert progress.line.plain.endswith("no case yet, 0.0 s: starting")
    told.phase("tests", [case(), case() + full_range_suffix])
    told.device(cpu)
    for word in ("importing", "compiling"):
        told.activity(word)
        assert progress.line.plain == f"0 of 2 cases, 0.0 s: {word}"
    told.started(1)
    for word, shown in (("importing", "running"), ("emulating", "emulating")):
        told.activity(word)
        assert f": {shown} 128 x 256 x 1, full-range inputs, 0.0 s" in progress.line.plain


def test_a_case_that_fails_in_a_fresh_process_is_told_again_and_counted_once() -> None:
    clock = Clock()
    progress, file = progress_on(clock)
    told = progress.observer()
    told.phase("tests", [case(), case() + full_range_suffix])
    told.started(0)
    clock.passes(2.0)
    told.test(TestResult(case(), "contest", "pass"))
    clock.passes(5.0)
    told.test(TestResult(case(), "contest", "fail", "not repeatable"))
    assert progress.line.plain.startswith("1 of 2 cases")
    first, second = file.getvalue().splitlines()
    assert first.endswith("pass  in 2.0 s")
    assert second.endswith("fail")


def test_activities_nest_and_are_told_when_they_change() -> None:
    told: list[str] = []
    activity.tell(told.append)
    try:
        with activity.busy("importing"), activity.busy("compiling"), activity.busy("compiling"):
            pass
    finally:
        activity.tell(None)
    assert told == ["importing", "compiling", "importing", "running"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0 s"), (17.21, "17.2 s"), (119.9, "119.9 s"), (185.4, "3 min 5 s")],
)
def test_seconds_are_shown_in_minutes_from_two_on(value: float, text: str) -> None:
    assert seconds(value) == text
