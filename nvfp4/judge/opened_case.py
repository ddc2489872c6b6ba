"""A case in progress: its buffers, its calls and their checks."""

import itertools
import mmap
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from nvfp4.contract.referee import CasePlan, Drawn, Output, Referee
from nvfp4.contract.tree import TreeError, is_like, is_packed, parts, places, same_bytes, tree_of
from nvfp4.gpu import buffers as shared
from nvfp4.gpu.buffers import SharedBuffers, Sizes
from nvfp4.gpu.device_memory import free_memory_bytes
from nvfp4.gpu.timing import wait_until_idle
from nvfp4.judge.executor import ExecutorFailed
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import CaseFailed, SubmissionFailed, SubmissionProcess, no_gpu
from nvfp4.records import messages
from nvfp4.records.cases import Case
from nvfp4.records.failures import read_failure
from nvfp4.records.ranges import ADDRESSES
from nvfp4.records.unanswered import longest_call_s, longest_import_s

T = TypeVar("T")


longest_compile_s = longest_import_s
"""Limit of an import, or of the first call of a case: CUDA C++ with torch's own headers takes a
minute."""

_margin_s = 3.0
"""Seconds before the end of a call at which a kernel is given up."""

_numbers = itertools.count(1)

_first_noise, _later_noise = 0xFF, range(0x48, 0x60, 2)
"""Bytes that an output holds before the first call of a case, and before later ones: NaN or -1,
which some checkers do not see and some results are, then a drawn finite number."""


_copies = 3
"""Copies of the output that a call's time leaves out, each as long as the judge's own: that one and
the worker's, into memory that the system clears first."""


_most_sent_bytes = 1 << 16
"""Bytes, such as tables and pointers, that host code may send in a call beside inputs of its own
without a mark, where an output is smaller."""

_on_changed_inputs = "(in a call on inputs as the one before left them: the contest reuses them)"

_together_bytes = 256 << 20
"""Limit on the inputs that a problem keeps at once whose calls are made together."""


class OutOfTime(CaseFailed):
    """The mode's time limit is reached."""

    end = Exit.TIMED_OUT

    def __init__(self) -> None:
        super().__init__("timeout.mode", "not judged: the time limit was reached")


class NotEnoughMemory(CaseFailed):
    """A case is too large for this device."""


@dataclass(frozen=True)
class CaseSetup:
    """The parameters for opening a case."""

    process: SubmissionProcess
    device: torch.device
    deadline: float
    """On the monotonic clock, in seconds."""
    referee: Referee
    explain: bool = False
    """Whether to look for the cause of a wrong output."""


_kept = "the problem draws the same inputs in every call, so that a result may have been kept"


class OpenedCase:
    """A case that is open in the worker."""

    def __init__(self, setup: CaseSetup, case: Case) -> None:
        """Open the case in the worker. Raises SubmissionFailed, OutOfTime and NotEnoughMemory."""
        self.case = case
        self._explain = setup.explain
        self._setup = setup
        self.plan: CasePlan = setup.referee.plan(case)
        self.error_share: float | None = None
        """The largest error so far over the allowed one, if the problem tells."""
        self.changed: list[str] = []
        """Inputs that a call has written to, if that is allowed; no outputs."""
        self.rewrites = False
        """Whether a call has written to any input, be it an output."""
        self._called = False
        self._stays = False
        """Whether the last return to the case was to the memory of the call before."""
        self._is_first, self._noise = True, _first_noise
        self._emulates = setup.device.type == "cpu"
        self._launched: bool | None = None
        self._calls = setup.process.options.calls
        self.reuses_inputs = self._calls in ("shared", "together")
        """Whether the contest uses inputs again after a call, whatever is in them now."""
        self._warm: int | None = None
        """The process that has made a call of this case outside a graph."""
        self._first: dict[object, Output] = {}
        """Outputs that later calls must not write to, by process and buffers."""
        self.is_benchmark = False
        """Whether counts decide."""
        self.unverified: str | None = None
        """Why counts may leave out work; None if they do not."""
        self._repeats = False
        """Whether all calls get the same inputs."""
        self.ended: messages.Ended | None = None
        """The emulated GPU's account of the last call."""
        self.predicted: dict[str, Any] = {}
        """The first call's time on another GPU; see ``records.prediction``."""
        self.longest_s = 0.0
        """The time of an emulation after which only some thread blocks run."""
        self.sampled = ""
        """Why only some thread blocks ran in the last call, so that its output is unknown; empty if
        all ran."""
        self._base, self._number = 0, next(_numbers)
        self.last_call_s = 0.0
        """The duration of the last call."""
        self.busy_s = 0.0
        """The executor's processor seconds in the last call, or the call's duration if that is less
        or no kernel ran."""
        self.times_ns: list[float] = []
        """The times of the timed calls."""
        self._output_tree = self.plan.expected
        self._output = torch.empty(0)
        self._sizes, self._host_sizes = self._sizes_of(self.plan)
        self._create_buffers()
        try:
            self.resume()
        except (SubmissionFailed, OutOfTime):
            self.close()
            raise

    def _sizes_of(self, plan: CasePlan) -> tuple[Sizes, Sizes]:
        """Return the sizes of the buffers on the device and on the host. Raises NotEnoughMemory."""
        sizes = shared.sizes_of(plan.inputs, plan.room_bytes)
        # Inputs, their shared copy and the work on them.
        needed_bytes = 4 * sum(sizes.values())
        free_bytes = free_memory_bytes(self._setup.device)
        if needed_bytes > free_bytes:
            needed_gib, free_gib = (round(each / 2**30, 1) for each in (needed_bytes, free_bytes))
            message = f"this case needs about {needed_gib} GiB of memory and {free_gib} GiB are "
            message += "free: choose a smaller shape"
            raise NotEnoughMemory("setup.memory", message, needed_gib=needed_gib, free_gib=free_gib)
        return sizes, shared.host_sizes_of(plan.inputs)

    def _create_buffers(self) -> None:
        self.buffers: SharedBuffers = shared.create_buffers(self._sizes, self._setup.device)
        host = self._host_sizes
        self._host = shared.create_buffers(host, torch.device("cpu")) if host else SharedBuffers({})

    def follow(self, drawn: Drawn) -> None:
        """Take the plan of a draw; tell the worker trees that differ from those before, with other
        buffers if their sizes differ. Raises SubmissionFailed, OutOfTime and NotEnoughMemory."""
        self._repeats |= drawn.repeats
        before, plan = self.plan, drawn.plan or self.plan
        if places(plan.expected)[-1] <= before.room_bytes:
            plan = replace(plan, room_bytes=before.room_bytes)
        # Not by ==: True equals 1.0, and NaN not itself.
        same = repr((plan.inputs, plan.expected)) == repr((before.inputs, before.expected))
        sizes = (self._sizes, self._host_sizes) if same else self._sizes_of(plan)
        self.plan = plan
        if same:  # outputs and noise may be others all the same
            return
        if sizes == (self._sizes, self._host_sizes):
            self.resume()
        else:
            self._sizes, self._host_sizes = sizes
            self._move(resized=True)

    def _move(self, resized: bool = False) -> None:
        """Continue in other memory. Raises SubmissionFailed, OutOfTime."""
        if resized or self._host.tensors or not self._emulates:  # there the number says where
            self.close()
            self._create_buffers()
        self._number = next(_numbers)  # no address is used for two cases
        self.resume()

    def resume(self) -> None:
        """Return to this case after another one. Raises SubmissionFailed, OutOfTime."""
        plan = self.plan
        expected = plan.expected.to_plain() if plan.checks_shape else {}
        request = messages.OpenCase(plan.inputs.to_plain(), expected, plan.room_bytes, self._number)
        if self._emulates:
            self._base = self.ask(request, messages.CaseOpened).base
            if self._base % mmap.PAGESIZE or self._base not in ADDRESSES:
                message = "the submission's process has no such addresses"
                raise SubmissionFailed("process.protocol", message)
        else:
            self.ask(request, messages.Done, self.buffers.fd)
        if self._host.tensors:
            self.ask(messages.OpenHost(), messages.Done, self._host.fd)

    @contextmanager
    def resumed(self) -> Iterator["OpenedCase"]:
        """Return to the case after another one was open; yields it to the block. What keeps
        addresses is wrong, as in the contest: this is in other memory, but for the replays of a
        graph and for one call of which the first output must be left alone."""
        self._stays = not self._stays
        if self._calls == "graph" or (self._calls == "together" and self._stays):
            self.resume()
        else:
            self._move()
        yield self

    def close(self) -> None:
        self.buffers.close()
        self._host.close()

    def mark(self) -> dict[str, str]:
        """Return the mark of counts that may leave out work, or of inputs that repeat.

        There are no counts without kernels: then there are only outputs and times, which the judge
        checks and measures.
        """
        counts = self.unverified if self.is_benchmark and self._launched else None
        said = counts or (_kept if self._repeats else None)
        return {"unverified": said} if said else {}

    def judged_call(self, data: Drawn, check: bool = True) -> tuple[messages.Called, float]:
        """Make a call on ``data``, check inputs and output, and return its nanoseconds by the
        judge's clock. Raises SubmissionFailed."""
        if self._calls == "graph" and self._warm != self._setup.process.pid:
            other = self._setup.referee.redraw(self.case, secrets.randbits(62))
            self.judged_request(other, messages.Call(), messages.Called, check=False)
            self._move()  # the contest's call outside a graph is one on a copy of the inputs
            self._warm, self._is_first, self.predicted = self._setup.process.pid, True, {}
        call = messages.Call(self._calls == "graph")
        answered = self.judged_request(data, call, messages.Called, check)
        if self._calls == "together" and self.is_benchmark and not self.sampled:
            self._refuse_overwritten()
        if self._calls == "shared" and self.rewrites and check and not self.sampled:
            self.call_on_changed_inputs(data)
        return answered

    def _refuse_overwritten(self) -> None:
        """Raise SubmissionFailed if the first output has changed, unless the contest keeps only one
        or it lies in an input, which the judge fills for each call."""
        inputs = [self.buffers.tensors[n] for n in self.plan.inputs.names if n in self._sizes]
        if 2 * sum(each.nbytes for each in inputs) > _together_bytes:
            return
        kept = self._first.setdefault((self._setup.process.pid, self._number), self.returned())
        now = self._first_output_now(kept)
        if all(map(same_bytes, kept.storages, now)):
            return
        self._invert(inputs)
        elsewhere = self._first_output_now(kept)
        self._invert(inputs)
        pairs = zip(kept.storages, now, elsewhere, strict=True)
        if any(same_bytes(b, c) and not same_bytes(a, b) for a, b, c in pairs):
            message = "a later call has overwritten the output of an earlier one: in a benchmark "
            message += "the contest keeps all outputs of several calls and checks them afterwards"
            raise SubmissionFailed("output.overwritten", message)

    def _invert(self, tensors: Sequence[torch.Tensor]) -> None:
        for each in tensors:
            each.bitwise_not_()
        wait_until_idle(self._setup.device)

    def _first_output_now(self, first: Output) -> list[torch.Tensor]:
        self.ask(messages.HandOverAgain(first=True), messages.Done)
        held = self.buffers.tensors[shared.output_name].clone()
        return parts(first.tree, held)

    def call_on_changed_inputs(self, drawn: Drawn) -> None:
        """Make another call on what the last one has left of its inputs. Raises SubmissionFailed if
        its output is not right for the inputs that were drawn."""
        try:
            self.judged_request(drawn, messages.Call(), messages.Called, fills=False)
        except SubmissionFailed as failed:
            raise failed.and_more(_on_changed_inputs) from None

    def judged_request(
        self, data: Drawn, request: object, answer: type[T], check: bool = True, fills: bool = True
    ) -> tuple[T, float]:
        """Do the same as ``judged_call`` for any request that calls custom_kernel once. fills:
        whether to copy the inputs into the buffers first."""
        self.follow(data)
        if self._emulates:
            self.begin()  # before the inputs are there: what reads them belongs to this call
        if fills:
            self.fill(self.buffers, data)
        start_ns = time.perf_counter_ns()
        try:
            answered = self.ask(request, answer)
        except SubmissionFailed as failed:
            raise self._as_the_gpu_tells(failed) from None
        self._called, self._is_first = True, False
        copied_ns = time.perf_counter_ns()
        # While the clock runs: later writes do not count.
        self._output = self.buffers.tensors[shared.output_name].clone()
        end_ns = time.perf_counter_ns()
        self.last_call_s = self.busy_s = (end_ns - start_ns) / 1e9
        wall_ns = float(end_ns - start_ns - _copies * (end_ns - copied_ns))
        if self._emulates:
            ended = self.end()
            if ended.reports:
                self.busy_s = min(self.busy_s, ended.cpu_s)
            failure = read_failure(ended.failure) if ended.fatal else None
            if failure is not None:  # whatever host code has made of it
                raise SubmissionFailed.of(failure, ended.fault)
            answered = self._with_reports(answered, ended)
        if self.sampled:
            return answered, wall_ns
        try:
            tree = tree_of(getattr(answered, "output", None))
        except TreeError as error:
            message = f"the submission's process described no output: {error}"
            raise SubmissionFailed("process.protocol", message) from None
        unlike = self.plan.checks_shape and not is_like(tree, self.plan.expected)
        if unlike or not is_packed(tree, self.plan.room_bytes):
            message = "the submission's process described an output that the judge does not take"
            raise SubmissionFailed("process.protocol", message)
        self._output_tree = tree
        self.check_inputs(self.buffers, data)
        if check:
            self.check_output(self.returned(), data)
        return answered, wall_ns

    def call_alone(self, data: Drawn) -> None:
        """Make a judged call in a new process, without looking for the cause of a wrong output.
        Raises SubmissionFailed, OutOfTime."""
        self._setup.process.stop()
        self._called, self._is_first = False, True
        with self.unexplained():
            self.resume()
            self.judged_call(data)

    @contextmanager
    def unexplained(self) -> Iterator[None]:
        """Look for no cause of a wrong output inside the block."""
        explain, self._explain = self._explain, False
        try:
            yield
        finally:
            self._explain = explain

    def begin(self, explain: int = 0, texts: Sequence[str] = ()) -> None:
        """Let the emulated GPU begin a call on the contents of the buffers.

        explain, texts: see ``Begin``. Raises SubmissionFailed, OutOfTime.
        """
        options = self._setup.process.options
        offsets = shared.offsets(self._sizes)
        left_s = self.seconds_left()
        predicts = explain or (self.is_benchmark and not self.predicted)
        buffers, nbytes = described(self.plan, offsets), shared.mapped_bytes(self._sizes)
        memory = self._base, buffers, nbytes, offsets[shared.output_name], self.plan.room_bytes
        deadline = time.monotonic() + left_s - min(_margin_s, left_s / 3)
        asked = deadline, options.model if predicts else "", options.flush
        half_bytes, host_bytes = places(self.plan.expected)[-1] // 2, sum(self._host_sizes.values())
        results_bytes = self.is_benchmark * max(half_bytes, 2 * host_bytes, _most_sent_bytes)
        request = messages.Begin(
            *memory, *asked, explain, list(texts), self.longest_s, results_bytes
        )
        self._ask_gpu(request, messages.Done, self.buffers.fd)

    def end(self) -> messages.Ended:
        """End the call and return the executor's account. Raises SubmissionFailed, OutOfTime."""
        self.ended = self._ask_gpu(messages.End(), messages.Ended)
        return self.ended

    def _ask_gpu(self, request: object, answer: type[T], fd: int | None = None) -> T:
        gpu = self._setup.process.gpu
        assert gpu is not None
        try:
            return gpu.ask(request, answer, self.seconds_left(), fd)
        except ExecutorFailed as error:
            self._setup.process.stop()
            raise no_gpu(error) from None

    def _with_reports(self, answered: T, ended: messages.Ended) -> T:
        self.unverified = self.unverified or ended.why or None
        self.predicted = self.predicted or ended.predicted
        self.sampled = ended.sampled
        if not isinstance(answered, messages.Called):
            return answered
        launched = bool(ended.reports)
        if self._launched not in (None, launched):
            self._launched = True
            self.unverified = self.unverified or "some calls launch kernels, others do not"
        self._launched = launched or bool(self._launched)
        return replace(answered, launches=ended.reports)

    def _as_the_gpu_tells(self, failed: SubmissionFailed) -> SubmissionFailed:
        """Return a failure with the executor's record of the fault, which replaces that of the
        submission's process."""
        gpu = self._setup.process.gpu
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

    def call_again(self, drawn: Drawn) -> None:
        """Make one more call, with other contents; a random part of a large output is checked.
        Raises SubmissionFailed, OutOfTime."""
        before = self.unverified
        self._is_first = False
        self.judged_call(drawn, check=False)
        if before is None and self.unverified:
            self.unverified = f"in a later call: {self.unverified}"
        if not self._setup.referee.is_right(drawn, self.returned()):
            self.check_output(self.returned(), drawn)

    def draw(self, seed: int) -> Drawn:
        """Inputs of this case."""
        return self._setup.referee.draw(self.case, seed)

    def fill(self, buffers: SharedBuffers, drawn: Drawn) -> None:
        """Writes the inputs of a call into shared buffers."""
        held = {**buffers.tensors, **self._host.tensors}
        noise = self._noise = _first_noise if self._is_first else secrets.choice(_later_noise)
        pairs = zip(drawn.tree.first_leaves, drawn.storages, strict=True)
        for number, (leaf, contents) in enumerate(pairs):
            if number in self.plan.noise:  # nothing may depend on it
                held[leaf.path].fill_(noise & 1 if leaf.dtype == "bool" else noise)
            else:
                held[leaf.path].copy_(contents)
        # Not the result of the previous call.
        buffers.tensors[shared.output_name].fill_(noise)
        wait_until_idle(buffers.tensors[shared.output_name].device)

    def withhold(self, buffers: SharedBuffers) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Spoil a part of the inputs in these buffers; see ``Referee.withhold``."""
        flat = [buffers.tensors[name] for name in self.plan.inputs.names]
        return self._setup.referee.withhold(self.plan, flat)

    def check_inputs(self, buffers: SharedBuffers, drawn: Drawn) -> None:
        """Raise SubmissionFailed if inputs have changed that must not; note other changes."""
        held = {**buffers.tensors, **self._host.tensors}
        pairs = zip(drawn.tree.names, drawn.storages, strict=True)
        for number, (name, contents) in enumerate(pairs):
            if number in self.plan.outputs or same_bytes(held[name], contents):
                continue
            if self.plan.strict_inputs:
                message = f"custom_kernel changed its input {name} in place"
                raise SubmissionFailed("contract.input_changed", message, input=name)
            self.rewrites = True
            outputs = self.returned().storages  # an input that is one may be written to
            if name not in self.changed and not any(same_bytes(e, held[name]) for e in outputs):
                self.changed.append(name)

    def check_output(self, output: Output, drawn: Drawn) -> None:
        """Raises SubmissionFailed if an output is wrong."""
        checked = self._setup.referee.check(drawn, output, self._explain)
        if checked.passed:
            if checked.error_share is not None:
                self.error_share = max(self.error_share or 0.0, checked.error_share)
            return
        if checked.unclear:
            raise SubmissionFailed("not_judged.rounding", checked.message)
        wrong, elements = checked.wrong, checked.elements
        failed = SubmissionFailed("output.mismatch", checked.message)
        counts = {"wrong": wrong, "elements": elements} if elements else {}
        failed.failure = replace(failed.failure, causes=checked.causes, arguments=counts)
        raise failed

    def returned(self) -> Output:
        """Return the last output as it was when the answer came."""
        return self.output_in(self._output)

    def output_in(self, raw: torch.Tensor) -> Output:
        """Return bytes as an output. Raises SubmissionFailed."""
        tree = self._output_tree
        return Output(tree, parts(tree, raw), self._noise)

    def check_again(self) -> None:
        """Raises SubmissionFailed if the last output has changed."""
        self.ask(messages.HandOverAgain(), messages.Done)
        after = self.output_in(self.buffers.tensors[shared.output_name])
        if not after.same_bits(self.returned()):
            message = "the output changed after it was returned"
            raise SubmissionFailed("output.changed_later", message)

    def ask(self, request: object, answer: type[T], fd: int | None = None) -> T:
        """Send a request to the worker and return its answer. Raises SubmissionFailed and
        OutOfTime."""
        return self._setup.process.request(request, answer, self.seconds_left(), fd)

    def seconds_left(self) -> float:
        """Return the seconds left for the next request. Raises OutOfTime."""
        longest_s = longest_call_s if self._called else longest_compile_s
        return seconds_left(self._setup.deadline, longest_s)


def seconds_left(deadline: float, longest_s: float = longest_call_s) -> float:
    """Return the seconds left for one request. Raises OutOfTime."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise OutOfTime
    return min(left_s, longest_s)


def described(plan: CasePlan, places: dict[str, int]) -> list[Any]:
    """Return the buffers of a case that launches may touch, in the form of ``Begin``. places: the
    address of each, by name."""
    held = zip(plan.inputs.first_leaves, plan.inputs.storages, strict=True)
    return [
        [
            leaf.path,
            places[leaf.path],
            storage.nbytes,
            number in plan.outputs or not plan.strict_inputs,
            leaf.shape,
            [each * leaf.itemsize for each in leaf.strides],
            leaf.offset * leaf.itemsize,
            leaf.dimensions,
            leaf.dtype,
        ]
        for number, (leaf, storage) in enumerate(held)
        if leaf.path in places
    ]
