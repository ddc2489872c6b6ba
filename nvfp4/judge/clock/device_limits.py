"""What this device can do at best: bandwidth, cost of an empty call."""

import statistics
from dataclasses import dataclass

import torch

from nvfp4.gpu.timing import CallTimer, Flush, call_timer, contest_flush

_warm_up_calls = 3
_empty_calls = 50
_bandwidth_calls = 10


@dataclass(frozen=True)
class DeviceLimits:
    """empty_ns: between events around nothing. settle_ns: what a device-wide synchronize adds."""

    read_gbps: float
    empty_ns: float
    settle_ns: float

    def floor_ns(self, nbytes: int) -> float:
        """By the bandwidth of a long read; a short one can have a higher one."""
        return nbytes / self.read_gbps + self.empty_ns


def measure_limits(
    device: torch.device, flush: Flush = contest_flush, read_gbps: float | None = None
) -> DeviceLimits:
    """Takes less than a second. read_gbps: where it is known."""
    timer = call_timer(device, flush)
    for _ in range(_warm_up_calls):
        timer.time(lambda: _launch_nothing(device))
    times = [timer.time(lambda: _launch_nothing(device))[1] for _ in range(_empty_calls)]
    empty_ns = statistics.median(each.call_ns for each in times)
    settle_ns = statistics.median(each.settled_ns - each.call_ns for each in times)
    limits = DeviceLimits(read_gbps or _read_gbps(timer, device, empty_ns), empty_ns, settle_ns)
    if device.type == "cuda":
        del timer
        torch.cuda.empty_cache()  # the submission's process needs memory too
    return limits


def _launch_nothing(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda._sleep(0)  # torch's only kernel without memory access


def _read_gbps(timer: CallTimer, device: torch.device, empty_ns: float) -> float:
    """The best of several sums over memory far larger than any cache."""
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        words = min(4 << 30, free_bytes // 4) // 8
    else:
        words = (256 << 20) // 8
    # Random contents: constant ones can move faster than data do.
    part = torch.empty(1 << 20, dtype=torch.int64, device=device).random_()
    buffer = part.repeat(words >> 20)
    best_ns = min(timer.time(buffer.sum)[1].call_ns for _ in range(_bandwidth_calls))
    return buffer.nbytes / max(best_ns - empty_ns, 1.0)
