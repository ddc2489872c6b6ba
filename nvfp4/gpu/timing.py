"""Times single calls on a cold cache, in the order of the contest's benchmark.

On CUDA an L2 flush follows a synchronize. It still runs while the host queues the call and so hides
the host's launch overhead. Two events on the current stream bracket the call; a third follows a
device-wide synchronize and shows work that runs elsewhere. What these say is checked by the judge's
own clock, ``judge.clock.gated_clock``.
"""

import ctypes
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, TypeVar

import torch

from nvfp4.records.base import Record

T = TypeVar("T")

Flush = Callable[[torch.device], Callable[[], None]]
"""Sets up a function that replaces the contents of a device's L2 asynchronously."""

spin_cycles = 1_000_000  # about half a millisecond
_event_sets = 32
_contest_bytes = 4 << 30
_persisting_l2_cache_size = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_release_threshold = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
_no_release = (1 << 64) - 1


class CallTime(Record):
    """The times of a call."""

    call_ns: float
    """Time between the events around the call."""
    settled_ns: float
    """Time until the device was idle."""
    late: bool = False
    """Whether the device waited for the host to queue the call."""
    wall_ns: float = 0.0
    """Time from request to answer by the judge's clock."""


class CallTimer(Protocol):
    def time(self, call: Callable[[], T]) -> tuple[T, CallTime]:
        """Return the result of one call and its time."""


def contest_flush(device: torch.device) -> Callable[[], None]:
    """Fill 4 GiB, or a quarter of free memory, with random numbers as the contest does: the timed
    call writes back what is left of them in the L2.
    """
    # Kept: a submission may replace the attributes of torch.
    memory, empty, generator = torch.cuda.mem_get_info, torch.empty, torch.Generator(device)

    @cache
    def buffer() -> torch.Tensor:  # only now, as many processes may wait for their turn
        nbytes = min(_contest_bytes, memory(device)[0] // 4)
        return empty(nbytes // 4, dtype=torch.float32, device=device)

    def flush() -> None:
        filled = buffer()
        torch.cuda._sleep(spin_cycles)  # before, so that nothing else is written meanwhile
        filled.normal_(generator=generator)

    return flush


def fill_flush(device: torch.device) -> Callable[[], None]:
    """Return a flush that fills 256 MiB, as most of GPU MODE's problems do.

    The fill may end before a slow host has launched the call. The time of the call then includes
    the launch, here as in the contest.
    """
    sizes = 32, 1024, 1024

    def flush() -> None:
        torch.empty(sizes, dtype=torch.int64, device=device).fill_(42)

    return flush


class CudaTimer:
    def __init__(self, device: torch.device, flush: Flush = contest_flush) -> None:
        self._device = device
        self._hides_launches = flush is not fill_flush
        torch.cuda.synchronize(device)  # limits are those of a context
        self._replace_contents = flush(device)
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
        """Replace the contents of the L2, persisting lines included; asynchronous."""
        self._driver.cuCtxResetPersistingL2Cache()
        self._replace_contents()

    def synchronize(self) -> None:
        self._synchronize(self._device)

    def l2_was_set_aside(self) -> bool:
        """Whether more L2 is kept for persisting accesses than at first."""
        return self._persisting_l2_bytes() > self._persisting_at_first

    def _persisting_l2_bytes(self) -> int:
        size = ctypes.c_size_t()
        self._driver.cuCtxGetLimit(ctypes.byref(size), _persisting_l2_cache_size)
        return size.value

    @contextmanager
    def _memory_kept(self) -> Iterator[None]:
        """Keep memory of cudaFreeAsync while the block runs.

        A synchronize that returns the memory to the system takes time, which looks as if a kernel
        were still running. The next synchronize returns it, as in the contest.
        """
        device, pool, asked = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._driver.cuCtxGetDevice(ctypes.byref(device))
        if self._driver.cuDeviceGetMemPool(ctypes.byref(pool), device):  # there are no pools
            yield
            return
        attribute = pool, ctypes.c_int(_release_threshold)
        self._driver.cuMemPoolGetAttribute(*attribute, ctypes.byref(asked))
        self._driver.cuMemPoolSetAttribute(*attribute, ctypes.byref(ctypes.c_uint64(_no_release)))
        yield
        self._driver.cuMemPoolSetAttribute(*attribute, ctypes.byref(asked))

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
        with self._memory_kept():
            self.synchronize()
            settled.record(stream)
            settled.synchronize()
        return result, CallTime(
            self._elapsed_ms(start, end) * 1e6,
            self._elapsed_ms(start, settled) * 1e6,
            late=self._hides_launches and host_ns > self._elapsed_ms(begin, start) * 1e6,
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


def call_timer(device: torch.device, flush: Flush = contest_flush) -> CallTimer:
    return CudaTimer(device, flush) if device.type == "cuda" else CpuTimer()


def wait_until_idle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


_most_flush_buffers = 8


def clean_flush(device: torch.device) -> Callable[[], None]:
    """Return a flush that writes four times the L2, then reads it, so that the timed call has
    nothing to write back.

    Several buffers take turns, as the place of one in memory changes a short call by some tenths of
    a percent. All together take a quarter of free memory at most.
    """
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    most_bytes = torch.cuda.mem_get_info(device)[0] // 4
    nbytes = min(max(4 * l2_bytes, 256 << 20), most_bytes)
    count = min(_most_flush_buffers, most_bytes // nbytes)
    buffers = torch.zeros(count, nbytes // 8, dtype=torch.int64, device=device).unbind()
    turns = itertools.cycle(buffers)
    sink = torch.empty((), dtype=torch.int64, device=device)

    def flush() -> None:
        buffer = next(turns)
        buffer.zero_()
        torch.sum(buffer, dim=0, out=sink)
        torch.cuda._sleep(spin_cycles)

    return flush


flushes: dict[str, Flush] = {
    "contest": contest_flush,
    "clean": clean_flush,
    "fill": fill_flush,
    "none": lambda device: lambda: None,
}
