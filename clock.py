"""What times are believable: by the memory, by the device being idle, by the judge's clock."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from buffers import create_buffers
from device import DeviceLimits, free_memory_bytes
from opened_case import OpenedCase, generate
from stats import Stats
from submission_process import SubmissionFailed

floor_tolerance = 0.95
"""A mean below this share of the floor is impossible; the rest is the error of the floor itself."""

settle_tolerance_ns = 50e3
"""By how much the device may go idle later than after an empty call, beside a share of the call."""

settle_tolerance_share = 0.05

clock_tolerance_share = 0.1
"""By how much a call may take longer by the judge's clock than by the events, beside a constant."""

cuda_clock_tolerance_ns = 6e3
cpu_clock_tolerance_ns = 5e6

host_bound_share = 0.85
"""From this share of a batch's time on that the host needs to queue it, it is bound by the host."""

short_batch, long_batch = 4, 24


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
    batch. host_bound: queueing them took the host about as long as the device needed."""

    call_ns: float
    host_bound: bool


def read_times(answer: dict, wall_ns: float) -> CallTimes:
    """The times of an answer. Raises SubmissionFailed where they are no times."""
    call_ns, settled_ns = answer.get("call_ns"), answer.get("settled_ns")
    if not isinstance(call_ns, float) or not isinstance(settled_ns, float):
        raise SubmissionFailed("the submission's process sent no times")
    if not (0 < call_ns <= settled_ns < math.inf):
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

    Where the host is the bottleneck the batch says nothing about the device.
    """
    if not batch.host_bound:
        _refuse_longer(stats, batch.call_ns, cuda_clock_tolerance_ns)


def _refuse_longer(stats: Stats, judge_ns: float, tolerance_ns: float) -> None:
    if judge_ns > stats.mean * (1 + clock_tolerance_share) + tolerance_ns:
        raise SubmissionFailed(
            f"a call took {judge_ns / 1e3:.1f} us by the judge's clock and "
            f"{stats.mean / 1e3:.1f} us by the times its process sent: they do not agree"
        )


def time_batch(opened: OpenedCase, seeds: Sequence[int], device: torch.device) -> Batch | None:
    """Has calls on different contents queued back to back, and checks every output.

    seeds: of at least ``short_batch + long_batch`` contents. None where memory is too small for
    them. Raises SubmissionFailed.
    """
    count = short_batch + long_batch
    case = opened.case
    if count * case.bytes > free_memory_bytes(device) // 4:
        return None
    contents = [generate(case, seed) for seed in seeds[:count]]
    sets = [create_buffers(case.m, case.k, case.l, device) for _ in contents]
    for data, buffers in zip(contents, sets, strict=True):
        opened.fill(buffers, data)
    opened.ask("batch_open", sets=[each.handles for each in sets])
    torch.cuda.synchronize(device)
    _, short_ns = _timed_batch(opened, 0, short_batch)
    queued_ns, long_ns = _timed_batch(opened, short_batch, count)
    opened.ask("batch_hand_over")
    for data, buffers in zip(contents, sets, strict=True):
        opened.check(buffers, data)
    return Batch(
        # What each of the two batches costs besides its calls drops out of the difference.
        call_ns=(long_ns - short_ns) / (long_batch - short_batch),
        host_bound=queued_ns > host_bound_share * long_ns,
    )


def _timed_batch(opened: OpenedCase, first: int, last: int) -> tuple[int, int]:
    """Nanoseconds until the calls were queued, and until the device was done with them."""
    start_ns = time.perf_counter_ns()
    opened.ask("batch_call", first=first, last=last)
    queued_ns = time.perf_counter_ns() - start_ns
    opened.ask("batch_wait")
    return queued_ns, time.perf_counter_ns() - start_ns
