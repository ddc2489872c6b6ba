"""Benches that check and rank configurations: a GPU that times them, or a model of one."""

import dataclasses
import math
import operator
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from nvfp4.emulation import install_stand_in
from nvfp4.gpu import timing
from nvfp4.model.counting import sampled
from nvfp4.model.prediction import GPUS, predict
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.records.base import Record
from nvfp4.tuner.space import Shape, TuneError, sentence

Say = Callable[[str], None]
Space = dict[str, Any]
"""The configurations to search, by name."""

shown = 8
"""Number of lines of the ranking that are printed."""

_first_calls, _calls = 3, 50
"""Number of timed calls of every right configuration, and of one that may still be the fastest."""

_hopeless = 1.3
"""After the first calls, configurations slower than the best median times this get no more
calls."""

_told_every = 25
_seed = 1111
_warp_instructions = 50_000
"""Warp instructions to execute in a launch; the CTAs that did not run are assumed to behave alike.
"""


class Ranked(Record):
    """A configuration whose output is right, and the microseconds of a call with the ends of the
    interval that holds the true value."""

    name: str
    us: float
    low_us: float
    high_us: float


class Bench:
    """Calls a submission's gemv on inputs of one shape at a time, on a GPU or a model of one."""

    name: str
    capability: int
    interval: str
    """The kind of a Ranked's interval, in words."""

    def __init__(self) -> None:
        self._data: Any = None
        self._expected: Any = None
        self._gemv: Callable[..., Any] = lambda *_: None

    def ranking(self, space: Space, say: Say) -> list[Ranked]:
        """Return the fastest configurations whose output is right, the fastest first."""
        raise NotImplementedError

    def open(self, submission: Any, shape: Shape) -> None:
        """Make full-range inputs for the calls that follow."""
        self._data = self._expected = None  # free the last shape's memory first
        self._data = reference.generate_full_range_input(*shape, _seed)
        self._gemv = submission.gemv

    def refusal(self, configuration: Any) -> str | None:
        """Return why a configuration cannot be ranked: it fails, or its output is wrong. None if
        neither."""
        if self._expected is None:
            self._expected = reference.ref_kernel(self._data)
        self._data[6].fill_(float("nan"))
        try:
            output = self._called(configuration)
        except (Exception, SystemExit) as error:
            return sentence(error)
        right, message = reference.check_implementation(self._data, output, self._expected)
        return None if right else str(message).splitlines()[0]

    def _called(self, configuration: Any) -> Any:
        return self._gemv(self._data, configuration)


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the order statistics that enclose the median with 95 % confidence for any
    distribution; all samples if there are fewer than six.

    The ranks are n/2 -+ 1.96 sqrt(n)/2, the normal approximation of the binomial distribution of
    how many of n samples lie below the median.
    """
    ordered, n = sorted(samples), len(samples)
    low = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n))) if n >= 6 else 0
    return ordered[low], ordered[n - 1 - low]


class TimingBench(Bench):
    """Ranks by medians of calls on a cold L2 cache, in which configurations take turns."""

    interval = "95 % of the median"

    def right_ones(self, space: Space, say: Say) -> list[str]:
        """Names of the configurations that compile and give the right output."""
        found = []
        for number, (name, configuration) in enumerate(space.items()):
            if number % _told_every == 0:
                say(f"compiling and checking {number + 1} of {len(space)}")
            if why := self.refusal(configuration):
                say(f"{name} left out: {why}")
            else:
                found.append(name)
        return found

    def ranking(self, space: Space, say: Say) -> list[Ranked]:
        left = self.right_ones(space, say)
        times: dict[str, list[float]] = {name: [] for name in left}
        for calls in (_first_calls, _calls - _first_calls):
            for _ in range(calls):
                for name in left:
                    times[name].append(self.time_us(space[name]))
            medians = {name: statistics.median(times[name]) for name in left}
            left = [name for name in left if medians[name] <= _hopeless * min(medians.values())]
            say(f"{len(left)} of {len(times)} left after {calls} more calls each")
        left.sort(key=lambda name: medians[name])
        return [Ranked(name, medians[name], *median_interval(times[name])) for name in left]

    def time_us(self, configuration: Any) -> float:
        """Return the time of one call."""
        raise NotImplementedError


class Gpu(TimingBench):
    """A CUDA device. Raises TuneError if torch sees none."""

    def __init__(self) -> None:
        super().__init__()
        if not torch.cuda.is_available():
            message = "torch sees no CUDA device here, and only a GPU can say what is fast"
            raise TuneError(message, "Tune on a machine with a GPU; nvfp4 info shows what is here.")
        device = torch.device("cuda", 0)
        self.name = torch.cuda.get_device_name(device)
        major, minor = torch.cuda.get_device_capability(device)
        self.capability = 10 * major + minor
        self._timer = timing.CudaTimer(device)

    def open(self, submission: Any, shape: Shape) -> None:
        """Raises TuneError if the inputs do not fit."""
        try:
            super().open(submission, shape)
        except torch.cuda.OutOfMemoryError:
            message = f"the inputs of {shape} do not fit the GPU"
            raise TuneError(message, "Tune another shape.") from None

    def refusal(self, configuration: Any) -> str | None:
        """Raises TuneError if the configuration broke the CUDA context."""
        why = super().refusal(configuration)
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            message = f"{configuration} broke the CUDA context: {why}"
            raise TuneError(message, "Take it out of the space, then tune again.") from None
        return why

    def _called(self, configuration: Any) -> Any:
        output = super()._called(configuration)
        torch.cuda.synchronize()
        return output

    def time_us(self, configuration: Any) -> float:
        _, spent = self._timer.time(lambda: self._gemv(self._data, configuration))
        return spent.call_ns / 1e3


class PredictingBench(Bench):
    """Ranks configurations by predicted times.

    As a prediction takes seconds, the search starts at the first configuration and moves to better
    ones that differ in one field, until there is none. Only the best ones are checked.
    """

    interval = "four cases in five"
    low = high = 1.0
    """Lower end of the interval, in predicted times."""

    def predicted_us(self, configuration: Any) -> float:
        """Predict the time of one call. Raises what the submission or the emulator raises."""
        raise NotImplementedError

    def ranking(self, space: Space, say: Say) -> list[Ranked]:
        times: dict[str, float] = {}
        wanted = list(space)[:1]
        while wanted:
            for name in wanted:
                try:
                    times[name] = self.predicted_us(space[name])
                except (Exception, SystemExit) as error:
                    times[name] = math.inf
                    say(f"{name} left out: {sentence(error)}")
            best = min(times, key=lambda name: times[name])
            say(f"{len(times)} of {len(space)} predicted, the best {best}, {times[best]:.2f} us")
            wanted = [name for name in neighbours(space, best) if name not in times]
        found: list[Ranked] = []
        for name, us in sorted(times.items(), key=lambda each: each[1]):
            if us == math.inf or len(found) == shown:
                break
            if why := self.refusal(space[name]):
                say(f"{name} left out: {why}")
            else:
                found.append(Ranked(name, us, us * self.low, us * self.high))
        return found


def neighbours(space: Space, name: str) -> list[str]:
    """Return the names of configurations that differ from one in one field."""
    fields = {each: [*map(str, dataclasses.astuple(other))] for each, other in space.items()}
    own = fields[name]
    return [
        each
        for each, theirs in fields.items()
        if len(own) == len(theirs) and sum(map(operator.ne, own, theirs)) == 1
    ]


class Model(PredictingBench):
    """A model of a GPU. From before the submission is imported until ``close``, kernels are
    compiled for that GPU and emulated."""

    def __init__(self, model: str, submission: Path) -> None:
        super().__init__()
        self._gpu = GPUS[model]
        self.name = f"{model}, predicted"
        self.capability = int("".join(filter(str.isdigit, self._gpu.arch)))
        self.low, self.high = self._gpu.low, self._gpu.high
        self._emulation = install_stand_in(submission, self._gpu.arch, check=False)
        self.close = self._emulation.uninstall

    def predicted_us(self, configuration: Any) -> float:
        self._emulation.count_by_line(_warp_instructions)
        try:
            self._gemv(self._data, configuration)
            costs = list(self._emulation.costs)
        finally:
            self._emulation.count_by_line(None)
        return predict(self._gpu, list(map(sampled, costs))).us

    def _called(self, configuration: Any) -> Any:
        self._emulation.begin_call()
        output = super()._called(configuration)
        self._emulation.output(output)
        return output
