"""Times single calls on a cold cache.

On CUDA an L2 flush, which still runs while the host queues the call, hides the host's launch
overhead. Two events on the current stream bracket the call; a third follows a device-wide
synchronize and shows work that runs elsewhere.
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
_persisting_l2_cache_size = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE


@dataclass(frozen=True)
class CallTime:
    """call: between the events around it. settled: until the device was idle. late: whether the
    device waited for the host to queue the call. wall: from request to answer by the judge's
    clock."""

    call_ns: float
    settled_ns: float
    late: bool = False
    wall_ns: float = 0.0


class CallTimer(Protocol):
    def time(self, call: Callable[[], T]) -> tuple[T, CallTime]:
        """The result of one call and its time."""


def _flush_buffers(device: torch.device) -> tuple[torch.Tensor, ...]:
    """int64, each four times the L2 and 256 MiB at least; all at most a quarter of free memory."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    most_bytes = torch.cuda.mem_get_info(device)[0] // 4
    nbytes = min(max(4 * l2_bytes, 256 << 20), most_bytes)
    count = min(_most_flush_buffers, most_bytes // nbytes)
    return torch.zeros(count, nbytes // 8, dtype=torch.int64, device=device).unbind()


class CudaTimer:
    """Takes turns with several flush buffers and events: where one lies in memory changes a short
    call by some tenths of a percent."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flushes = itertools.cycle(_flush_buffers(device))
        self._sink = torch.empty((), dtype=torch.int64, device=device)
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._persisting_at_first = self._persisting_l2_bytes()
        # Kept: a submission may replace the attributes of torch.
        self._synchronize = torch.cuda.synchronize
        self._events = itertools.cycle(
            [torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(_event_sets)
        )
        self._elapsed_ms = torch.cuda.Event.elapsed_time
        self._clock_ns = time.perf_counter_ns

    def flush(self) -> None:
        """Replaces what the L2 holds, persisting lines included; asynchronous.

        Reads what it has written, so that the timed call need not write back its lines. Then spins,
        while the host queues the call.
        """
        self._driver.cuCtxResetPersistingL2Cache()
        buffer = next(self._flushes)
        buffer.zero_()
        torch.sum(buffer, dim=0, out=self._sink)
        torch.cuda._sleep(_spin_cycles)

    def synchronize(self) -> None:
        self._synchronize(self._device)

    def l2_was_set_aside(self) -> bool:
        """Whether more L2 is kept for persisting accesses than at first."""
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
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class CpuTimer:
    def __init__(self) -> None:
        self._clock_ns = time.perf_counter_ns

    def time(self, call: Callable[[], T]) -> tuple[T, CallTime]:
        start_ns = self._clock_ns()
        result = call()
        call_ns = float(self._clock_ns() - start_ns)
        return result, CallTime(call_ns, call_ns)


def call_timer(device: torch.device) -> CallTimer:
    return CudaTimer(device) if device.type == "cuda" else CpuTimer()
