"""Statistics of timings, and checks whether times are credible."""

import math
import statistics
from collections.abc import Sequence

from nvfp4.gpu.timing import CallTime
from nvfp4.judge.clock.calibration import DeviceLimits
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.base import Record
from nvfp4.records.messages import Called

floor_tolerance = 0.85
"""A mean below this share of the floor is impossible; the remainder allows for errors of the
floor."""

settle_tolerance_ns, settle_tolerance_share = 50e3, 0.05
"""The device may go idle this much later than after an empty call."""

clock_tolerance_share, cpu_clock_tolerance_ns = 0.1, 5e6
"""A call may take this much longer by the judge's clock than by the events."""

longest_ns = 1e15

most_left_out = 10
"""Most calls to leave out because the host was late."""


class Stats(Record):
    """Statistics of timed calls, in nanoseconds."""

    runs: int
    mean: float
    median: float
    std: float
    """The sample standard deviation (n - 1), 0 at one run."""
    err: float
    """The standard error of the mean, 0 at one run."""
    best: float
    worst: float


def summarise(samples: Sequence[float]) -> Stats:
    """Return the statistics of samples. Raises ValueError if there are none."""
    if not samples:
        raise ValueError("statistics need at least one timed call")
    runs = len(samples)
    std = statistics.stdev(samples) if runs > 1 else 0.0
    return Stats(
        runs=runs, mean=statistics.fmean(samples), median=statistics.median(samples), std=std,
        err=std / math.sqrt(runs), best=min(samples), worst=max(samples)
    )  # fmt: skip


class Estimate(Record):
    """The time of a call by the judge's clock."""

    call_ns: float
    error_ns: float
    """Upper limit of the error by which the time may be too long."""


class Samples:
    """Times of the calls that count. Up to `most_left_out` calls that the host queued too late are
    left out."""

    def __init__(self, wanted: int) -> None:
        self.times: list[CallTime] = []
        self.left_out = 0
        self._wanted = wanted

    @property
    def complete(self) -> bool:
        return len(self.times) >= self._wanted

    def add(self, time: CallTime) -> None:
        if time.late and self.left_out < most_left_out:
            self.left_out += 1
        else:
            self.times.append(time)


def read_time(answer: Called, wall_ns: float) -> CallTime:
    """Return a reported time. Raises SubmissionFailed if it is not a valid time."""
    if not 0 < answer.call_ns <= answer.settled_ns < longest_ns:
        raise SubmissionFailed("process.protocol", "the submission's process sent impossible times")
    return CallTime(answer.call_ns, answer.settled_ns, answer.late, wall_ns)


def refuse_impossible(stats: Stats, floor_ns: float) -> None:
    """Raise SubmissionFailed for a mean that is too short for the memory."""
    if stats.mean < floor_tolerance * floor_ns:
        mean_us, floor_us = round(stats.mean / 1e3, 3), round(floor_ns / 1e3, 3)
        raise SubmissionFailed(
            "timing.below_floor",
            f"the mean of {mean_us:.3f} us is below the physical floor of {floor_us:.3f} us: "
            "nothing can read these inputs from memory so fast; work in a stream that the current "
            "one does not wait for is not timed",
            mean_us=mean_us,
            floor_us=floor_us,
        )


def refuse_unfinished(stats: Stats, times: Sequence[CallTime], limits: DeviceLimits) -> None:
    """Raises SubmissionFailed for work outside the current stream, which outlasts the call."""
    late_ns = statistics.median(each.settled_ns - each.call_ns for each in times)
    excess_ns = late_ns - limits.settle_ns
    if excess_ns > settle_tolerance_ns + settle_tolerance_share * stats.mean:
        excess_us = round(excess_ns / 1e3, 1)
        raise SubmissionFailed(
            "timing.unjoined_stream",
            f"the device worked {excess_us} us longer than the {stats.mean / 1e3:.1f} us between "
            "the events: work on another stream is not joined to the current one",
            excess_us=excess_us,
        )


def refuse_slow_clock(stats: Stats, times: Sequence[CallTime], patience: int = 1) -> None:
    """Raises SubmissionFailed where calls on a CPU took much longer than was reported."""
    excess_ns = statistics.mean(each.wall_ns - each.call_ns for each in times)
    refuse_longer(stats, Estimate(stats.mean + excess_ns, cpu_clock_tolerance_ns * patience))


def refuse_longer(stats: Stats, estimate: Estimate) -> None:
    """Raises SubmissionFailed where a call took longer by the judge's clock than was reported."""
    if is_longer(stats, estimate):
        judge_us, told_us = round(estimate.call_ns / 1e3, 1), round(stats.mean / 1e3, 1)
        raise SubmissionFailed(
            "timing.clocks_disagree",
            f"a call took {judge_us} us by the judge's clock and {told_us} us by the times its "
            "process sent: they do not agree",
            judge_us=judge_us,
            told_us=told_us,
        )


def is_longer(stats: Stats, estimate: Estimate) -> bool:
    return estimate.call_ns > stats.mean * (1 + clock_tolerance_share) + estimate.error_ns
