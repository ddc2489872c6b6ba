"""What times are believable: by the memory, by the device being idle, by the judge's clock."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from device import DeviceLimits
from gated_timing import Batch
from stats import Stats
from submission_process import SubmissionFailed

floor_tolerance = 0.95
"""A mean below this share of the floor is impossible; the rest is the error of the floor itself."""

settle_tolerance_ns = 50e3
"""By how much the device may go idle later than after an empty call, beside a share of the call."""

settle_tolerance_share = 0.05

longest_ns = 1e15
"""Eleven days; no call takes so long, and sums of such times are still numbers."""

clock_tolerance_share = 0.1
"""By how much a call may take longer by the judge's clock than by the events, beside a constant."""

cpu_clock_tolerance_ns = 5e6


most_left_out = 10
"""Calls that the host was late for; who is always late is judged by the calls after those."""


@dataclass(frozen=True)
class CallTimes:
    """Of one call, in nanoseconds. call: reported by the worker, between the events. settled: until
    the device was idle. wall: from request to answer, by the judge's own clock. late: whether the
    device waited for the host, as the worker says."""

    call_ns: float
    settled_ns: float
    wall_ns: float
    late: bool = False


class Samples:
    """Times of the calls that count, until there are as many as are wanted.

    A hiccup of the host is none of the kernel's: calls that it was late for are left out, a few at
    most.
    """

    def __init__(self, wanted: int) -> None:
        self.times: list[CallTimes] = []
        self.left_out = 0
        self._wanted = wanted

    @property
    def complete(self) -> bool:
        """Whether no more calls are needed."""
        return len(self.times) >= self._wanted

    def add(self, times: CallTimes) -> None:
        """One more call."""
        if times.late and self.left_out < most_left_out:
            self.left_out += 1
        else:
            self.times.append(times)


def read_times(answer: dict, wall_ns: float) -> CallTimes:
    """The times of an answer. Raises SubmissionFailed where they are no times."""
    call_ns, settled_ns = answer.get("call_ns"), answer.get("settled_ns")
    if not isinstance(call_ns, float) or not isinstance(settled_ns, float):
        raise SubmissionFailed("the submission's process sent no times")
    if not (0 < call_ns <= settled_ns < longest_ns):
        raise SubmissionFailed("the submission's process sent impossible times")
    return CallTimes(call_ns, settled_ns, wall_ns, answer.get("late") is True)


def refuse_impossible(stats: Stats, floor_ns: float) -> None:
    """Raises SubmissionFailed for a mean no memory allows."""
    if stats.mean < floor_tolerance * floor_ns:
        raise SubmissionFailed(
            f"the mean of {stats.mean / 1e3:.3f} us is below the physical floor of "
            f"{floor_ns / 1e3:.3f} us: nothing can read these inputs from memory so fast"
        )


def refuse_unfinished(stats: Stats, times: Sequence[CallTimes], limits: DeviceLimits) -> None:
    """Raises SubmissionFailed for work outside the current stream.

    Such work ends after the second event and before the device is idle.
    """
    late_ns = statistics.median(each.settled_ns - each.call_ns for each in times)
    excess_ns = late_ns - limits.settle_ns
    if excess_ns > settle_tolerance_ns + settle_tolerance_share * stats.mean:
        raise SubmissionFailed(
            f"the device worked {excess_ns / 1e3:.1f} us longer than the {stats.mean / 1e3:.1f} us "
            "between the events: work on another stream is not joined to the current one"
        )


def refuse_slow_clock(stats: Stats, times: Sequence[CallTimes]) -> None:
    """Raises SubmissionFailed where calls on a CPU took much longer than was reported."""
    excess_ns = statistics.median(each.wall_ns - each.call_ns for each in times)
    _refuse_longer(stats, stats.mean + excess_ns, cpu_clock_tolerance_ns)


def refuse_long_batches(stats: Stats, batches: Iterable[Batch]) -> Batch | None:
    """The first estimate that agrees with what was reported; None where there are no estimates.

    Raises SubmissionFailed where calls took longer by every one of them.
    """
    batch = None
    for batch in batches:
        if not _is_longer(stats, batch.call_ns, batch.error_ns):
            return batch
    if batch is not None:
        _refuse_longer(stats, batch.call_ns, batch.error_ns)
    return None


def _refuse_longer(stats: Stats, judge_ns: float, tolerance_ns: float) -> None:
    if _is_longer(stats, judge_ns, tolerance_ns):
        raise SubmissionFailed(
            f"a call took {judge_ns / 1e3:.1f} us by the judge's clock and "
            f"{stats.mean / 1e3:.1f} us by the times its process sent: they do not agree"
        )


def _is_longer(stats: Stats, judge_ns: float, tolerance_ns: float) -> bool:
    return judge_ns > stats.mean * (1 + clock_tolerance_share) + tolerance_ns
