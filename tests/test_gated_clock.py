"""The judge's own clock: what it measures, and that nothing can be computed before it starts.

The worker's part is played in this process, on a CPU; its calls are computed in threads that wait
at the gate as the queue of a device does.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import Recorder

from gemv import make_case, referee
from nvfp4.contract.tree import build, parts
from nvfp4.gpu import buffers as shared_buffers
from nvfp4.gpu.buffers import SharedBuffers, in_sets, output_name
from nvfp4.judge.clock import gated_clock
from nvfp4.judge.clock.calibration import Calibration, DeviceLimits
from nvfp4.judge.clock.gated_clock import GatedClock, error_ns, few_calls, least_calls
from nvfp4.judge.clock.timing_checks import Estimate
from nvfp4.judge.modes import Judge
from nvfp4.judge.observing import Hooks
from nvfp4.judge.opened_case import CaseSetup, OpenedCase
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.records.messages import AwaitQueue, CloseQueue, Done, OpenGate, OpenSets, QueueCalls
from nvfp4.records.options import Options

cpu = torch.device("cpu")
case = make_case(128, 64, 2)
call_ns, overhead_ns = 1_000_000, 300_000


class Clock:
    """Stands for the module ``time``: it goes on when the worker says so."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        pass


ticking = Clock()


class OneGate:
    """The judge's gate and the one that the queue waits at."""

    fd = -1

    def __init__(self, device: torch.device) -> None:
        self.opened = threading.Event()
        self.open, self.shut = self.opened.set, self.opened.clear
        gates.append(self)


gates: list[OneGate] = []


class Worker:
    """Answers as a worker does; its calls wait at the gate."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.queues: list[list[SharedBuffers]] = []
        self.options = Options()
        self.loaded = False
        self.sets: list[SharedBuffers] = []
        self.queue: threading.Thread | None = None
        self.waits = False

    def begin(self, request: Any, timeout_s: float, fd: object = None, load: bool = True) -> None:
        self.loaded |= load
        self.asked.append(request)
        if isinstance(request, OpenSets):
            shared = [buffers for buffers in made if buffers.fd == fd]
            self.sets = [made[0]] if fd is None else in_sets(shared[0], request.count)
        if isinstance(request, QueueCalls):
            self.queues.append(self.sets)
            self.waits = request.wait
            self.call()
        if isinstance(request, CloseQueue):
            self.sets = []

    def call(self) -> None:
        self.queue = threading.Thread(target=self.behind_the_gate)
        self.queue.start()

    def behind_the_gate(self) -> None:
        gates[-1].opened.wait()
        ticking.now_ns += overhead_ns
        for buffers in self.sets:
            ticking.now_ns += call_ns
            compute(buffers)

    def request(self, *asked: object) -> Done:
        self.loaded = True
        return Done()

    def answered(self, wait_s: float) -> bool:
        return True

    def finish(self, answer: type[Done], timeout_s: float) -> Done:
        if self.asked[-1] in (AwaitQueue(), QueueCalls(wait=True)):
            self.wait()
        return answer()

    def wait(self) -> None:
        assert self.queue
        self.queue.join()


class WorkerBeforeTheGate(Worker):
    """Computes as it is asked, whatever the gate says."""

    def call(self) -> None:
        for buffers in self.sets:
            compute(buffers)

    def wait(self) -> None:
        pass


class WorkerAfterTheAnswer(Worker):
    """Says that it is done and computes later."""

    def __init__(self) -> None:
        super().__init__()
        self.later = threading.Event()

    def behind_the_gate(self) -> None:
        self.later.wait()
        super().behind_the_gate()

    def wait(self) -> None:
        pass


class WorkerThatWaits(Worker):
    """Waits for the device in its call, so that it does not queue another one before; of single
    calls a busy host delays three of four."""

    def answered(self, wait_s: float) -> bool:
        return False

    def behind_the_gate(self) -> None:
        super().behind_the_gate()
        if self.waits and self.sets:
            ticking.now_ns += next(delays_ns)


delays_ns = itertools.cycle((700_000, 0, 400_000, 700_000))

made: list[SharedBuffers] = []


def noted(buffers: SharedBuffers) -> SharedBuffers:
    """The same, which the worker can open."""
    made.append(buffers)
    return buffers


def compute(buffers: SharedBuffers) -> None:
    """What a right submission writes, from what the buffers hold now."""
    plan = referee.plan(case)
    data = build(plan.inputs, [buffers.tensors[name] for name in plan.inputs.names])
    output = build(plan.expected, parts(plan.expected, buffers.tensors[output_name]))
    output.copy_(reference.ref_kernel(data))


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    create: Callable[..., SharedBuffers] = shared_buffers.create_buffers
    monkeypatch.setattr(gated_clock, "Gate", OneGate)
    monkeypatch.setattr(shared_buffers, "create_buffers", lambda *sizes: noted(create(*sizes)))
    monkeypatch.setattr(gated_clock, "single_calls", 4)
    monkeypatch.setattr(gated_clock, "time", ticking)
    monkeypatch.setattr(gated_clock, "many_calls", 70)
    yield
    for buffers in made:
        buffers.close()
    made.clear()
    gates.clear()


def clock_of(worker: Worker) -> GatedClock:
    return GatedClock(worker, cpu, time.monotonic() + 60)  # type: ignore[arg-type]


class OnHost(OpenedCase):
    """A case in the host's memory, whose worker has it as one on a GPU has its own."""

    _emulates = property(lambda self: False, lambda self, value: None)


def estimates(clock: GatedClock, worker: Worker) -> Iterator[Estimate]:
    setup = CaseSetup(worker, cpu, time.monotonic() + 60, referee)  # type: ignore[arg-type]
    opened = OnHost(setup, case)
    noted(opened.buffers)
    return clock.estimates(opened, itertools.count())


def takes_a_call(estimate: Estimate) -> bool:
    return estimate.call_ns == call_ns


def test_queued_calls_are_clocked_from_the_open_gate_to_the_last_output() -> None:
    worker = Worker()
    found = estimates(clock_of(worker), worker)
    few = next(found)
    assert [len(sets) for sets in worker.queues if sets] == [few_calls], "no more was asked for"
    (many,) = found
    assert takes_a_call(few)
    assert takes_a_call(many)
    assert [len(sets) for sets in worker.queues if sets] == [few_calls, 70]
    assert few.error_ns == many.error_ns == error_ns


def test_an_empty_queue_is_measured_before_the_submission_is_loaded() -> None:
    worker = Worker()
    clock = clock_of(worker)
    assert not worker.loaded
    assert [type(each) for each in worker.asked[:3]] == [OpenGate, QueueCalls, AwaitQueue]
    assert (clock._empty_queue_ns, clock._empty_alone_ns) == (overhead_ns, overhead_ns)


class Vandal(Worker):
    """Changes an input once it has computed."""

    def behind_the_gate(self) -> None:
        super().behind_the_gate()
        for buffers in self.sets:
            buffers.tensors["sfa"][0] ^= 1


class Refusing(Worker):
    """Fails in its queue."""

    def finish(self, answer: type[Done], timeout_s: float) -> Done:
        if self.loaded and isinstance(self.asked[-1], QueueCalls):
            raise SubmissionFailed("output.mismatch", "no")
        return super().finish(answer, timeout_s)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (WorkerBeforeTheGate, r"(?s)are wrong.*when all inputs have come"),
        (WorkerAfterTheAnswer, r"(?s)are wrong.*when all inputs have come"),
        (Vandal, "changed its input sfa"),
        (Refusing, "no"),
    ],
)
def test_a_queue_that_is_computed_wrongly_fails_and_leaves_nothing_waiting(
    kind: type[Worker], why: str
) -> None:
    worker = kind()
    clock = clock_of(worker)
    with pytest.raises(SubmissionFailed, match=why):
        next(estimates(clock, worker))
    if isinstance(worker, WorkerAfterTheAnswer):
        worker.later.set()
    if worker.queue:
        worker.queue.join(timeout=10)
        assert not worker.queue.is_alive()


def test_calls_that_wait_for_the_device_are_clocked_one_by_one() -> None:
    worker = WorkerThatWaits()
    clock = clock_of(worker)
    worker.asked.clear()
    together, *alone = estimates(clock, worker)
    assert all(map(takes_a_call, (together, *alone))) and len(alone) == 4
    assert sum(isinstance(each, QueueCalls) for each in worker.asked) == 1 + 4 * 4
    assert error_ns < together.error_ns < min(each.error_ns for each in alone)


def test_without_memory_for_a_queue_there_is_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    clock = clock_of(worker)
    room = (least_calls - 1) * referee.plan(case).least_bytes
    monkeypatch.setattr(gated_clock, "free_memory_bytes", lambda device: room)
    assert list(estimates(clock, worker)) == []


def test_a_time_limit_that_ends_before_the_first_queue_is_reported_case_by_case(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowToStart(Worker):
        def begin(self, *asked: object, **options: object) -> None:
            raise AssertionError("nothing is asked after the time limit")

        load = begin

    worker: Any = SlowToStart()
    hooks = Hooks(worker, cpu, 0.0, Options(name="mine.py"), recorder.pipe)
    monkeypatch.setattr(hooks, "open_clock", lambda: GatedClock(worker, cpu, 0.0))
    monkeypatch.setattr(hooks, "end_case", lambda report: None)
    late = Judge(worker, recorder.pipe, torch.device("cuda"), 0.0, hooks, referee)
    calibration = Calibration(DeviceLimits(1000.0, 0.0, 0.0), [0.0])
    assert late.benchmark([case], lambda: calibration, True) == Exit.TIMED_OUT
    values = recorder.values()
    assert values["benchmark.0.error"] == "not judged: the time limit was reached"
    assert values["check"] == "fail"
