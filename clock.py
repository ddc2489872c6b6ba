"""What times are believable: by the memory, by the device being idle, by the judge's clock."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from buffers import create_buffers
from cases import Case
from device import DeviceLimits, free_memory_bytes
from opened_case import OpenedCase, generate
from stats import Stats
from submission_process import SubmissionFailed
from timing import CudaTimer

floor_tolerance = 0.95
"""A mean below this share of the floor is impossible; the rest is the error of the floor itself."""

settle_tolerance_ns = 50e3
"""By how much the device may go idle later than after an empty call, beside a share of the call."""

settle_tolerance_share = 0.05

longest_ns = 1e15
"""Eleven days; no call takes so long, and sums of such times are still numbers."""

clock_tolerance_share = 0.1
"""By how much a call may take longer by the judge's clock than by the events, beside a constant."""

cuda_clock_tolerance_ns = 30e3
cpu_clock_tolerance_ns = 5e6

hidden_ns = 1e6
"""What a host may need before its first launch and still not show between the events: the flush."""

most_in_batch, least_in_batch = 56, 16


@dataclass(frozen=True)
class CallTimes:
    """Of one call, in nanoseconds. call: reported by the worker, between the events. settled: until
    the device was idle. wall: from request to answer, by the judge's own clock."""

    call_ns: float
    settled_ns: float
    wall_ns: float


@dataclass(frozen=True)
class Batch:
    """Calls queued back to back on different contents, by the judge's clock. call_ns: a call of the
    batch. host_bound: queueing them took longer than the device was kept busy meanwhile."""

    call_ns: float
    host_bound: bool


def read_times(answer: dict, wall_ns: float) -> CallTimes:
    """The times of an answer. Raises SubmissionFailed where they are no times."""
    call_ns, settled_ns = answer.get("call_ns"), answer.get("settled_ns")
    if not isinstance(call_ns, float) or not isinstance(settled_ns, float):
        raise SubmissionFailed("the submission's process sent no times")
    if not (0 < call_ns <= settled_ns < longest_ns):
        raise SubmissionFailed("the submission's process sent impossible times")
    return CallTimes(call_ns, settled_ns, wall_ns)


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


def refuse_long_batch(stats: Stats, batch: Batch) -> None:
    """Raises SubmissionFailed where calls queued back to back took longer than was reported.

    Where the host is the bottleneck, what it does before its first launch stays hidden behind the
    flush of a timed call, but not in a batch.
    """
    hidden = hidden_ns if batch.host_bound else 0.0
    _refuse_longer(stats, batch.call_ns, cuda_clock_tolerance_ns + hidden)


def _refuse_longer(stats: Stats, judge_ns: float, tolerance_ns: float) -> None:
    if judge_ns > stats.mean * (1 + clock_tolerance_share) + tolerance_ns:
        raise SubmissionFailed(
            f"a call took {judge_ns / 1e3:.1f} us by the judge's clock and "
            f"{stats.mean / 1e3:.1f} us by the times its process sent: they do not agree"
        )


def batch_size(case: Case, device: torch.device) -> int:
    """How many calls a batch of a case has: as many as memory has room for, 0 for too few."""
    size = min(most_in_batch, free_memory_bytes(device) // (8 * case.bytes))
    return size if size >= least_in_batch else 0


def time_batch(opened: OpenedCase, seeds: Sequence[int], device: torch.device) -> Batch:
    """Has a call on the contents of each seed queued, back to back, and checks every output.

    The device is kept busy while the host queues them, so that the host is not what is measured.
    Raises SubmissionFailed.
    """
    case = opened.case
    contents = [generate(case, seed) for seed in seeds]
    sets = [create_buffers(case.m, case.k, case.l, device) for _ in contents]
    for data, buffers in zip(contents, sets, strict=True):
        opened.fill(buffers, data)
    opened.ask("batch_open", sets=[each.handles for each in sets])
    busy_ns = _busy_ns(device)
    start_ns = time.perf_counter_ns()
    opened.ask("batch_call")
    queued_ns = time.perf_counter_ns() - start_ns
    opened.ask("batch_wait")
    all_ns = time.perf_counter_ns() - start_ns
    opened.ask("batch_hand_over")
    for data, buffers in zip(contents, sets, strict=True):
        opened.check(buffers, data)
    call_ns = max(0.0, all_ns - busy_ns) / len(sets)
    return Batch(call_ns, host_bound=queued_ns > busy_ns)


def _busy_ns(device: torch.device) -> float:
    """How long the device is kept busy, by the same clock."""
    timer = CudaTimer(device)
    times = []
    for _ in range(4):
        timer.synchronize()
        start_ns = time.perf_counter_ns()
        timer.keep_busy()
        timer.synchronize()
        times.append(time.perf_counter_ns() - start_ns)
    return float(statistics.median(times))
