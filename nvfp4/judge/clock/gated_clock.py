"""The judge's own clock on a GPU: calls queued behind a gate that the judge opens.

A part of the inputs that every result depends on comes into the buffers as the gate opens, and the
clock stops when the judge has a copy of every output. So whatever the submission's process reports,
waits for or leaves out: all that the calls compute, they compute while the clock runs.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch

from nvfp4.contract.referee import CasePlan
from nvfp4.gpu import buffers as shared
from nvfp4.gpu.device_memory import Gate, free_memory_bytes
from nvfp4.gpu.timing import CudaTimer, clean_flush, wait_until_idle
from nvfp4.judge.clock.timing_checks import Estimate, Stats, is_longer, refuse_longer
from nvfp4.judge.opened_case import OpenedCase, seconds_left
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.base import Record
from nvfp4.records.messages import AwaitQueue, CloseQueue, Done, OpenGate, OpenSets, QueueCalls

few_calls, many_calls, least_calls = 32, 448, 16

single_calls = 16

queue_wait_s, least_wait_s, single_wait_s = 1.0, 0.2, 0.05
"""Seconds for a host to queue calls, at most and at least, and to queue one. A submission that
needs longer probably waits for the device in a call."""

error_ns = 5e3
"""Error of the time of a call among many, due to waiting between calls."""

waiting_error_ns = 100e3
"""Error of the time of queued calls if the host waits for each, since it works between them."""

single_error_ns = 250e3
"""Error of a call that is clocked by itself."""

_single_attempts = 4
"""Rounds of such calls, if the first one is delayed."""

_empty_queues, _empty_alone_s = 3, 0.02
_memory_share = 0.6

_circumstances = "(in calls queued behind each other, which begin when all inputs have come)"


class _Clocked(Record):
    """Calls that were clocked together."""

    all_ns: float
    """Time from the opening of the gate to the copies of the outputs."""
    queued: bool
    """Whether the host had queued every call before the device began."""
    outputs: torch.Tensor
    """uint8 [calls, bytes]."""


class GatedClock:
    """Clocks calls of the submission of one process."""

    def __init__(self, process: SubmissionProcess, device: torch.device, deadline: float) -> None:
        """Measures what an empty queue takes in a worker that has not loaded the submission yet.

        deadline: on the monotonic clock, in seconds. Raises SubmissionFailed if the worker cannot
        wait at a gate.
        """
        self._process = process
        self._device = device
        self._deadline = deadline
        self._gate = Gate(device)
        self._timer = CudaTimer(device, clean_flush) if device.type == "cuda" else None
        # Copied beside the outputs, so that an empty queue costs what any other does.
        self._nothing = torch.zeros(2, 1, dtype=torch.uint8, device=device)
        self._empty_queue_ns = self._measure_empty(alone=False)
        self._empty_alone_ns = self._measure_empty(alone=True)

    def _measure_empty(self, alone: bool) -> float:
        wait_s = _empty_alone_s if alone else queue_wait_s
        empty = [self._clock([], [], wait_s, alone) for _ in range(_empty_queues)]
        return statistics.median(each.all_ns for each in empty)

    def check(self, opened: OpenedCase, stats: Stats, seeds: Iterator[int]) -> dict[str, str]:
        """Return the time of a call among many as `batched`, nanoseconds. Raises SubmissionFailed
        where it is longer than the submission's process said.
        """
        estimate = first_consistent_estimate(stats, self.estimates(opened, seeds))
        if estimate is None:
            return {}
        refuse_longer(stats, estimate)
        return {"batched": str(estimate.call_ns)}

    def estimates(self, opened: OpenedCase, seeds: Iterator[int]) -> Iterator[Estimate]:
        """Yield estimates, each costlier and more certain than the one before; every output is
        checked.

        A few queued calls come first; then more of them, or single ones if the host waits for the
        device in every call. Raises SubmissionFailed.
        """
        size = _room(opened.plan, self._device, few_calls)
        if size < least_calls:
            return
        queued, call_ns = self._mean_ns(opened, seeds, size)
        yield Estimate(call_ns, error_ns if queued else waiting_error_ns)
        if queued:
            size = _room(opened.plan, self._device, many_calls)
            yield Estimate(self._mean_ns(opened, seeds, size)[1], error_ns)
        else:
            for _ in range(_single_attempts):
                yield Estimate(self._single_ns(opened, seeds), single_error_ns)

    def _mean_ns(self, opened: OpenedCase, seeds: Iterator[int], size: int) -> tuple[bool, float]:
        """Return whether so many calls could be queued in time, and the mean time of one."""
        sizes = shared.of_sets(shared.sizes_of(opened.plan.inputs, opened.plan.room_bytes), size)
        whole = shared.create_buffers(sizes, self._device)
        try:
            sets = shared.in_sets(whole, size)
            clocked = self._judged(opened, sets, list(islice(seeds, size)), whole.fd)
        finally:
            whole.close_fd()
        return clocked.queued, max(0.0, clocked.all_ns - self._empty_queue_ns) / size

    def _single_ns(self, opened: OpenedCase, seeds: Iterator[int]) -> float:
        """Return the time of a call that is clocked by itself, in the case's buffers: that of the
        quickest, as delays of a busy host add to each and nothing makes one shorter."""
        alone = [
            self._judged(opened, [opened.buffers], [seed], None).all_ns
            for seed in islice(seeds, single_calls)
        ]
        return max(0.0, min(alone) - self._empty_alone_ns)

    def _judged(
        self, opened: OpenedCase, sets: list[shared.SharedBuffers], seeds: list[int], fd: int | None
    ) -> _Clocked:
        """Clock calls on the contents of every seed. Raises SubmissionFailed unless all outputs are
        correct.

        fd: descriptor of the sets; None for the case's buffers, whose call is clocked alone.
        """
        late = []
        for seed, buffers in zip(seeds, sets, strict=True):
            opened.fill(buffers, opened.draw(seed))
            late += opened.withhold(buffers)
        wait_s = single_wait_s
        if fd is not None:  # a call that was timed by itself took its host longer
            wait_s = min(queue_wait_s, max(least_wait_s, len(sets) * opened.last_call_s))
        clocked = self._clock(sets, late, wait_s, alone=fd is None, fd=fd)
        try:
            for seed, buffers, output in zip(seeds, sets, clocked.outputs, strict=True):
                data = opened.draw(seed)
                opened.check_inputs(buffers, data)
                opened.check_output(opened.output_in(output), data)
        except SubmissionFailed as failed:
            raise failed.and_more(_circumstances) from None
        return clocked

    def _clock(
        self,
        sets: list[shared.SharedBuffers],
        late: list[tuple[torch.Tensor, torch.Tensor]],
        wait_s: float,
        alone: bool,
        fd: int | None = None,
    ) -> _Clocked:
        """Clock queued calls.

        late: (destination, source) of contents that arrive when the gate opens. wait_s: for the
        host to queue them. alone: whether this is a single call, whose host code may wait for the
        device. fd: see ``_judged``.
        """
        self._gate.shut()
        try:
            self._ask(OpenGate(), self._gate.fd)
            if sets:
                self._ask(OpenSets(len(sets)), fd)
            raw = [each.tensors[shared.output_name] for each in sets] or [self._nothing[0]]
            open_gate = self._opening([*late, (self._nothing[0], self._nothing[1])])
            torch.stack(raw)  # loads the kernel that is needed when the clock runs
            queued = self._queue(wait_s, alone)
            if self._timer is not None:  # clean caches, and clocks as high as in a timed call
                self._timer.flush()
            wait_until_idle(self._device)
            start_ns = time.perf_counter_ns()
            open_gate()
            if not alone and not queued:
                self._finish()
                self._begin(AwaitQueue())
            self._finish()
            outputs = torch.stack(raw)
            wait_until_idle(self._device)
            all_ns = float(time.perf_counter_ns() - start_ns)
            self._ask(CloseQueue())  # not while the clock runs: it takes milliseconds
            return _Clocked(all_ns, queued, outputs[: len(sets)])
        finally:
            self._gate.open()  # calls that still wait must not wait forever

    def _queue(self, wait_s: float, alone: bool) -> bool:
        """Let the worker queue the calls and wait for them; return whether they were queued in
        time."""
        self._begin(QueueCalls(wait=alone))
        if alone:
            time.sleep(wait_s)
            return False
        queued = self._process.answered(wait_s)
        if queued:
            self._finish()
            self._begin(AwaitQueue())
        return queued

    def _opening(self, late: list[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], None]:
        """Prepare the copies and the flag, so that executing them takes the host no time."""
        targets, sources = [target for target, _ in late], [source for _, source in late]

        def copy_and_open() -> None:
            torch._foreach_copy_(targets, sources)
            self._gate.open()

        if self._timer is None:
            return copy_and_open
        torch._foreach_copy_([source.clone() for source in sources], sources)  # loads the kernel
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            copy_and_open()
        return graph.replay

    def _ask(self, request: object, fd: int | None = None) -> None:
        self._begin(request, fd)
        self._finish()

    def _begin(self, request: object, fd: int | None = None) -> None:
        # A case that is open has loaded the submission; an empty queue must not need it.
        self._process.begin(request, seconds_left(self._deadline), fd, load=False)

    def _finish(self) -> None:
        self._process.finish(Done, seconds_left(self._deadline))


def first_consistent_estimate(stats: Stats, estimates: Iterable[Estimate]) -> Estimate | None:
    """Return the first estimate that agrees with the reported times, else the last one."""
    estimate = None
    for estimate in estimates:
        if not is_longer(stats, estimate):
            break
    return estimate


def _room(plan: CasePlan, device: torch.device, most: int) -> int:
    """Return how many calls with separate contents fit into memory, ``most`` at most."""
    set_bytes = shared.mapped_bytes(shared.sizes_of(plan.inputs, plan.room_bytes))
    return min(most, int(_memory_share * free_memory_bytes(device)) // set_bytes)
