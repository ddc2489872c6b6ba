"""The course of a judgement: a row for each case, and what happens to it now."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nvfp4.cli.problem import Shape, shape_of
from nvfp4.cli.text import seconds
from nvfp4.cli.verdict import Device, full_range_suffix

Clock = Callable[[], float]

_kinds = {"tests": "test", "benchmarks": "benchmark"}


@dataclass
class Row:
    """A case, or the run of the submission by itself, which has no shape. status: waiting, running,
    pass, fail or done. began_s, ended_s: on the clock.
    """

    kind: str
    shape: Shape | None
    inputs: str = ""
    status: str = "waiting"
    began_s: float | None = None
    ended_s: float | None = None


class Course:
    """Rows of all phases so far; told as an ``Observer`` is.

    clock: seconds, as of time.monotonic.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._told_s: float | None = None
        self.began_s = clock()
        self.device: Device | None = None
        self._alone: Row | None = None
        self._cases: list[Row] = []
        self._phase: list[Row] = []
        self._phase_began_s = self.began_s
        self._loaded = False
        self._activity = ""
        self._emulates = False
        self._expectations = {kind: Expectation() for kind in _kinds.values()}

    def happened(self, at_s: float | None) -> None:
        """What is told from now on happened then; None: when it is told."""
        self._told_s = at_s

    def _now(self) -> float:
        return self.clock() if self._told_s is None else self._told_s

    @property
    def rows(self) -> list[Row]:
        """The run of the submission by itself, if there is one, and every case so far."""
        return [*([self._alone] if self._alone else []), *self._cases]

    def phase(self, title: str, lines: list[str]) -> None:
        """A phase begins with these cases."""
        if title == "import":
            self._alone = Row("by itself", None, status="running", began_s=self._now())
            return
        self._phase = [_row(title, line) for line in lines]
        self._phase_began_s = self._now()
        self._loaded, self._activity = False, ""
        self._cases += self._phase

    def alone(self, failure: str | None) -> None:
        """The run of the submission by itself is over."""
        if self._alone:
            self._alone.status = "fail" if failure else "done"
            self._alone.ended_s = self._now()

    def on_device(self, device: Device) -> None:
        """What judges is known."""
        self.device = device

    def loaded(self) -> None:
        """The submission of this phase is imported."""
        self._loaded = True

    def started(self, index: int) -> None:
        """A case of the phase begins."""
        self._phase[index].status = "running"
        self._phase[index].began_s = self._now()

    def activity(self, word: str) -> None:
        """What the submission's process is busy with."""
        self._activity = word
        self._emulates |= word == "emulating"

    def finished(self, spec: str, inputs: str, status: str) -> Row | None:
        """A case ended so; a finished one can fail once more, in a fresh process."""
        for row in reversed(self._phase):
            if row.shape == shape_of(spec) and row.inputs == inputs and row.status != "waiting":
                break
        else:
            return None
        row.status = status
        if row.ended_s is None:
            row.ended_s = self._now()
            self._expectations[row.kind].note(row.shape, row.ended_s - (row.began_s or 0.0))
        return row

    def doing(self, row: Row) -> str:
        """What happens to a case now: its status once it is over."""
        if row.status == "running":
            return "running" if row is self._alone else self._running(row)
        if row.status == "waiting" and self._next is row and not self._loaded:
            if self.device is None:
                return "starting"
            return self._activity if self._activity == "compiling" else "importing"
        return row.status

    @property
    def _next(self) -> Row | None:
        """The first case that has not begun."""
        return next((row for row in self._phase if row.status == "waiting"), None)

    def _running(self, row: Row) -> str:
        if self._activity in ("compiling", "emulating"):
            return self._activity
        on_gpu = self.device is not None and self.device.kind == "cuda"
        return "timing" if row.kind == "benchmark" and on_gpu else row.status

    def seconds(self, row: Row) -> float | None:
        """How long a case took or takes so far, importing included; None before that."""
        if row.began_s is None:
            busy = self.doing(row) != "waiting"
            return self.clock() - self._phase_began_s if busy else None
        return (self.clock() if row.ended_s is None else row.ended_s) - row.began_s

    def expected(self, row: Row) -> float | None:
        """How long a case will take; None where it is over, or nothing is known yet.

        What tests tell of benchmarks counts where both are emulated once.
        """
        if row.shape is None or row.status not in ("waiting", "running"):
            return None
        known = self._expectations[row.kind].seconds(row.shape)
        if known is None and row.kind == "benchmark" and self._emulates:
            known = self._expectations["test"].seconds(row.shape)
        return known

    @property
    def summary(self) -> str:
        """How many cases are done, how long it takes so far, and about how long it will take."""
        done = sum(row.ended_s is not None for row in self._cases)
        said = f"{done} of {len(self._cases)} cases, {seconds(self.clock() - self.began_s)}"
        if done == len(self._cases) and self._phase and self._phase[0].kind == "test":
            return f"{said}; a fresh process repeats two of them"
        left_s = 0.0
        for row in self._cases:
            if row.ended_s is None:
                expected = self.expected(row)
                if expected is None:
                    return said
                left_s += max(0.0, expected - (self.seconds(row) or 0.0))
        return f"{said}, about {seconds(left_s)} left" if done < len(self._cases) else said


def _row(title: str, line: str) -> Row:
    full = line.endswith(full_range_suffix)
    inputs = {"tests": "full" if full else "contest"}.get(title, "")
    return Row(_kinds[title], shape_of(line), inputs)


@dataclass
class Expectation:
    """Seconds of finished cases by shape. A case takes what its shape took before; where that is
    unknown, a start-up time plus a time for each element of a, fitted to the shapes that are known.
    """

    _seconds: dict[Shape, float] = field(default_factory=dict)

    def note(self, shape: Shape, seconds: float) -> None:
        """A case took so long."""
        self._seconds[shape] = seconds

    def seconds(self, shape: Shape) -> float | None:
        """None as long as fewer than two sizes are known."""
        if shape in self._seconds:
            return self._seconds[shape]
        points = [(_elements(each), seconds) for each, seconds in self._seconds.items()]
        if len({elements for elements, _ in points}) < 2:
            return None
        mean_elements = sum(elements for elements, _ in points) / len(points)
        mean_s = sum(seconds for _, seconds in points) / len(points)
        spread = sum((elements - mean_elements) ** 2 for elements, _ in points)
        common = sum((elements - mean_elements) * (s - mean_s) for elements, s in points)
        slope = max(0.0, common / spread)
        return max(0.0, mean_s + slope * (_elements(shape) - mean_elements))


def _elements(shape: Shape) -> int:
    return shape.m * shape.k * shape.l
