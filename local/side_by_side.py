"""Processes of several submissions, alive together, that take turns with the device: every one is
called on the same contents in the same buffers, in random order. Those that wait are stopped, so
that none disturbs another.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import torch

import timing_checks
from buffers import SharedBuffers, create_buffers
from cases import Case
from device import DeviceLimits
from isolation import descendants
from messages import Done, Load, OpenCase
from nvfp4.local.gated_timing import GatedClock
from nvfp4.local.queue_messages import CloseQueue
from opened_case import OpenedCase, generate, longest_compile_s, seconds_left
from reference import check_implementation, ref_kernel
from stats import summarise
from submission_process import SubmissionFailed, SubmissionProcess
from task import input_t, output_t
from timing import CallTime

blocks, calls_in_a_block = 4, 6
"""A process is timed in so many sets of buffers. Where a set lies in memory changes a time by up
to two percent after the contest's flush."""

longest_wait_s, busy_share = 2e-3, 0.05
"""Between two turns, beside what is usual; and after how many a file may be waited for."""

_contents = SystemRandom()


class FileFailed(Exception):
    """A submission is wrong. case: the number of the benchmark, None where there was none yet."""

    def __init__(self, file: int, case: int | None, message: str) -> None:
        super().__init__(message)
        self.file, self.case = file, case


class SharedCase(OpenedCase):
    """A case of one process in buffers that others have open too. fill_s: how long it took to fill
    them last, which waits for what the process before has left on the device.
    """

    fill_s = 0.0

    def fill(self, buffers: SharedBuffers, data: input_t) -> None:
        """As of OpenedCase."""
        start_s = time.perf_counter()
        super().fill(buffers, data)
        self.fill_s = time.perf_counter() - start_s

    def use(self, buffers: SharedBuffers) -> None:
        """Calls use these from now on. Raises SubmissionFailed, OutOfTime."""
        self.buffers = buffers
        self.ask(OpenCase(self.case.m, self.case.k, self.case.l), Done, buffers.fd)

    def timed_call(self, data: input_t, expected: output_t) -> CallTime:
        """A call whose inputs and output are checked. expected: what ref_kernel makes of the data,
        which costs more than a call. Raises SubmissionFailed, OutOfTime.
        """
        answer, wall_ns = self.judged_call(data, check=False)
        if not check_implementation(data, self.output(), expected)[0]:
            self.check_output(self.output(), data)
        return timing_checks.read_time(answer, wall_ns)


@dataclass(eq=False)
class Worker:
    """A process of a file, by its number. opened, times: of the case in progress. means_us: of
    each case that is done. clock: the judge's own, where this process is to be clocked. group: of
    processes, its own; detached: those that it has started and that are in others.
    """

    file: int
    process: SubmissionProcess
    clock: GatedClock | None = None
    group: int = 0
    detached: list[int] = field(default_factory=list)
    opened: SharedCase | None = None
    times: list[CallTime] = field(default_factory=list)
    means_us: list[float] = field(default_factory=list)

    @property
    def case(self) -> SharedCase:
        assert self.opened, "_call_first comes first"
        return self.opened

    def stop(self) -> None:
        """Until ``go_on``, with all that it has started."""
        self.group = group = self.process.pid
        self.detached = [pid for pid in descendants(group) if _group(pid) != group]
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """It runs in the block."""
        self.go_on()
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(OSError):  # it has ended, which its next answer shows
            os.killpg(self.group, number)
        for pid in self.detached:
            with suppress(OSError):
                os.kill(pid, number)


class SideBySide:
    """Methods raise FileFailed, OutOfTime, NotEnoughMemory and CannotRun."""

    def __init__(self, workers: Sequence[Worker], device: torch.device, deadline: float) -> None:
        """deadline: on the monotonic clock, in seconds."""
        self._workers = workers
        self._device, self._deadline = device, deadline
        self._waits = Waits()

    def wait_until_ready(self) -> None:
        """Until every process has set up the device, which disturbs what is timed meanwhile."""

        def wait(worker: Worker) -> None:
            worker.process.begin(CloseQueue(), self._left_s(), load=False)
            worker.process.finish(Done, self._left_s())

        self._each(None, wait)

    def clock_first(self, files: int) -> None:
        """Has the judge's own clock for one process of each file, before it is loaded."""
        for worker in self._workers[:files]:
            with _blamed(worker, None):
                worker.clock = GatedClock(worker.process, self._device, self._deadline)

    def load(self) -> None:
        """Imports the submissions, beside each other."""
        self._each(None, lambda worker: worker.process.load(self._left_s()))

    def _left_s(self) -> float:
        return seconds_left(self._deadline, longest_compile_s)

    def time(self, number: int, case: Case, limits: DeviceLimits, orders: Random) -> None:
        """One case in every process. number: the case's. orders: draws who is next."""
        shape = case.m, case.k, case.l, self._device
        shared: list[SharedBuffers] = []
        try:
            self._call_first(number, case)
            for _ in range(blocks):
                shared.append(create_buffers(*shape))
            for buffers in shared:
                self._time_block(number, buffers, orders)
            self._waits.refuse_busy(number)
            for worker in self._workers:
                with _blamed(worker, number):
                    _conclude(worker, limits)
        finally:
            for buffers in shared:
                buffers.close()
            for worker in self._workers:
                if worker.opened:
                    worker.opened.close()

    def _call_first(self, number: int, case: Case) -> None:
        """Beside each other, in buffers of their own: most of a first call is compiling."""
        for worker in self._workers:
            with _blamed(worker, number):
                worker.opened = SharedCase(worker.process, case, self._device, self._deadline)
        data = generate(case, _seed())
        self._each(number, lambda worker: worker.case.judged_call(data))
        for worker in self._workers:
            worker.case.close()

    def _time_block(self, number: int, buffers: SharedBuffers, orders: Random) -> None:
        """Some calls of every process in the same buffers; the first of them warms up."""
        for worker in self._workers:
            with _blamed(worker, number):
                worker.case.use(buffers)
        for worker in self._workers:
            worker.stop()
        try:
            self._take_turns(number, orders)
        finally:
            for worker in self._workers:
                worker.go_on()

    def _take_turns(self, number: int, orders: Random) -> None:
        before: Worker | None = None
        for call in range(1 + calls_in_a_block):
            data = generate(self._workers[0].case.case, _seed())
            expected = ref_kernel(data)
            for worker in orders.sample(self._workers, len(self._workers)):
                with _blamed(worker, number), worker.turn():
                    time_taken = worker.case.timed_call(data, expected)
                    if call:
                        worker.times.append(time_taken)
                    if call == calls_in_a_block:  # before another writes to the same c
                        worker.case.check_again()
                if before is not None:
                    self._waits.add(before.file, worker.case.fill_s)
                before = worker

    def _each(self, number: int | None, act: Callable[[Worker], object]) -> None:
        """Lets every process do something, beside each other."""

        def blamed(worker: Worker) -> None:
            with _blamed(worker, number):
                act(worker)

        with ThreadPoolExecutor(len(self._workers)) as pool:
            list(pool.map(blamed, self._workers))


class Waits:
    """How long the judge waited for the device after a turn, by whose turn it was."""

    def __init__(self) -> None:
        self._of: dict[int, list[float]] = {}

    def add(self, file: int, wait_s: float) -> None:
        self._of.setdefault(file, []).append(wait_s)

    def refuse_busy(self, case: int) -> None:
        """Raises FileFailed for a file after whose turns the device is busy more often than after
        the others'.
        """
        everything = sorted(wait_s for waits in self._of.values() for wait_s in waits)
        usual_s = everything[len(everything) // 4]
        limit_s = longest_wait_s + 4 * usual_s
        shares = {
            file: statistics.fmean(wait_s > limit_s for wait_s in waits)
            for file, waits in self._of.items()
        }
        file = max(shares, key=lambda each: shares[each])
        others = [share for each, share in shares.items() if each != file]
        if others and shares[file] > busy_share + 3 * max(others):
            longest_ms = 1e3 * max(self._of[file])
            raise FileFailed(
                file,
                case,
                f"the device was busy after {shares[file]:.0%} of its calls, for up to "
                f"{longest_ms:.1f} ms: what runs between calls slows the others",
            )


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _conclude(worker: Worker, limits: DeviceLimits) -> None:
    """Takes the mean of a case, if its times can be true. Raises SubmissionFailed."""
    opened = worker.case
    times, worker.times = that_count(worker.times), []
    stats = summarise([each.call_ns for each in times])
    # The soonest settled of them: many processes delay the host, and so some calls' last event.
    soonest = min(times, key=lambda each: each.settled_ns - each.call_ns)
    timing_checks.refuse_unfinished(stats, [soonest], limits)
    timing_checks.refuse_impossible(stats, limits.floor_ns(opened.case.bytes))
    if worker.clock is not None:
        worker.clock.check(opened, stats, iter(_seed, None))
    worker.means_us.append(stats.mean / 1e3)


def that_count(times: Sequence[CallTime]) -> list[CallTime]:
    """Without those that the host was late for, unless that is the submission's way."""
    prompt = [each for each in times if not each.late]
    few = len(times) - len(prompt) <= timing_checks.most_left_out
    return prompt if prompt and few else list(times)


def _seed() -> int:
    """Of contents that nobody can foresee."""
    return _contents.randrange(2**63)


@contextmanager
def started(files: Sequence[Path], rounds: int, load: Load) -> Iterator[list[Worker]]:
    """So many processes of each file, which have begun to start, round by round. All are killed
    afterwards.
    """
    workers = [
        Worker(number, SubmissionProcess(file, load))
        for _ in range(rounds)
        for number, file in enumerate(files)
    ]
    try:
        for worker in workers:
            worker.process.start()
        yield workers
    finally:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda worker: worker.process.__exit__(), workers))


@contextmanager
def _blamed(worker: Worker, case: int | None) -> Iterator[None]:
    """What goes wrong in the block is this file's fault."""
    try:
        yield
    except SubmissionFailed as failed:
        raise FileFailed(worker.file, case, str(failed)) from None
