"""Progress while a judgement runs: live rows on a terminal, a line for each case elsewhere."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec

from rich.console import Console
from rich.live import Live
from rich.text import Text

from nvfp4.cli.display.benchmark_tables import styles
from nvfp4.cli.display.columns import Column, fitted, table
from nvfp4.cli.display.console import columns_of, rule_of, say
from nvfp4.cli.display.progress_model import Course, Row
from nvfp4.cli.display.render import benchmark_line, device_line, test_line
from nvfp4.cli.judging.assess import Observer
from nvfp4.cli.text import seconds
from nvfp4.cli.verdict import BenchmarkResult, Device, TestResult

P = ParamSpec("P")

_refresh_s = 0.25
_lines_around = 4
"""Heading, rule and summary, and one so that nothing scrolls."""


@contextmanager
def observed(console: Console, course: Course | None = None) -> Iterator[Observer]:
    """An observer that shows the course on the console."""
    course = course or Course()
    if not console.is_interactive:
        yield _observer(console, course)
        return
    with live_lines(console, lambda: course_lines(console, course)) as live:
        yield _observer(console, course, live)


@contextmanager
def live_lines(console: Console, lines: Callable[[], list[Text]]) -> Iterator[Live]:
    """Lines on a terminal that are written anew a few times a second and vanish in the end."""
    with (
        Live(
            console=console,
            get_renderable=lambda: Text("\n").join(lines()),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        ) as live,
        _refreshed(live),
    ):
        yield live


@contextmanager
def _refreshed(live: Live) -> Iterator[None]:
    over = threading.Event()

    def refresh() -> None:
        with suppress(OSError):  # the terminal is gone
            while not over.wait(_refresh_s):
                live.refresh()

    thread = threading.Thread(target=refresh, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _observer(console: Console, course: Course, live: Live | None = None) -> Observer:
    announced: set[str] = set()

    def shown(tell: Callable[P, None]) -> Callable[P, None]:
        """The same, and the rows show it at once."""

        def told(*arguments: P.args, **named: P.kwargs) -> None:
            tell(*arguments, **named)
            if live:
                live.refresh()

        return told

    def on_device(device: Device) -> None:
        course.on_device(device)
        if device.name not in announced:
            announced.add(device.name)
            say(console, device_line(device))

    def on_test(result: TestResult) -> None:
        row = course.finished(result.spec, result.inputs, result.status)
        if not live:
            say(console, _with_time(test_line(result), course, row))

    def on_benchmark(result: BenchmarkResult) -> None:
        row = course.finished(result.spec, "", result.status)
        if not live:
            say(console, _with_time(benchmark_line(result), course, row))

    return Observer(
        happened=course.happened,
        phase=shown(course.phase),
        alone=shown(course.alone),
        device=shown(on_device),
        loaded=shown(course.loaded),
        started=shown(course.started),
        activity=shown(course.activity),
        test=shown(on_test),
        benchmark=shown(on_benchmark),
    )


def _with_time(line: Text, course: Course, row: Row | None) -> Text:
    taken_s = course.seconds(row) if row else None
    return line if taken_s is None else line.append(f"  in {seconds(taken_s)}", style="dim")


@contextmanager
def quiet(console: Console) -> Iterator[Observer]:
    """An observer that shows only that something runs, and on a terminal alone."""
    if not console.is_interactive:
        yield Observer()
        return
    with console.status("checking"):
        yield Observer()


def course_lines(console: Console, course: Course) -> list[Text]:
    """The rows that the screen has room for, around the one that runs, and a summary."""
    rows = course.rows
    room = max(1, console.height - _lines_around)
    current = next((i for i, row in enumerate(rows) if row.ended_s is None and row.shape), 0)
    first = max(0, min(current - room // 2, len(rows) - room))
    shown = rows[first : first + room]
    columns = [
        Column("case", [Text(row.kind) for row in shown], 3, right=False),
        Column("m x k x l", [str(row.shape or "") for row in shown], right=False),
        Column("inputs", [row.inputs for row in shown], 2, right=False),
        Column("now", [_doing(course, row) for row in shown], right=False),
        Column("time", [_padded(course.seconds(row)) for row in shown], 1),
        Column("expected", [_padded(course.expected(row)) for row in shown], 4),
    ]
    width = columns_of(console)
    hidden = len(rows) - len(shown)
    above = f"; {hidden} of {len(rows)} rows do not fit this screen" if hidden else ""
    return [
        *table(fitted(columns, width), width, rule_of(console)),
        Text(course.summary + above, style="dim"),
    ]


def _doing(course: Course, row: Row) -> Text:
    word = course.doing(row)
    dim = "dim" if word in ("waiting", "done") else "cyan"
    return Text(f"{word:<9}", style=styles.get(word, dim))


def _padded(value_s: float | None) -> str:
    return "" if value_s is None else f"{seconds(value_s):>8}"
