"""Progress while a judgement runs: a line that changes on a terminal, a line a case elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from nvfp4.cli.display.console import say
from nvfp4.cli.display.render import benchmark_line, device_line, test_line
from nvfp4.cli.judging.assess import Observer
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import seconds
from nvfp4.cli.verdict import Device
from nvfp4.records.cases import full_range_suffix

_refresh_s = 0.25

_case_activities = ("compiling", "emulating")
"""Activities of the submission's process during a case, besides running."""


@contextmanager
def observed(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[Observer]:
    """An observer that shows on the console where the judgement is."""
    progress = _Progress(console, clock)
    if not console.is_interactive:
        yield progress.observer()
        return
    with live_lines(console, lambda: [progress.line]):
        yield progress.observer()


@contextmanager
def live_lines(console: Console, lines: Callable[[], list[Text]]) -> Iterator[None]:
    """Lines on a terminal that are written anew a few times a second and vanish in the end."""
    over = threading.Event()
    live = Live(
        console=console,
        get_renderable=lambda: Group(*lines()),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )

    def refresh() -> None:
        with suppress(OSError):  # the terminal is gone
            while not over.wait(_refresh_s):
                live.refresh()

    thread = threading.Thread(target=refresh, daemon=True)
    with live:
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def quiet(console: Console) -> Iterator[Observer]:
    """An observer that shows only that something runs, and on a terminal alone."""
    if not console.is_interactive:
        yield Observer()
        return
    with console.status("checking"):
        yield Observer()


class _Progress:
    """The progress of a judgement, from the calls of an ``Observer``. clock: see time.monotonic."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._began_s = clock()
        self._told_s: float | None = None
        self._case_began_s = 0.0
        self._total = 0
        self._done: set[tuple[str, int]] = set()
        self._device: Device | None = None
        self._kind, self._lines, self._index = "", [""], 0
        self._case = ""
        self._activity = "starting"

    def observer(self) -> Observer:
        """Return the callbacks that update this display."""
        return Observer(
            happened=self._happened,
            phase=self._phase,
            device=self._on_device,
            started=self._started,
            activity=self._on_activity,
            test=lambda result: self._finished(test_line(result)),
            benchmark=lambda result: self._finished(benchmark_line(result)),
        )

    @property
    def line(self) -> Text:
        """The live line: how many cases are done, the time since the start, and what happens
        now."""
        done, taken = len(self._done), seconds(self._clock() - self._began_s)
        counted = f"{done} of {self._total} cases" if self._total else "no case yet"
        if self._total and done == self._total:
            now = "two of the tests again, in a fresh process"
        elif self._case:
            now = f"{self._activity} {self._case}, {seconds(self._clock() - self._case_began_s)}"
        else:
            now = self._activity
        return Text(f"{counted}, {taken}: {now}", style="dim", no_wrap=True, overflow="ellipsis")

    def _happened(self, at_s: float | None) -> None:
        """Set the time of the events that follow; None: each happens when it is reported."""
        self._told_s = at_s

    def _now(self) -> float:
        return self._clock() if self._told_s is None else self._told_s

    def _phase(self, title: str, lines: list[str]) -> None:
        if title != "import":
            self._kind, self._lines, self._case = title, lines, ""
            self._total += len(lines)

    def _on_device(self, device: Device) -> None:
        if self._device is None or device.name != self._device.name:
            say(self._console, device_line(device))
        self._device = device

    def _started(self, index: int) -> None:
        line, self._index = self._lines[index], index
        inputs = ", full-range inputs" if line.endswith(full_range_suffix) else ""
        self._case, self._case_began_s = f"{shape_of(line)}{inputs}", self._now()
        self._activity = "running"

    def _on_activity(self, word: str) -> None:
        during_a_case = word in _case_activities
        self._activity = word if during_a_case or not self._case else "running"

    def _finished(self, line: Text) -> None:
        """A case is over; one that is over can fail once more, in a fresh process."""
        case = self._kind, self._index
        if case not in self._done:
            line.append(f"  in {seconds(self._now() - self._case_began_s)}", style="dim")
        self._done.add(case)
        if not self._console.is_interactive:
            say(self._console, line)
