"""Where submissions are judged on this machine: one at a time on each place."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

_cores_each = 2
"""An emulated submission's tests and benchmarks run beside each other."""

_bytes_each = 3 << 30
"""The repository's own submission needs 1.6 GiB at most, and others may need more."""

_cgroup_limit = Path("/sys/fs/cgroup/memory.max")

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True)
class Place:
    """name: for people. device: as ``nvfp4 eval`` takes it. environment: variables that make it
    this place.
    """

    name: str
    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


def gpu_places(gpus: Sequence[str]) -> list[Place]:
    """A place for each GPU, as CUDA_VISIBLE_DEVICES names it. Nothing else may run on one that
    takes times.
    """
    return [
        Place(f"cuda:{number}", "cuda", {"CUDA_VISIBLE_DEVICES": gpu})
        for number, gpu in enumerate(gpus)
    ]


def cpu_places(jobs: int | None = None) -> list[Place]:
    """As many as asked for, or as cores and memory allow."""
    count = jobs or max(1, min(_cores() // _cores_each, _free_bytes() // _bytes_each))
    return [Place(f"cpu {number}", "cpu") for number in range(count)]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_bytes() -> int:
    """Memory that is available, of the machine and of the container; unknown is plenty."""
    free = 1 << 62
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
        free = int(found.group(1)) << 10 if found else free
    with contextlib.suppress(OSError, ValueError):  # "max"
        free = min(free, int(_cgroup_limit.read_text()))
    return free


def judge_on(
    places: Sequence[Place],
    jobs: Sequence[J],
    judge: Callable[[J, Place], R],
    stop: Callable[[], None],
    told: Callable[[J, R], None],
) -> None:
    """Judges each job on the next place that is free, and tells each result as it comes.

    stop: ends what runs, so that its ``judge`` raises; it is called where an interrupt or an error
    ends this. What was judged by then is told.
    """
    free: SimpleQueue[Place] = SimpleQueue()
    for place in places:
        free.put(place)

    def on_a_free_place(job: J) -> R:
        place = free.get()
        try:
            return judge(job, place)
        finally:
            free.put(place)

    pool = ThreadPoolExecutor(len(places))
    futures: dict[Future[R], J] = {}
    try:
        futures |= {pool.submit(on_a_free_place, job): job for job in jobs}
        for future in as_completed(list(futures)):
            told(futures.pop(future), future.result())
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        stop()
        pool.shutdown()
        if isinstance(error, KeyboardInterrupt):
            for future, job in futures.items():
                if not future.cancelled() and future.exception() is None:
                    told(job, future.result())
        raise
    pool.shutdown()
