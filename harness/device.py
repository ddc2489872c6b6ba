"""What the present device is and what it can do at best: bandwidth, cost of an empty call."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from timing import CallTimer, call_timer

_warm_up_calls = 3
_empty_calls = 100
_bandwidth_calls = 20


@dataclass(frozen=True)
class DeviceFacts:
    """kind: cuda or cpu. capability: as "9.0". Versions as strings; None for what is not there.

    emulates: the architecture that CuTe DSL kernels are emulated as, None where they are not.
    """

    kind: str
    name: str
    capability: str | None
    driver: str | None
    torch: str
    cuda: str | None
    cutlass_dsl: str | None
    emulates: str | None


@dataclass(frozen=True)
class DeviceLimits:
    """Measured: read_gbps, the largest streaming-read bandwidth; empty_ns, events around nothing;
    settle_ns, what the device-wide synchronize adds to an empty call."""

    read_gbps: float
    empty_ns: float
    settle_ns: float

    def floor_ns(self, nbytes: int) -> float:
        """No kernel that reads ``nbytes`` from memory is faster on this device."""
        return nbytes / self.read_gbps + self.empty_ns


def device_facts(device: torch.device, arch: str = "sm_100a") -> DeviceFacts:
    """Name and versions of a device; ``arch`` is what kernels are emulated as without a GPU."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        name, capability = torch.cuda.get_device_name(device), f"{major}.{minor}"
    else:
        name, capability = _cpu_name(), None
    cutlass_dsl = _package_version("nvidia-cutlass-dsl")
    emulator_is_there = importlib.util.find_spec("nvfp4") is not None
    return DeviceFacts(
        kind=device.type,
        name=name,
        capability=capability,
        driver=_driver_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cutlass_dsl=cutlass_dsl,
        emulates=arch if device.type == "cpu" and cutlass_dsl and emulator_is_there else None,
    )


def _package_version(name: str) -> str | None:
    """The version of an installed package; it is not imported."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver_version() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    version = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return version.group() if version else None


def _cpu_name() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        info = ""
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return model.group(1) if model else platform.processor() or platform.machine()


def wait_until_idle(device: torch.device) -> None:
    """Waits for all that this process has queued on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free_memory_bytes(device: torch.device) -> int:
    """Memory that can be allocated without harm."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        info = Path("/proc/meminfo").read_text()
    except OSError:
        return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
    available_kib = re.search(r"^MemAvailable:\s+(\d+)", info, re.MULTILINE)
    return int(available_kib.group(1)) << 10 if available_kib else 0


def measure_limits(device: torch.device) -> DeviceLimits:
    """Measures the bandwidth and the empty call; below a second on a GPU and on a CPU."""
    timer = call_timer(device)
    for _ in range(_warm_up_calls):
        timer.time(lambda: _launch_nothing(device))
    times = [timer.time(lambda: _launch_nothing(device))[1] for _ in range(_empty_calls)]
    empty_ns = statistics.median(each.call_ns for each in times)
    settle_ns = statistics.median(each.settled_ns - each.call_ns for each in times)
    return DeviceLimits(_read_gbps(timer, device, empty_ns), empty_ns, settle_ns)


def _launch_nothing(device: torch.device) -> None:
    """An empty kernel on CUDA, an empty call on a CPU."""
    if device.type == "cuda":
        torch.cuda._sleep(0)  # torch's only kernel without memory access; it spins for 0 cycles


def _read_gbps(timer: CallTimer, device: torch.device, empty_ns: float) -> float:
    """Bytes a nanosecond of the best of several sums over memory far larger than any cache."""
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        words = min(4 << 30, free_bytes // 4) // 8
    else:
        words = (256 << 20) // 8
    # Random contents: constant ones can move faster than data do.
    buffer = torch.empty(words, dtype=torch.int64, device=device).random_()
    best_ns = min(timer.time(buffer.sum)[1].call_ns for _ in range(_bandwidth_calls))
    return words * 8 / max(best_ns - empty_ns, 1.0)
