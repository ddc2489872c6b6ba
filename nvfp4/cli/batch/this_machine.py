"""Judges the submissions of a batch on this machine: one at a time on each place."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from nvfp4.cli.batch.eval_process import Candidate, EvalProcesses
from nvfp4.cli.batch.options import BatchOptions, Busy, Told
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.info import visible_gpus


class ThisMachine:
    """kind: cuda or cpu."""

    def __init__(self, options: BatchOptions) -> None:
        """Raises SetupError."""
        self._options = options
        self._places = _places(options)
        self.kind = self._places[0].device.partition(":")[0]

    def judge(self, candidates: Sequence[Candidate], told: Told, busy: Busy) -> None:
        """As of Judges."""
        processes = EvalProcesses(self._options.arguments, self._options.limit_s)

        def judge(candidate: Candidate, place: Place) -> dict[str, Any]:
            busy[place.name] = (str(candidate.paths[0]), time.monotonic())
            try:
                return processes.judge(candidate, place.device, place.environment)
            finally:
                del busy[place.name]

        judge_on(self._places, candidates, judge, processes.stop, told)


def _places(options: BatchOptions) -> list[Place]:
    gpus = [] if options.device in ("cpu", "emulate") else visible_gpus()
    if not gpus:
        if options.device.startswith("cuda") or options.gpus:
            raise SetupError("there is no GPU", "--device cpu judges without.")
        return cpu_places(options.jobs)
    if options.jobs:
        raise SetupError(
            "a GPU judges one submission at a time", "--gpus N says how many.", "usage"
        )
    if ":" in options.device:
        return [Place(options.device, options.device)]
    wanted = options.gpus or len(gpus)
    if wanted > len(gpus):
        raise SetupError(f"there are {len(gpus)} GPUs, not {wanted}", "Leave out --gpus.", "usage")
    return gpu_places(gpus[:wanted])


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
