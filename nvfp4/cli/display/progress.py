"""Progress while a judgement runs: a line that changes on a terminal, a line a case elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from nvfp4.cli.display.console import say
from nvfp4.cli.display.render import case_line, device_line
from nvfp4.cli.judging.assess import Observer
from nvfp4.cli.judging.unclear_policy import Pace
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import roughly, seconds, several
from nvfp4.cli.verdict import CaseResult, Device
from nvfp4.records.cases import full_range_suffix
from nvfp4.records.unanswered import longest_again_s


@contextmanager
def observed(
    console: Console, clock: Callable[[], float] = time.monotonic, brief: bool = False
) -> Iterator[Observer]:
    """Yield an observer that shows the progress on the console. brief: show nothing that stays."""
    progress = Progress(console, clock, brief)
    with live_lines(console, lambda: [progress.line]):
        yield progress


def live_lines(console: Console, lines: Callable[[], list[Text]]) -> AbstractContextManager[object]:
    """Show lines that are written anew a few times a second and vanish in the end; none where the
    console is no terminal."""
    if not console.is_interactive:
        return nullcontext()
    return Live(
        console=console,
        get_renderable=lambda: Group(*lines()),
        refresh_per_second=4,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )


class Progress(Observer):
    """Shows the progress of a judgement. clock: see time.monotonic. brief: show nothing that
    stays."""

    def __init__(self, console: Console, clock: Callable[[], float], brief: bool = False) -> None:
        self._console, self._clock, self._brief = console, clock, brief
        self._began_s = clock()
        self._ends_s = 0.0
        self._device: Device | None = None
        self._noun, self._lines = "", [""]
        self._done: set[int] = set()
        self._running: dict[int, float] = {}
        """When each case began that is not over, by its number."""
        self._case = ""
        self._activity, self._share = "starting", ""
        self._pace = Pace()

    @property
    def line(self) -> Text:
        """The live line: how many cases are done, the time since the start, the time left, and
        what happens now."""
        told = ["no case yet", seconds(self._clock() - self._began_s)]
        if self._noun:
            told[0] = f"{len(self._done)} of {several(len(self._lines), self._noun)}"
        over = len(self._done) == len(self._lines)
        if self._device is not None and self._device.kind == "cpu" and not over:
            told.append(self._left())
        now = f"{self._activity} {self._case}".rstrip()
        if over:
            now = "some of them again, with other inputs or in a fresh process"
        elif self._running:
            now += f", {self._share or seconds(self._clock() - max(self._running.values()))}"
        return Text(f"{', '.join(told)}: {now}", style="dim", no_wrap=True, overflow="ellipsis")

    def _left(self) -> str:
        """Return how long the phase will still take, going by the cases that passed; the time left
        to it if that is unknown or longer."""
        limit_s = max(0.0, self._ends_s - self._clock())
        every = [self._pace.expected_s(shape_of(line).elements) or 0.0 for line in self._lines]
        left_s = sum(s for number, s in enumerate(every) if number not in self._done)
        for number, began_s in list(self._running.items()):  # it is shown in another thread
            left_s -= min(every[number], self._clock() - began_s)
        left_s = left_s / max(1, len(self._running)) + min(sum(every), longest_again_s)
        known = all(every) and left_s < limit_s
        return f"about {roughly(left_s)} left" if known else f"at most {roughly(limit_s)} left"

    def phase(self, noun: str, lines: list[str], ends_s: float) -> None:
        self._noun, self._lines, self._ends_s = noun, lines, ends_s
        self._done, self._running, self._case = set(), {}, ""

    def device(self, device: Device) -> None:
        if not self._brief and (self._device is None or device.name != self._device.name):
            say(self._console, device_line(device))
        self._device = device

    def started(self, index: int, at_s: float) -> None:
        line = self._lines[index]
        inputs = ", full-range inputs" if line.endswith(full_range_suffix) else ""
        self._case, self._running[index] = f"{shape_of(line)}{inputs}", at_s
        self._activity, self._share = "running", ""

    def activity(self, word: str) -> None:
        word, _, self._share = word.partition(" ")
        self._activity = word if word != "importing" or not self._case else "running"

    def finished(self, index: int, result: CaseResult) -> None:
        """Show that a case is over; it may come again, as it can still fail in a fresh process."""
        line = case_line(result)
        if self._running.pop(index, None) is not None and result.elapsed_s is not None:
            self._pace.add(result)
            line.append(f"  in {seconds(result.elapsed_s)}", style="dim")
        self._done.add(index)
        if not self._console.is_interactive and not self._brief:
            say(self._console, line)
