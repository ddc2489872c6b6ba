"""Kernels that read memory as fast as can be, and the floor that follows from them."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bot import root
from conftest import run_python
from ptx_runs import run_ptx

from nvfp4.gpu.timing import CallTime
from nvfp4.judge.clock import calibration
from nvfp4.judge.clock import reads as reads_module
from nvfp4.judge.clock.calibration import DeviceLimits, calibrate
from nvfp4.judge.clock.reads import Read, Reads, module, ways

cpu = torch.device("cpu")

EVERY = [(header, read) for header, reads in ways((10, 0), (9, 0)).items() for read in reads]


@pytest.mark.parametrize(("header", "read"), EVERY, ids=lambda each: getattr(each, "name", ""))
@pytest.mark.parametrize("ctas", [1, 2.5])
def test_every_byte_is_read_and_none_beside_them(header: str, read: Read, ctas: float) -> None:
    nbytes = int(read.cta_bytes * ctas) // 32 * 32
    memory, sink = np.zeros(nbytes + 128, np.uint8), np.zeros(1, np.uint32)
    source = -(-memory.ctypes.data // 128) * 128
    grid, block, shared_bytes, parameters = read.launch(source, nbytes, sink.ctypes.data)
    ptx = module(header, [read])
    buffers = [("source", source, nbytes), ("sink", sink.ctypes.data, sink.nbytes)]
    report = run_ptx(ptx, read.name, grid, block, parameters, shared_bytes, buffers)
    assert report.sectors_read == nbytes // 32
    assert report.findings == []
    assert report.global_written_bytes == 0


def test_a_gpu_is_offered_what_it_can_run() -> None:
    old, hopper, new = (ways(each, (9, 0)) for each in ((8, 0), (9, 0), (10, 0)))
    assert list(old.items()) == list(hopper.items())[:1] == list(new.items())[:1]
    assert list(hopper.items()) == list(new.items())[:2]
    assert ways((10, 0), (8, 7)) == hopper, "the driver knows no loads of 32 bytes"


class Device:
    """A driver, kernels and a timer: a read takes 1 ns a KiB and as much more as a hiccup says."""

    def __init__(self) -> None:
        self.launched: list[tuple[str, int]] = []
        self.hiccups: Callable[[int], float] = lambda call: 0.0
        self.late: Callable[[int], bool] = lambda call: False
        self.calls = 0
        self.share = 1.0

    def newest_ptx(self) -> tuple[int, int]:
        return 9, 0

    def load(self, ptx: str) -> Any:
        return SimpleNamespace(kernel=self.kernel)

    def kernel(self, name: str, parameter_bytes: tuple[int, ...]) -> Any:
        def launch(grid: Any, block: Any, *more: Any) -> None:
            self.launched.append((name, int.from_bytes(more[1][1], "little")))

        return SimpleNamespace(launch=launch)

    def time(self, call: Callable[[], object]) -> tuple[None, CallTime]:
        call()
        name, nbytes = self.launched[-1]
        self.calls += 1
        slower = self.share if name == "read_2x16" else 1.5
        call_ns = slower * nbytes / 1024 + self.hiccups(self.calls)
        return None, CallTime(call_ns, call_ns, late=self.late(self.calls))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(random, "sample", lambda found, _: found)
    monkeypatch.setattr(reads_module, "installed_driver", lambda: made)
    monkeypatch.setattr(reads_module, "_buffer_bytes", 4 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1 << 30, 1 << 30))
    stream = SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    return made


def floors(device: Device, *sizes: int) -> list[float]:
    return [ns for _, ns in Reads(cpu).fastest(sizes, device)]  # type: ignore[arg-type]


def test_the_floor_is_the_shortest_read_of_all_ways(device: Device) -> None:
    assert floors(device, 1 << 20, 2 << 20) == [1024, 2048]
    device.hiccups = lambda call: 50.0 * (call % 3)
    assert floors(device, 1 << 20) == [1024]


def test_a_call_that_the_host_was_late_for_counts_only_alone(device: Device) -> None:
    device.hiccups = lambda call: -10.0 * (call % 2)
    device.late = lambda call: call % 2 == 1
    assert floors(device, 1 << 20) == [1024]
    device.late = lambda call: True
    assert floors(device, 1 << 20)[0] >= 1014


def test_more_than_the_buffer_takes_as_much_longer(device: Device) -> None:
    assert floors(device, 16 << 20) == [16 << 10]
    assert max(nbytes for _, nbytes in device.launched) == 4 << 20


class Uuid:
    """Another object each time, as torch's; only its text stays."""

    def __str__(self) -> str:
        return "GPU-1"


class Kept:
    """Calibrates the device, one process after another, with what is kept in a folder."""

    def __init__(self, made: Device, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._made = made
        self.limits: list[float | None] = []
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))

        def properties(*_: object) -> Any:
            return SimpleNamespace(uuid=Uuid())

        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(calibration, "CudaTimer", lambda *_: made)
        monkeypatch.setattr(calibration, "measure_limits", self._measure_limits)
        monkeypatch.setattr(calibration, "Reads", lambda _, *more: Reads(cpu, *more))

    def _measure_limits(self, device: Any, flush: Any, known: float | None = None) -> DeviceLimits:
        self.limits.append(known)
        return DeviceLimits(known or 2000.0, 1000.0, 500.0)

    def again(self, *sizes: int, flush: str = "clean", anew: bool = False) -> tuple[Any, int]:
        """The calibration, and how many reads it took."""
        before = self._made.calls
        return calibrate(torch.device("cuda", 0), flush, sizes, anew), self._made.calls - before


@pytest.fixture
def kept(device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kept:
    return Kept(device, monkeypatch, tmp_path)


def test_a_calibration_is_kept_and_a_few_reads_show_that_it_holds(kept: Kept) -> None:
    found, reads = kept.again(1 << 20, 2 << 20)
    assert found.floors_ns == [1024, 2048]
    again, few = kept.again(2 << 20)
    assert again.floors_ns == [2048]
    assert again.limits == found.limits
    assert kept.limits == [None, 2000.0]
    assert few < reads / 4


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_a_device_that_reads_otherwise_now_is_calibrated_anew(
    kept: Kept, device: Device, share: float
) -> None:
    kept.again(1 << 20)
    device.share = share
    assert kept.again(1 << 20)[0].floors_ns == [pytest.approx(share * 1024)]
    assert kept.limits == [None, None]


def test_a_floor_that_is_seen_a_little_lower_is_lower(kept: Kept, device: Device) -> None:
    kept.again(1 << 20)
    for device.share, floor_ns in ((0.99, pytest.approx(0.99 * 1024)), (1.01, 1024)):
        assert kept.again(1 << 20)[0].floors_ns == [floor_ns]
    assert kept.limits == [None, 2000.0, 2000.0]


@pytest.mark.parametrize(
    ("size", "asked"),
    [(4 << 20, {}), (1 << 20, {"flush": "contest"}), (1 << 20, {"anew": True})],
    ids=["a size", "a flush", "on demand"],
)
def test_other_sizes_and_flushes_are_calibrated_anew(
    kept: Kept, size: int, asked: dict[str, Any]
) -> None:
    kept.again(1 << 20)
    kept.again(size, **asked)
    assert kept.limits == [None, None]


def test_what_is_kept_is_believed_for_an_hour(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.again(1 << 20)
    now_s = time.time()
    for later_s in (0.9 * calibration.KEPT_S, 1.1 * calibration.KEPT_S, -60.0):
        monkeypatch.setattr(time, "time", lambda later_s=later_s: now_s + later_s)
        kept.again(1 << 20)
    assert kept.limits == [None, 2000.0, None, None]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"at_s": 0, "read_gbps": 1, "floors": [[1]]}'])
def test_a_broken_file_is_measured_over(kept: Kept, tmp_path: Path, text: str) -> None:
    kept.again(1 << 20)
    (file,) = tmp_path.rglob("calibration/*")
    file.write_text(text)
    kept.again(1 << 20)
    kept.again(1 << 20)
    assert kept.limits == [None, None, 2000.0]


def said(*arguments: str) -> Any:
    """What the command prints as JSON."""
    return json.loads(run_python("-m", "nvfp4", *arguments, "--json").stdout)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("flush", ["contest", "clean"])
@pytest.mark.parametrize("file", ["submission.py", "ladder/cute/11_tuned.py"])
def test_no_kernel_of_the_repository_is_faster_than_the_floor(file: str, flush: str) -> None:
    for benchmark in said("bench", str(root / file), "--flush", flush)["benchmarks"]:
        assert benchmark["message"] is None
        assert benchmark["floor_us"] <= benchmark["mean_us"]


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("flush", ["contest", "clean"])
def test_no_read_is_faster_than_the_floor_whoever_measures_it(flush: str) -> None:
    from benchmarks.compare import Clock

    clock, shown = Clock(flush), said("info", "--flush", flush)["floors"]
    sizes = [each["bytes"] for each in shown]
    for size, floor_us, each in zip(sizes, clock.floors_us(sizes), shown, strict=True):
        plain_us = clock.medians_us({"plain read": clock.plain_read(size)}, 50)["plain read"]
        latest_us = 1.01 * plain_us  # medians of two processes on an H200 differ by as much
        assert floor_us <= latest_us
        assert each["floor_us"] <= latest_us
        assert each["floor_us"] == pytest.approx(floor_us, rel=0.05)
