"""Processes of several submissions, alive together, that take turns with the device: they are
called in the same buffers, in random order. Those that wait are stopped, so that none disturbs
another.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from statistics import median

import torch

from nvfp4.judge.cases import Case
from nvfp4.judge.clock import timing_checks
from nvfp4.judge.clock.device_limits import DeviceLimits
from nvfp4.judge.clock.gated_clock import GatedClock
from nvfp4.judge.clock.timing_checks import summarise
from nvfp4.judge.compare.timed_worker import (
    FileFailed,
    SharedCase,
    Waits,
    Worker,
    blamed,
    with_own_scales,
)
from nvfp4.judge.opened_case import CaseSetup, generate, longest_compile_s, seconds_left
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.messages import CloseQueue, Done
from nvfp4.sandbox.isolation import Adopted
from nvfp4.shared_memory.buffers import SharedBuffers, create_buffers
from nvfp4.worker.timing import CallTime

blocks = 4
"""Sets of buffers. Where one lies in memory changes a time by up to two percent after the contest's
flush."""

calls_in_a_block, least_calls_in_a_block, block_s = 5, 3, 1.0
"""The mean of five in each block scatters as processes do; where they take longer than this, a
second wave says more than more calls.
"""

hiccup = 2.0
"""So many times the usual time: a call that the machine has disturbed, if it is the only one."""

crowd_settle_ns = 150e3
"""Many processes delay the host, and so the last event of a call."""

least_others = 3
"""Processes of a file, to compare with one that was clocked."""


class SideBySide:
    """Methods raise FileFailed, OutOfTime and NotEnoughMemory."""

    def __init__(self, workers: Sequence[Worker], device: torch.device, deadline: float) -> None:
        """deadline: on the monotonic clock, in seconds."""
        self._workers = workers
        self._device, self._deadline = device, deadline
        self._waits = Waits()
        self._adopted = Adopted()

    def wait_until_ready(self) -> None:
        """Until every process has set up the device, which disturbs what is timed meanwhile."""
        # One that has to be started again must not be the child of a thread that ends.
        for worker in self._workers:
            with blamed(worker, None):
                worker.process.greet(self._left_s())

        def wait(worker: Worker) -> None:
            worker.process.begin(CloseQueue(), self._left_s(), load=False)
            worker.process.finish(Done, self._left_s())

        self._each(None, wait)

    def clock_some(self, files: Iterable[int]) -> None:
        """Has the judge's own clock for one process of each of these files, before it is loaded.
        Nobody can know which.
        """
        for file in files:
            worker = secrets.choice([each for each in self._workers if each.file == file])
            with blamed(worker, None):
                worker.clock = GatedClock(worker.process, self._device, self._deadline)

    def load(self) -> None:
        """Imports the submissions, beside each other."""
        self._adopted = Adopted()
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
            for worker in self._workers:
                worker.stop()
            for buffers in shared:
                self._time_block(number, buffers, orders)
            self._waits.refuse_busy(number)
            for worker in self._workers:
                with self._turn(worker, number):
                    _conclude(worker, limits)
        finally:
            for worker in self._workers:
                worker.go_on()
            for buffers in shared:
                buffers.close()
            for worker in self._workers:
                if worker.opened:
                    worker.opened.close()

    def _call_first(self, number: int, case: Case) -> None:
        """Beside each other, in buffers of their own: most of a first call is compiling."""
        for worker in self._workers:
            with blamed(worker, number):
                worker.opened = SharedCase(
                    CaseSetup(worker.process, self._device, self._deadline), case
                )
        data = generate(case, _seed())
        self._each(number, lambda worker: worker.case.judged_call(data))
        for worker in self._workers:
            worker.case.close()

    def _time_block(self, number: int, buffers: SharedBuffers, orders: Random) -> None:
        """Some calls of every process in the same buffers; the first of them warms up."""
        for worker in self._workers:
            with self._turn(worker, number):
                worker.case.use(buffers)
        before: Worker | None = None
        start_s = time.monotonic()
        for call in range(1 + calls_in_a_block):
            pass_s = (time.monotonic() - start_s) / max(1, call)
            left_s = block_s - (call + 1) * pass_s
            last = call == calls_in_a_block or (call >= least_calls_in_a_block and left_s < pass_s)
            drawn = generate(self._workers[0].case.case, _seed())
            contents = with_own_scales(drawn, len(self._workers))
            in_order = orders.sample(self._workers, len(self._workers))
            for worker, (data, expected) in zip(in_order, contents, strict=True):
                with self._turn(worker, number):
                    time_taken = worker.case.timed_call(data, expected)
                    if call:
                        worker.times.append(time_taken)
                    if last:  # before another writes to the same c
                        worker.case.check_again()
                if before is not None:
                    self._waits.add(before.file, worker.case.fill_s)
                before = worker
            if last:
                break

    @contextmanager
    def _turn(self, worker: Worker, number: int) -> Iterator[None]:
        """It alone runs in the block."""
        worker.go_on()
        try:
            with blamed(worker, number):
                yield
        finally:
            worker.stop()
            self._adopted.stop()

    def refuse_disagreement(self) -> None:
        """Raises FileFailed where a process that was clocked is slower than the others of its file:
        its times were true, so theirs are not.
        """
        for clocked in self._workers:
            others = [
                each.means_us
                for each in self._workers
                if each.file == clocked.file and each.clock is None
            ]
            if clocked.clock is None or len(others) < least_others:
                continue
            for case, mean_us in enumerate(clocked.means_us):
                usual_us = median(means_us[case] for means_us in others)
                if mean_us > usual_us * (1 + timing_checks.clock_tolerance_share):
                    mean_us, usual_us = round(mean_us, 1), round(usual_us, 1)
                    why = SubmissionFailed(
                        "timing.clocks_disagree",
                        f"a call took {mean_us} us by the judge's clock and {usual_us} us by the "
                        "times its process sent, where others of its processes were asked",
                        judge_us=mean_us,
                        told_us=usual_us,
                    )
                    raise FileFailed(clocked.file, case, why)

    def _each(self, number: int | None, act: Callable[[Worker], object]) -> None:
        """Lets every process do something, beside each other."""

        def do(worker: Worker) -> None:
            with blamed(worker, number):
                act(worker)

        with ThreadPoolExecutor(len(self._workers)) as pool:
            list(pool.map(do, self._workers))


def _conclude(worker: Worker, limits: DeviceLimits) -> None:
    """Takes the mean of a case, if its times can be true. Raises SubmissionFailed."""
    opened = worker.case
    times, worker.times = that_count(worker.times), []
    stats = summarise([each.call_ns for each in times])
    crowded = replace(limits, settle_ns=limits.settle_ns + crowd_settle_ns)
    timing_checks.refuse_unfinished(stats, times, crowded)
    timing_checks.refuse_impossible(stats, limits.floor_ns(opened.case.bytes))
    if worker.clock is not None:
        worker.clock.check(opened, stats, iter(_seed, None))
    worker.means_us.append(stats.mean / 1e3)


def that_count(times: Sequence[CallTime]) -> list[CallTime]:
    """Without those that the host was late for, unless that is the submission's way, and without
    one that something else must have disturbed.
    """
    prompt = [each for each in times if not each.late]
    few = len(times) - len(prompt) <= timing_checks.most_left_out
    kept = prompt if prompt and few else list(times)
    usual_ns = median(each.call_ns for each in kept)
    calm = [each for each in kept if each.call_ns <= hiccup * usual_ns]
    return calm if len(calm) == len(kept) - 1 else kept


def _seed() -> int:
    """Of contents that nobody can foresee."""
    return secrets.randbelow(2**63)
