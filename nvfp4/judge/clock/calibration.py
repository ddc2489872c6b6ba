"""Best bandwidth and floors of a device, measured before a submission is loaded."""

import hashlib
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch

from nvfp4.gpu import timing
from nvfp4.gpu.timing import CallTimer, CudaTimer, Flush
from nvfp4.judge.clock.reads import Read, Reads
from nvfp4.judge.facts import driver_version
from nvfp4.records.base import Record
from nvfp4.records.channel import record
from nvfp4.records.files import write_whole
from nvfp4.sandbox.caches import cache_root

_warm_up_calls = 3
_empty_calls = 16
_bandwidth_calls = 10


class DeviceLimits(Record):
    """Limits that no call can beat."""

    read_gbps: float
    empty_ns: float
    """Time between two events with nothing in between."""
    settle_ns: float
    """The time that a device-wide synchronize adds to a call after which the device is idle."""

    def floor_ns(self, nbytes: int) -> float:
        """Return the time of a read of so many bytes at the bandwidth of a long read; a short read
        can be faster."""
        return nbytes / self.read_gbps + self.empty_ns


def measure_limits(
    device: torch.device, flush: Flush = timing.contest_flush, read_gbps: float | None = None
) -> DeviceLimits:
    """Measure a device's limits, in less than a second. read_gbps: the bandwidth, if it is
    known."""
    timer = timing.call_timer(device, flush)
    for _ in range(_warm_up_calls):
        timer.time(lambda: _launch_nothing(device))
    times = [timer.time(lambda: _launch_nothing(device))[1] for _ in range(_empty_calls)]
    empty_ns = statistics.median(each.call_ns for each in times)
    # Nothing on the device hides what a slow host needs for it.
    waits = [timer.time(lambda: timing.wait_until_idle(device))[1] for _ in range(_empty_calls)]
    settle_ns = statistics.median(each.settled_ns - each.call_ns for each in waits)
    limits = DeviceLimits(read_gbps or _read_gbps(timer, device, empty_ns), empty_ns, settle_ns)
    if device.type == "cuda":
        del timer
        torch.cuda.empty_cache()  # the submission's process needs memory too
    return limits


def _launch_nothing(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda._sleep(0)  # torch's only kernel without memory access


def _read_gbps(timer: CallTimer, device: torch.device, empty_ns: float) -> float:
    """Return the best bandwidth of several sums over memory far larger than any cache."""
    words = (256 << 20) // 8
    if device.type == "cuda":
        words = min(4 << 30, torch.cuda.mem_get_info(device)[0] // 4) // 8
    # Random contents: constant ones can move faster than data do.
    buffer = torch.empty(1 << 20, dtype=torch.int64, device=device).random_().repeat(words >> 20)
    best_ns = min(timer.time(buffer.sum)[1].call_ns for _ in range(_bandwidth_calls))
    return buffer.nbytes / max(best_ns - empty_ns, 1.0)


KEPT_S = 3600.0

AS_LONG = 0.03
"""Largest relative difference of new reads from a stored floor at which the floor is kept."""

_reads_each = 6
"""New reads of each size that decide whether a stored floor holds."""


class Calibration(Record):
    """The limits of a device, and floors."""

    limits: DeviceLimits
    floors_ns: list[float]
    """Floors of the requested sizes."""


class _Measured(Record):
    """A stored measurement."""

    at_s: float
    """Time of the measurement, by the system's clock."""
    read_gbps: float
    floors: list[tuple[int, Read, float]]
    """Sizes in bytes, the fastest way to read each, and its time in nanoseconds."""


def calibrate(
    device: torch.device, flush: str, sizes: Sequence[int], anew: bool = False
) -> Calibration:
    """Return the limits, and the floor of a read for each of these sizes.

    flush: a name in ``gpu.timing.flushes``. anew: measure even if floors are stored.
    """
    if device.type != "cuda":
        limits = measure_limits(device)
        return Calibration(limits, [limits.floor_ns(each) for each in sizes])
    path = _path(device, flush)
    kept = None if anew else _kept(path, sizes)
    floors_ns = _still_ns(kept, device, flush, sizes) if kept else None
    if kept and floors_ns:
        return Calibration(measure_limits(device, timing.flushes[flush], kept.read_gbps), floors_ns)
    limits = measure_limits(device, timing.flushes[flush])
    floors = Reads(device).fastest(sizes, CudaTimer(device, timing.flushes[flush]))
    listed = [(size, *floor) for size, floor in zip(sizes, floors, strict=True)]
    _keep(path, _Measured(time.time(), limits.read_gbps, listed))
    torch.cuda.empty_cache()  # the submission's process needs memory too
    return Calibration(limits, [floor_ns for _, floor_ns in floors])


def _still_ns(
    kept: _Measured, device: torch.device, flush: str, sizes: Sequence[int]
) -> list[float] | None:
    """Return the stored floors if new reads confirm each of them."""
    timer = CudaTimer(device, timing.flushes[flush])
    reads = Reads(device, {way for _, way, _ in kept.floors})
    floors = {size: (way, ns) for size, way, ns in kept.floors}
    floors_ns = []
    for size in sizes:
        way, kept_ns = floors[size]
        if way not in reads.ways:
            return None
        seen_ns = reads.shortest_ns(size, way, timer, _reads_each)
        if abs(seen_ns - kept_ns) > AS_LONG * kept_ns:
            return None
        floors_ns.append(min(kept_ns, seen_ns))
    return floors_ns


def _path(device: torch.device, flush: str) -> Path:
    """Return the file of measurements on the same GPU with the same driver, torch and flush."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    same = uuid, driver_version(), torch.__version__, flush
    name = hashlib.sha256(repr(same).encode()).hexdigest()[:32]
    return cache_root() / "calibration" / f"{name}.json"


def _kept(path: Path, sizes: Sequence[int]) -> _Measured | None:
    """Return the stored measurement if it has all these sizes and is at most an hour old."""
    with suppress(OSError, ValueError):
        kept = record(_Measured, json.loads(path.read_text(encoding="utf-8")))
        has_all = {size for size, _, _ in kept.floors} >= set(sizes)
        if has_all and 0 <= time.time() - kept.at_s < KEPT_S:
            return kept
    return None


def _keep(path: Path, measured: _Measured) -> None:
    """Replace the kept measurement in one step; do nothing if the file cannot be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(asdict(measured)))
