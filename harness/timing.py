"""Timing single calls on a cold cache, the same way for every kernel.

On CUDA, each timed call is preceded by a flush of the L2 cache that is still running while the host
queues the call, so launch overhead of the host stays out of the figure; a pair of events on the
current stream brackets the call, and a third event follows a device-wide synchronize. Work that a
call leaves running elsewhere shows as a gap between the second and the third event.
On a CPU, ``perf_counter`` brackets each call.
"""

import ctypes
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")

_spin_cycles = 1_000_000  # about half a millisecond

_most_flush_buffers, _event_sets = 8, 32

_persisting_l2_cache_size = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE of the CUDA driver


@dataclass(frozen=True)
class CallTime:
    """Of one call, in nanoseconds. call: between the events around it. settled: until the device
    was idle. late: whether the device had to wait for the host to queue the call. wall: from the
    judge's request to the answer, by the judge's own clock; 0 where nobody asked.
    """

    call_ns: float
    settled_ns: float
    late: bool = False
    wall_ns: float = 0.0


class CallTimer(Protocol):
    """Times one call on a cold cache and returns its result."""

    def time(self, call: Callable[[], T]) -> tuple[T, CallTime]: ...


def flush_bytes(device: torch.device) -> int:
    """Size of the flush: four times the L2, 256 MiB at least, a quarter of free memory at most."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return min(max(4 * l2_bytes, 256 << 20), free_bytes // 4)


def _flush_buffers(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Several buffers for the flush, as far as a quarter of free memory goes: int64 each."""
    free_bytes, _ = torch.cuda.mem_get_info(device)
    nbytes = flush_bytes(device)
    count = max(1, min(_most_flush_buffers, free_bytes // 4 // nbytes))
    return torch.zeros(count, nbytes // 8, dtype=torch.int64, device=device).unbind()


class CudaTimer:
    """Event timing on a CUDA device with a cold L2.

    It takes turns with several flush buffers and events: where one lies in memory makes some tenths
    of a percent of a short call, and would for all calls of a process.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flushes = itertools.cycle(_flush_buffers(device))
        self._sink = torch.empty((), dtype=torch.int64, device=device)
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._persisting_at_first = self._persisting_l2_bytes()
        # References of our own: code that is timed may replace the attributes of torch.cuda.
        self._synchronize = torch.cuda.synchronize
        self._events = itertools.cycle(
            [torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(_event_sets)
        )
        self._elapsed_ms = torch.cuda.Event.elapsed_time
        self._clock_ns = time.perf_counter_ns

    def flush(self) -> None:
        """Replaces what the L2 holds, persisting lines included; asynchronous.

        It writes, then reads: the lines left behind are clean, so that the timed call is not
        charged with writing back the flush's own data. Then it spins for a while, without touching
        memory, so that the host has time to queue the call.
        """
        self._driver.cuCtxResetPersistingL2Cache()
        buffer = next(self._flushes)
        buffer.zero_()
        torch.sum(buffer, dim=0, out=self._sink)
        torch.cuda._sleep(_spin_cycles)

    def synchronize(self) -> None:
        """Waits until the device is idle."""
        self._synchronize(self._device)

    def l2_was_set_aside(self) -> bool:
        """Whether more of the L2 is kept for persisting accesses than when the timer was made."""
        return self._persisting_l2_bytes() > self._persisting_at_first

    def _persisting_l2_bytes(self) -> int:
        size = ctypes.c_size_t()
        self._driver.cuCtxGetLimit(ctypes.byref(size), _persisting_l2_cache_size)
        return size.value

    def time(self, call: Callable[[], T]) -> tuple[T, CallTime]:
        stream = torch.cuda.current_stream(self._device)
        begin, start, end, settled = next(self._events)
        self.synchronize()
        with _no_garbage_collection():
            begin.record(stream)
            begin_ns = self._clock_ns()
            self.flush()
            start.record(stream)
            result = call()
            end.record(stream)
            host_ns = self._clock_ns() - begin_ns
        self.synchronize()
        settled.record(stream)
        settled.synchronize()
        return result, CallTime(
            self._elapsed_ms(start, end) * 1e6,
            self._elapsed_ms(start, settled) * 1e6,
            late=host_ns > self._elapsed_ms(begin, start) * 1e6,
        )


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection in the middle of a call would be charged to it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class CpuTimer:
    """perf_counter around each call."""

    def __init__(self) -> None:
        self._clock_ns = time.perf_counter_ns

    def time(self, call: Callable[[], T]) -> tuple[T, CallTime]:
        start_ns = self._clock_ns()
        result = call()
        call_ns = float(self._clock_ns() - start_ns)
        return result, CallTime(call_ns, call_ns)


def call_timer(device: torch.device) -> CallTimer:
    """The timer of a device."""
    return CudaTimer(device) if device.type == "cuda" else CpuTimer()
