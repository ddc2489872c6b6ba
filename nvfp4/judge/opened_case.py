"""A case in progress."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch

from nvfp4.contract import reference
from nvfp4.contract.layout import (
    described_buffers,
    dtype_by_name,
    input_names,
    output_view,
    storages,
    total_bytes,
)
from nvfp4.contract.task import input_t, output_t
from nvfp4.gpu.buffers import (
    SharedBuffers,
    create_buffers,
    offsets,
    output_name,
    whole_bytes,
)
from nvfp4.gpu.device_memory import free_memory_bytes
from nvfp4.gpu.timing import wait_until_idle
from nvfp4.judge.cases import Case
from nvfp4.judge.contents import Contents
from nvfp4.judge.executor import ExecutorFailed
from nvfp4.judge.gpu_reference import expected_output
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import CaseFailed, SubmissionFailed, SubmissionProcess, no_gpu
from nvfp4.records.failures import read_failure
from nvfp4.records.messages import (
    Begin,
    Call,
    Called,
    CaseOpened,
    Done,
    End,
    Ended,
    HandOverAgain,
    OpenCase,
)

T = TypeVar("T")


class Explanation(Protocol):
    """Why an output is wrong: lines for people, and for programs causes as of a failure."""

    @property
    def text(self) -> str: ...

    def causes(self) -> list[dict[str, Any]]: ...


Explain = Callable[[input_t, output_t, output_t], Explanation]
"""From inputs, output and reference what explains a wrong output."""

longest_compile_s = 150.0
"""An import, or the first call of a case: CUDA C++ with torch's own headers takes a minute."""

longest_call_s = 60.0
"""Another call."""


_margin_s = 3.0
"""Before the end of a call, after which a kernel is given up."""

_numbers = itertools.count(1)


class OutOfTime(CaseFailed):
    """The mode's time limit is reached."""

    end = Exit.TIMED_OUT

    def __init__(self) -> None:
        super().__init__("timeout.mode", "not judged: the time limit was reached")


class NotEnoughMemory(CaseFailed):
    """A case is too large for this device."""


def generate(case: Case, seed: int) -> input_t:
    """The inputs of a case for a seed."""
    full, contest = reference.generate_full_range_input, reference.generate_input
    return (full if case.full_range else contest)(case.m, case.k, case.l, seed)


@dataclass(frozen=True)
class CaseSetup:
    """What a case is opened with. process: that of the submission. deadline: on the monotonic
    clock, in seconds."""

    process: SubmissionProcess
    device: torch.device
    deadline: float
    explain: Explain | None = None


class OpenedCase:
    """error_share: the largest error so far over the allowed one. output_dtype: the last one's.
    times_ns: of the timed calls. last_call_s: how long a call took. is_benchmark: whether counts
    decide. unverified: why counts may leave out work, None where they do not. ended: what the
    emulated GPU says of the last call. predicted: the time of the first one on another GPU; see
    ``records.prediction``.
    """

    def __init__(self, setup: CaseSetup, case: Case) -> None:
        """Raises SubmissionFailed, OutOfTime, NotEnoughMemory."""
        self.case = case
        self._explain = setup.explain
        self.error_share = 0.0
        self._called = False
        self._emulates = self._is_emulated_on(setup.device)
        self._launched: bool | None = None
        self.is_benchmark = False
        self.unverified: str | None = None
        self.ended: Ended | None = None
        self.predicted: dict[str, Any] = {}
        self._base, self._number = 0, next(_numbers)
        self.last_call_s = 0.0
        self.times_ns: list[float] = []
        self.output_dtype = torch.float16
        self._output = torch.empty(0)
        self._process = setup.process
        self._deadline = setup.deadline
        _refuse_too_large(case, setup.device)
        self.buffers: SharedBuffers = create_buffers(case.m, case.k, case.l, setup.device)
        try:
            self.resume()
        except (SubmissionFailed, OutOfTime):
            self.buffers.close()
            raise

    def _is_emulated_on(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def resume(self) -> None:
        """Goes on with this case after another one. Raises SubmissionFailed, OutOfTime."""
        case = self.case
        request = OpenCase(case.m, case.k, case.l, self._number)
        if self._emulates:
            self._base = self.ask(request, CaseOpened).base
        else:
            self.ask(request, Done, self.buffers.fd)

    @contextmanager
    def resumed(self) -> Iterator["OpenedCase"]:
        """The case, after another one."""
        self.resume()
        yield self

    def close(self) -> None:
        self.buffers.close()

    def mark(self) -> dict[str, str]:
        """What a report says of counts; without kernels there are only outputs, which the judge
        checks, and times, which its clock does."""
        said = self.is_benchmark and self.unverified and self._launched
        return {"unverified": str(self.unverified)} if said else {}

    def judged_call(self, data: input_t, check: bool = True) -> tuple[Called, float]:
        """A call on ``data`` with inputs and output checked, and its nanoseconds by the judge's
        clock. Raises SubmissionFailed."""
        return self.judged_request(data, Call(), Called, check)

    def judged_request(
        self, data: input_t, request: object, answer: type[T], check: bool = True
    ) -> tuple[T, float]:
        """The same for any request that calls custom_kernel once."""
        if self._emulates:
            self.begin()  # before the inputs are there: what reads them belongs to this call
        self.fill(self.buffers, data)
        start_ns = time.perf_counter_ns()
        try:
            answered = self.ask(request, answer)
        except SubmissionFailed as failed:
            raise self._as_the_gpu_tells(failed) from None
        self._called = True
        # While the clock runs: later writes do not count.
        self._output = self.buffers.tensors[output_name].clone()
        wall_ns = float(time.perf_counter_ns() - start_ns)
        self.last_call_s = wall_ns / 1e9
        if self._emulates:
            answered = self._with_reports(answered, self.end())
        self._note_launches(answered)
        self._take_dtype(answered)
        self.check_inputs(self.buffers, data)
        if check:
            self.check_output(self.output(), data)
        return answered, wall_ns

    def begin(self, explain: int = 0, texts: Sequence[str] = ()) -> None:
        """Have the emulated GPU begin a call on what the buffers hold. explain, texts: as of
        ``Begin``. Raises SubmissionFailed, OutOfTime."""
        case, options = self.case, self._process.options
        shape = case.m, case.k, case.l
        places = offsets(*shape)
        left_s = self.seconds_left()
        predicts = explain or (self.is_benchmark and not self.predicted)
        request = Begin(
            self._base,
            described_buffers(shape, places),
            whole_bytes(*shape),
            places[output_name],
            [case.m, case.l],
            time.monotonic() + left_s - min(_margin_s, left_s / 3),
            options.model if predicts else "",
            options.flush,
            explain,
            list(texts),
        )
        self._ask_gpu(request, Done, self.buffers.fd)

    def end(self) -> Ended:
        """What it says of the call. Raises SubmissionFailed, OutOfTime."""
        self.ended = self._ask_gpu(End(), Ended)
        return self.ended

    def _ask_gpu(self, request: object, answer: type[T], fd: int | None = None) -> T:
        gpu = self._process.gpu
        assert gpu is not None
        try:
            return gpu.ask(request, answer, self.seconds_left(), fd)
        except ExecutorFailed as error:
            self._process.stop()
            raise no_gpu(error) from None

    def _with_reports(self, answered: T, ended: Ended) -> T:
        self.unverified = self.unverified or ended.why or None
        self.predicted = self.predicted or ended.predicted
        return (
            replace(answered, launches=ended.reports) if isinstance(answered, Called) else answered
        )

    def _as_the_gpu_tells(self, failed: SubmissionFailed) -> SubmissionFailed:
        """A fault as the executor has seen it, whatever the submission's process makes of it."""
        gpu = self._process.gpu
        if not self._emulates or gpu is None or not gpu.runs:
            return failed
        try:
            ended = self.end()
        except SubmissionFailed as gone:
            return gone
        failure = read_failure(ended.failure)
        if failure is None or failure.code != failed.failure.code:
            return failed
        return SubmissionFailed.of(failure, ended.fault)

    def call_again(self, contents: Callable[[], Contents]) -> None:
        """One more call, with other contents; of a large output some rows are checked, drawn at
        random. Raises SubmissionFailed, OutOfTime."""
        drawn, before = contents(), self.unverified
        self.judged_call(drawn.data, check=False)
        if before is None and self.unverified:
            self.unverified = f"in a later call: {self.unverified}"
        if not drawn.has_right(self.output()):
            self.check_output(self.output(), drawn.data)

    def _note_launches(self, answered: object) -> None:
        if self._emulates and isinstance(answered, Called):
            launched = bool(answered.launches)
            if self._launched not in (None, launched):
                self._launched = True
                self.unverified = self.unverified or "some calls launch kernels, others do not"
            self._launched = launched or bool(self._launched)

    def fill(self, buffers: SharedBuffers, data: input_t) -> None:
        """Writes the inputs of a call into shared buffers."""
        for name, contents in self._storages(data).items():
            buffers.tensors[name].copy_(contents)
        # Not the result of the previous call.
        buffers.tensors[output_name].fill_(0xFF)
        wait_until_idle(buffers.tensors[output_name].device)

    def check_inputs(self, buffers: SharedBuffers, data: input_t) -> None:
        """Raises SubmissionFailed if inputs have changed."""
        pristine = self._storages(data)
        for name in input_names:
            if not torch.equal(buffers.tensors[name], pristine[name]):
                raise changed_input(name)

    def check_output(self, output: torch.Tensor, data: input_t) -> None:
        """Raises SubmissionFailed if an output [m, 1, l] is wrong."""
        expected = expected_output(data)
        passed, message = reference.check_implementation(data, output, expected)
        if not passed:
            raise self._wrong(data, output, expected, message)
        self.error_share = max(self.error_share, reference.error_share(output, expected))

    def _wrong(
        self, data: input_t, output: torch.Tensor, expected: torch.Tensor, message: str
    ) -> SubmissionFailed:
        wrong = int((~reference.close_enough(output, expected)).sum())
        code, elements = "output.mismatch", output.numel()
        if self._explain is None:
            return SubmissionFailed("output.mismatch", message, wrong=wrong, elements=elements)
        why = self._explain(data, output, expected)
        failed = SubmissionFailed(code, f"{message}\n{why.text}", wrong=wrong, elements=elements)
        failed.failure = replace(failed.failure, causes=why.causes())
        return failed

    def output(self) -> torch.Tensor:
        """The last output as it was when the answer came, [m, 1, l]."""
        return self.view_output(self._output)

    def view_output(self, raw: torch.Tensor) -> torch.Tensor:
        """Bytes as an output [m, 1, l]."""
        return output_view(raw, self.case.m, self.case.l, self.output_dtype)

    def _take_dtype(self, answer: object) -> None:
        name = getattr(answer, "dtype", "")
        if name not in dtype_by_name:
            message = f"the submission's process sent the dtype {name[:40]!r}"
            raise SubmissionFailed("process.protocol", message)
        self.output_dtype = dtype_by_name[name]

    def check_again(self) -> None:
        """Raises SubmissionFailed if the last output has changed."""
        self.ask(HandOverAgain(), Done)
        after = self.view_output(self.buffers.tensors[output_name])
        if not same_bits(after, self.output()):
            message = "the output changed after it was returned"
            raise SubmissionFailed("output.changed_later", message)

    def _storages(self, data: input_t) -> dict[str, torch.Tensor]:
        return storages(data, self.case.m, self.case.k, self.case.l)

    def ask(self, request: object, answer: type[T], fd: int | None = None) -> T:
        """Raises SubmissionFailed or OutOfTime."""
        return self._process.request(request, answer, self.seconds_left(), fd)

    def seconds_left(self) -> float:
        """For the next request. Raises OutOfTime."""
        longest_s = longest_call_s if self._called else longest_compile_s
        return seconds_left(self._deadline, longest_s)


Open = Callable[[CaseSetup, Case], OpenedCase]
"""OpenedCase, or what else opens a case."""


def changed_input(name: str) -> SubmissionFailed:
    """What a submission is told that wrote to an input."""
    message = f"custom_kernel changed its input {name} in place"
    return SubmissionFailed("contract.input_changed", message, input=name)


def seconds_left(deadline: float, longest_s: float = longest_call_s) -> float:
    """For one request. Raises OutOfTime."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise OutOfTime
    return min(left_s, longest_s)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same, NaN included."""
    raw = (each.flatten().view(torch.uint8) for each in (one, other))
    return one.dtype == other.dtype and torch.equal(*raw)


def _refuse_too_large(case: Case, device: torch.device) -> None:
    # Inputs, their shared copy and the work on them.
    needed_bytes = 4 * total_bytes(case.m, case.k, case.l)
    free_bytes = free_memory_bytes(device)
    if needed_bytes > free_bytes:
        needed_gib, free_gib = (round(each / 2**30, 1) for each in (needed_bytes, free_bytes))
        raise NotEnoughMemory(
            "setup.memory",
            f"this case needs about {needed_gib} GiB of memory and {free_gib} GiB are free: choose "
            "a smaller shape",
            needed_gib=needed_gib,
            free_gib=free_gib,
        )
