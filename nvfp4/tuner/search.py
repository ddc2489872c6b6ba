"""A search for the fastest of many candidates by interleaved timings, with early pruning.

Knows nothing of kernels or GPUs: a candidate is a key, and timing one is a function.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from nvfp4.gpu import timing
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.tuner.space import Shape, TuneError, sentence


@dataclass(frozen=True)
class Estimate:
    """A candidate's mean, and its median with the ends of its 95 % confidence interval, in
    microseconds. Contenders are told apart by the median: a stray call hardly moves it.
    """

    candidate: str
    mean_us: float
    median_us: float
    low_us: float
    high_us: float
    calls: int


def median_interval(samples: Iterable[float]) -> tuple[float, float]:
    """The order statistics that hold the median with 95 % confidence; no shape of the distribution
    is assumed. All samples where there are fewer than six.

    The ranks are n/2 -+ 1.96 sqrt(n)/2, the normal approximation of the binomial distribution of
    how many of n samples lie below the median.
    """
    ordered = sorted(samples)
    n = len(ordered)
    if n < 6:
        return ordered[0], ordered[-1]
    half_width = 0.98 * math.sqrt(n)
    low = max(0, math.floor(n / 2 - half_width))
    high = min(n - 1, math.ceil(n / 2 + half_width) - 1)
    return ordered[low], ordered[high]


@dataclass
class Search:
    """Times candidates in turns and drops those that are surely slower than the best.

    time_us: one timed call of a candidate. calls: how many a survivor gets. first_calls: how many
    everyone gets before the first pruning, which drops what is slower than the best median times
    `hopeless`. times: of each candidate so far.
    """

    time_us: Callable[[str], float]
    calls: int = 50
    first_calls: int = 3
    hopeless: float = 1.3
    times: dict[str, list[float]] = field(default_factory=dict)

    def estimate(self, candidate: str) -> Estimate:
        samples = self.times[candidate]
        low, high = median_interval(samples)
        mean, median = statistics.fmean(samples), statistics.median(samples)
        return Estimate(candidate, mean, median, low, high, len(samples))

    def ranking(self) -> list[Estimate]:
        """Every candidate timed so far, the fastest first."""
        timed = [self.estimate(candidate) for candidate in self.times if self.times[candidate]]
        return sorted(timed, key=lambda estimate: estimate.median_us)

    def contenders(self, candidates: Iterable[str]) -> list[str]:
        """Those that may still be the fastest."""
        estimates = [self.estimate(candidate) for candidate in candidates]
        best = min(estimates, key=lambda estimate: estimate.median_us)
        few = best.calls < 6
        limit = self.hopeless * best.median_us if few else best.high_us
        return [e.candidate for e in estimates if (e.median_us if few else e.low_us) <= limit]

    def run(
        self,
        candidates: Iterable[str],
        progress: Callable[[int, list[str], Mapping[str, list[float]]], None] | None = None,
    ) -> list[Estimate]:
        """The ranking, once every contender has its calls or one is left.

        progress is called after each round with the calls a contender has had, the contenders and
        all times, for display. Raises ValueError without candidates.
        """
        alive = list(dict.fromkeys(candidates))
        if not alive:
            raise ValueError("nothing to search: the space has no candidate")
        target = self.first_calls
        while True:
            for candidate in alive:
                self.times.setdefault(candidate, [])
            while short := [c for c in alive if len(self.times[c]) < target]:
                for candidate in short:
                    self.times[candidate].append(self.time_us(candidate))
            alive = self.contenders(alive)
            if progress:
                progress(target, alive, self.times)
            if target >= self.calls or len(alive) == 1:
                return self.ranking()
            target = min(self.calls, 2 * target)


_seed = 1111


def _memory_gbps(device: Any) -> float:
    """For each multiprocessor, by the clock (kHz) and the width of the bus, both edges counting; 0
    where torch does not tell.
    """
    if not hasattr(device, "memory_bus_width"):
        return 0.0
    bits_ms = 2 * device.memory_clock_rate * device.memory_bus_width
    return float(bits_ms / 8e6 / device.multi_processor_count)


class Gpu:
    """A CUDA device, and full-range inputs of one shape at a time.

    Raises TuneError if torch sees no CUDA device.
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise TuneError(
                "torch sees no CUDA device here, and only a GPU can say what is fast",
                "Tune on a machine with a GPU; nvfp4 info shows what is here.",
            )
        device = torch.device("cuda", 0)
        self.name = torch.cuda.get_device_name(device)
        major, minor = torch.cuda.get_device_capability(device)
        self.capability = 10 * major + minor
        self.memory_gbps = _memory_gbps(torch.cuda.get_device_properties(device))
        self._timer = timing.CudaTimer(device)
        self._data: Any = None
        self._expected: Any = None
        self._gemv: Callable[..., Any] = lambda *_: None

    def open(self, submission: Any, shape: Shape) -> None:
        """Makes the inputs of a shape and their exact product. Raises TuneError if they do not
        fit.
        """
        self._data = self._expected = None  # free the last shape's memory first
        try:
            self._data = reference.generate_full_range_input(*shape, _seed)
            self._expected = reference.ref_kernel(self._data)
        except torch.cuda.OutOfMemoryError:
            raise TuneError(
                f"the inputs of {shape} do not fit the GPU", "Tune another shape."
            ) from None
        self._gemv = submission.gemv

    def refusal(self, configuration: Any) -> str | None:
        """Why a configuration cannot be ranked: it fails, or its output is wrong. None if neither.

        Raises TuneError if it broke the CUDA context.
        """
        self._data[6].fill_(float("nan"))
        try:
            output = self._gemv(self._data, configuration)
            torch.cuda.synchronize()
        except Exception as error:
            why = sentence(error)
        else:
            right, message = reference.check_implementation(self._data, output, self._expected)
            return None if right else message.splitlines()[0]
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise TuneError(
                f"{configuration} broke the CUDA context: {why}",
                "Take it out of the space, then tune again.",
            ) from None
        return why

    def time_us(self, configuration: Any) -> float:
        """One call on a cold L2 cache."""
        _, spent = self._timer.time(lambda: self._gemv(self._data, configuration))
        return spent.call_ns / 1e3
