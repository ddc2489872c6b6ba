"""Timers, the limits of a device, and what the judge refuses to believe."""

import math
import time

import pytest
import torch

from nvfp4.gpu.timing import CpuTimer, CudaTimer, call_timer, flushes
from nvfp4.judge.clock.calibration import DeviceLimits, calibrate, measure_limits
from nvfp4.judge.facts import device_facts
from nvfp4.judge.modes import schedules
from nvfp4.problems.nvfp4_gemv.reference import default_device
from nvfp4.records.options import Options

pytestmark = pytest.mark.alone


def test_a_call_on_the_cpu_is_timed_and_its_result_handed_on() -> None:
    def call() -> str:
        time.sleep(0.02)
        return "result"

    result, elapsed = CpuTimer().time(call)
    assert result == "result"
    assert 20e6 <= elapsed.call_ns < 2e9
    assert elapsed.settled_ns == elapsed.call_ns


def test_a_patched_clock_does_not_move_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = CpuTimer()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    _, elapsed = timer.time(lambda: time.sleep(0.002))
    assert elapsed.call_ns >= 2e6


def test_an_error_of_the_call_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        CpuTimer().time(lambda: 1 // 0)


def test_a_floor_is_the_bytes_over_the_bandwidth_and_an_empty_call() -> None:
    limits = DeviceLimits(read_gbps=1000.0, empty_ns=2000.0, settle_ns=10_000.0)
    assert limits.floor_ns(500_000) == pytest.approx(500 + 2000)
    assert limits.floor_ns(0) == 2000


def test_the_limits_of_this_device_are_believable() -> None:
    measured = measure_limits(default_device())
    assert 0.5 < measured.read_gbps < 20_000
    assert 0 <= measured.empty_ns < 1e6
    assert measured.settle_ns >= 0


def test_the_facts_name_this_device_and_its_torch() -> None:
    facts = device_facts(default_device(), Options())
    assert facts["kind"] == default_device().type
    assert facts["name"]
    assert facts["torch"] == torch.__version__
    assert (facts["capability"] is None) is (facts["kind"] == "cpu")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_schedule_warms_up_and_repeats(kind: str) -> None:
    assert schedules[kind].warm_up_calls >= 1
    assert schedules[kind].timed_calls >= 2


@pytest.mark.gpu
@pytest.mark.parametrize("flush", flushes)
def test_events_time_the_kernel_and_not_the_flush(flush: str) -> None:
    device = torch.device("cuda", 0)
    timer = call_timer(device, flushes[flush])
    assert isinstance(timer, CudaTimer)
    small = torch.zeros(1024, device=device)
    for _ in range(5):
        timer.time(small.sum)
    best_ns = min(timer.time(small.sum)[1].call_ns for _ in range(20))
    events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    events[0].record()
    timer.flush()
    events[1].record()
    torch.cuda.synchronize()
    assert best_ns < events[0].elapsed_time(events[1]) * 1e6 / 2


@pytest.mark.gpu
@pytest.mark.parametrize("flush", flushes)
def test_a_timed_call_finds_a_cold_cache(flush: str) -> None:
    device = torch.device("cuda", 0)
    timer = call_timer(device, flushes[flush])
    in_cache = torch.randn(4 << 20, device=device)  # 16 MiB, less than the L2 of any judged GPU
    for _ in range(5):
        timer.time(in_cache.sum)
    cold_ns = min(timer.time(in_cache.sum)[1].call_ns for _ in range(20))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    warm_ns = math.inf
    for _ in range(20):
        torch.cuda._sleep(1_000_000)  # covers the host's launch, as the flush does
        in_cache.sum()
        start.record()
        in_cache.sum()
        end.record()
        torch.cuda.synchronize()
        warm_ns = min(warm_ns, start.elapsed_time(end) * 1e6)
    assert cold_ns > 1.1 * warm_ns


@pytest.mark.gpu
def test_the_contest_s_flush_leaves_something_to_write_back() -> None:
    device, size = torch.device("cuda", 0), 64 << 20
    contest, clean = (calibrate(device, name, [size], True).floors_ns[0] for name in flushes)
    assert 100 < contest - clean < 50e3


@pytest.mark.gpu
def test_the_contest_s_flush_needs_a_quarter_of_free_memory_at_most() -> None:
    device = torch.device("cuda", 0)
    torch.cuda.empty_cache()
    free_bytes = torch.cuda.mem_get_info(device)[0]
    before = torch.cuda.memory_reserved(device)
    timer = CudaTimer(device)
    timer.flush()
    taken = torch.cuda.memory_reserved(device) - before
    assert taken <= min(4 << 30, free_bytes // 4) + (64 << 20)


@pytest.mark.gpu
def test_work_on_another_stream_shows_after_the_second_event() -> None:
    device = torch.device("cuda", 0)
    timer = call_timer(device)
    other = torch.cuda.Stream(device)

    def elsewhere() -> None:
        with torch.cuda.stream(other):
            torch.cuda._sleep(50_000_000)

    timer.time(elsewhere)
    _, elapsed = timer.time(elsewhere)
    assert elapsed.settled_ns - elapsed.call_ns > 5e6
