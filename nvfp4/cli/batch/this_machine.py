"""Judges the submissions of a batch on this machine: one at a time on each place."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

from nvfp4.cli.batch.eval_process import BatchOptions, Candidate, EvalProcesses, Told
from nvfp4.cli.errors import SetupError
from nvfp4.cli.info import visible_gpus
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.build_ahead import BuildAhead, core_count, free_bytes
from nvfp4.cli.problem import load_problem
from nvfp4.cli.text import percent, several


@dataclass(frozen=True)
class Place:
    """A GPU, or a share of the cores, on which one submission is judged at a time."""

    name: str
    """Name of the place, for messages."""
    device: str
    """The value of ``nvfp4 eval --device``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the processes that judge there."""
    capability: str | None = None
    """The GPU's compute capability, such as 9.0."""


class ThisMachine:
    """The judgements on this machine. kind: cuda or cpu."""

    def __init__(self, options: BatchOptions) -> None:
        """Find the places. Raises SetupError."""
        self._options = options
        self._places = _places(options)
        self._gpus = {each.name: _Gpu() for each in self._places}
        self.kind = self._places[0].device.partition(":")[0]

    def judge(self, candidates: Sequence[Candidate], told: Told) -> str | None:
        """See Judges. While a GPU judges submissions, others are built."""
        processes = EvalProcesses(self._options.arguments, self._options.limit_s)
        problem, options = load_problem(), self._options.options
        spent = GpuTime([*self._gpus] if self.kind == "cuda" else [])

        @contextmanager
        def turn(name: str, alone: bool) -> Iterator[None]:
            with self._gpus[name].turn(alone), spent.during(name, "judging"):
                yield

        def judge(candidate: Candidate, place: Place) -> dict[str, Any]:
            turns = partial(turn, place.name)
            with spent.during(place.name, "loading"):
                return processes.judge(candidate, place.device, place.environment, turns)

        gpus = [each.capability for each in self._places]
        with BuildAhead(gpus, len(gpus)) as ahead:

            def prepare(candidate: Candidate, ready: Callable[[], None]) -> None:
                def built(future: Future[None]) -> None:
                    spent.count("", "building", -1)
                    if not future.cancelled():
                        ready()

                spent.count("", "building", 1)
                ahead.begin(Bot(problem, candidate.content, options)).add_done_callback(built)

            def stop() -> None:
                ahead.stop()
                processes.stop()

            # The first of each GPU before the second of any.
            most = min(_JUDGED_AT_ONCE, free_bytes() // _bytes_each // len(self._places))
            places = self._places * (max(1, most) if self.kind == "cuda" else 1)
            judge_on(places, candidates, judge, stop, told, prepare)
        return spent.in_words()


class _Gpu:
    """Lets tests of several submissions run on a GPU at once, and benchmarks of one, alone: tests
    until none waits, then benchmarks until none waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[bool] = Counter()
        self._waiting: Counter[bool] = Counter()
        self._last_alone = False

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        """Wait for a turn and hold it. alone: whether it is one for benchmarks."""
        with self._changed:
            self._waiting[alone] += 1
            self._changed.wait_for(lambda: self._is_free(alone))
            self._waiting[alone] -= 1
            self._running[alone] += 1
            self._last_alone = alone
        try:
            yield
        finally:
            with self._changed:
                self._running[alone] -= 1
                self._changed.notify_all()

    def _is_free(self, alone: bool) -> bool:
        others_first = alone != self._last_alone and self._waiting[not alone]
        most = 1 if alone else _TESTED_AT_ONCE
        return not (self._running[not alone] or others_first) and self._running[alone] < most


class GpuTime:
    """Counts how long GPUs judge, have nothing to judge while files are built, or are idle."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._seconds = {"judging": 0.0, "waiting for builds": 0.0, "idle": 0.0}
        self._running: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._since = time.monotonic()

    @contextmanager
    def during(self, name: str, what: str) -> Iterator[None]:
        """Count that a judgement or a loading of one runs for a GPU of this name inside the block.
        Building counts for all GPUs."""
        self.count(name, what, 1)
        try:
            yield
        finally:
            self.count(name, what, -1)

    def count(self, name: str, what: str, more: int) -> None:
        """Change the number of those that run by `more`."""
        with self._lock:
            running, now = self._running, time.monotonic()
            for gpu in self._names:
                spent = "judging" if running[gpu, "judging"] else "idle"
                if not running[gpu, "loading"] and running["", "building"]:
                    spent = "waiting for builds"
                self._seconds[spent] += now - self._since
            self._since = now
            running[name, what] += more

    def in_words(self) -> str | None:
        """Return the shares of the time until now; None without a GPU."""
        self.count("", "building", 0)
        if not self._names:
            return None
        whole = sum(self._seconds.values())
        shares = [f"{what} {percent(spent, whole)}" for what, spent in self._seconds.items()]
        return f"{several(len(self._names), 'GPU')}: {', '.join(shares)}"


def _places(options: BatchOptions) -> list[Place]:
    gpus = {} if options.device in ("cpu", "emulate") else visible_gpus()
    if not gpus:
        if options.device.startswith("cuda"):
            raise SetupError("there is no GPU", "--device cpu judges without.")
        return cpu_places(options.jobs)
    if options.jobs:
        raise SetupError("a GPU judges one submission at a time", "Leave out --jobs.", "usage")
    if ":" in options.device:
        number = int(options.device.partition(":")[2])
        capability = [*gpus.values(), None][min(number, len(gpus))]
        return [Place(options.device, options.device, capability=capability)]
    return gpu_places(gpus)


_cores_each = 2
"""Cores for each judgement: an emulated submission's tests and benchmarks run side by side."""

_bytes_each = 3 << 30
"""Memory of the host to reserve for each judgement: the repository's own submission needs 1.6 GiB,
others may need more."""

_TESTED_AT_ONCE, _JUDGED_AT_ONCE = 6, 16
"""Submissions that are tested at once on a GPU, where tests wait for compilers and for processes,
and those that are also loaded or wait for their benchmarks."""

_READY_MOST = 32
"""The most submissions that are built and wait to be judged; caches keep the builds of some
hundreds."""

J = TypeVar("J")
R = TypeVar("R")


def gpu_places(gpus: Mapping[str, str]) -> list[Place]:
    """Return a place for each GPU. gpus: compute capabilities by the name in CUDA_VISIBLE_DEVICES.
    A GPU that is timed runs one judgement at a time."""
    return [
        Place(f"cuda:{number}", "cuda", {"CUDA_VISIBLE_DEVICES": gpu}, capability)
        for number, (gpu, capability) in enumerate(gpus.items())
    ]


def cpu_places(jobs: int | None = None) -> list[Place]:
    """Return ``jobs`` places; without it as many as cores and memory allow, one at least."""
    count = jobs or max(1, min(core_count() // _cores_each, free_bytes() // _bytes_each))
    return [Place(f"cpu {number}", "cpu") for number in range(count)]


def judge_on(
    places: Sequence[Place],
    jobs: Sequence[J],
    judge: Callable[[J, Place], R],
    stop: Callable[[], None],
    told: Callable[[J, R], None],
    prepare: Callable[[J, Callable[[], None]], None] = lambda job, ready: ready(),
) -> None:
    """Judge each job on the next place that is free, and pass each result to ``told`` as it comes.

    stop: ends what runs, so that its ``judge`` raises; it is called where an interrupt or an error
    ends this. Results complete by then are passed on. prepare: calls the function that it gets,
    from any thread, once a job can be judged; jobs are judged in the order in which they become
    ready.
    """
    free: SimpleQueue[Place] = SimpleQueue()
    for place in places:
        free.put(place)
    pool = ThreadPoolExecutor(len(places))
    futures: dict[Future[R], J] = {}
    judged: SimpleQueue[Future[R]] = SimpleQueue()

    def on_a_free_place(job: J) -> R:
        place = free.get()
        try:
            return judge(job, place)
        finally:
            free.put(place)

    def ready(job: J) -> None:
        with suppress(RuntimeError):  # nothing is judged any more
            future = pool.submit(on_a_free_place, job)
            futures[future] = job
            future.add_done_callback(judged.put)

    try:
        coming = iter(jobs)
        for job in islice(coming, len(places) + _READY_MOST):
            prepare(job, partial(ready, job))
        for _ in jobs:
            future = judged.get()
            for job in islice(coming, 1):
                prepare(job, partial(ready, job))
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
