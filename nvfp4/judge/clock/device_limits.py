"""What this device can do at best: bandwidth, cost of an empty call."""

import ctypes
import os
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from nvfp4.worker.timing import CallTimer, Flush, call_timer, contest_flush

_warm_up_calls = 3
_empty_calls = 50
_bandwidth_calls = 10
_memory_clock_khz, _memory_bus_bits = 36, 37  # CU_DEVICE_ATTRIBUTE_...


@dataclass(frozen=True)
class DeviceLimits:
    """empty_ns: between events around nothing. settle_ns: what a device-wide synchronize adds.
    peak_gbps: of the memory's pins, 0 where nobody says."""

    read_gbps: float
    empty_ns: float
    settle_ns: float
    peak_gbps: float = 0.0

    def floor_ns(self, nbytes: int) -> float:
        """About what a kernel needs that reads ``nbytes`` from memory as fast as a long read."""
        return nbytes / self.read_gbps + self.empty_ns

    def bound_ns(self, nbytes: int) -> float:
        """No kernel that reads ``nbytes`` from memory is faster: short reads can have a higher
        bandwidth than a long one, but none above that of the pins."""
        return nbytes / max(self.read_gbps, self.peak_gbps)


def free_memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        info = Path("/proc/meminfo").read_text()
    except OSError:
        return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
    available_kib = re.search(r"^MemAvailable:\s+(\d+)", info, re.MULTILINE)
    return int(available_kib.group(1)) << 10 if available_kib else 0


def measure_limits(device: torch.device, flush: Flush = contest_flush) -> DeviceLimits:
    """Takes less than a second."""
    timer = call_timer(device, flush)
    for _ in range(_warm_up_calls):
        timer.time(lambda: _launch_nothing(device))
    times = [timer.time(lambda: _launch_nothing(device))[1] for _ in range(_empty_calls)]
    empty_ns = statistics.median(each.call_ns for each in times)
    settle_ns = statistics.median(each.settled_ns - each.call_ns for each in times)
    read_gbps, peak_gbps = _read_gbps(timer, device, empty_ns), _peak_gbps(device)
    limits = DeviceLimits(read_gbps, empty_ns, settle_ns, peak_gbps)
    if device.type == "cuda":
        del timer
        torch.cuda.empty_cache()  # the submission's process needs memory too
    return limits


def _peak_gbps(device: torch.device) -> float:
    if device.type != "cuda":
        return 0.0
    driver, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    peak = 2e3 / 8 / 1e9  # two transfers a cycle
    for attribute in (_memory_clock_khz, _memory_bus_bits):
        value.value = 0
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device.index or 0)
        peak *= value.value
    return peak


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
