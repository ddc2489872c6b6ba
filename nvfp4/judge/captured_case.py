"""Cases whose submission gets decoys: its launches are recorded, and run elsewhere on the true
inputs.

Where a call cannot be had that way, it runs in the submission's process, as do all later ones.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, TypeVar

import torch

from nvfp4.contract.dimensions import described_buffers
from nvfp4.contract.layout import dtype_by_name
from nvfp4.contract.task import input_t
from nvfp4.judge.cases import Case
from nvfp4.judge.decoys import Decoys
from nvfp4.judge.executor import Executor, ExecutorFailed
from nvfp4.judge.opened_case import Explain, OpenedCase, OutOfTime, generate
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.execution_messages import (
    Execute,
    Executed,
    Opened,
    OpenSession,
    Record,
    Recorded,
)
from nvfp4.records.launch_records import Malformed, RecordedCall, outbox_bytes, read_call
from nvfp4.records.messages import Call, Called, Done, OpenCase
from nvfp4.shared_memory.buffers import create_buffers, output_name
from nvfp4.shared_memory.whole_mapping import whole_mapping
from nvfp4.worker.printed import taken

T = TypeVar("T")

_attempts = 3
"""To find a process in which the submission's addresses are free."""

_margin_s = 5.0

_replay_s = 10.0
"""Of calls that are had again in another process."""


_longest_reason = 200

_longest_quoted = 128 << 10
"""Bytes of a submission of which messages show a line."""

_compilers = re.compile(rb"\b(cutlass|triton|cpp_extension|nvrtc|cupy|numba|cuda\.core)\b")
"""Of which a submission names one that launches kernels: a guess, on which time alone depends."""


def _is_likely(process: SubmissionProcess) -> bool:
    source = (process.scratch / "submission.py").read_bytes()
    return _compilers.search(source) is not None


class NotCaptured(Exception):
    """A call that has to run in the submission's process; ``str`` says why."""


class Capture:
    """What belongs to one submission's process. on: whether calls are recorded still; why not.

    recorded: the cases whose calls were, and the seconds that each took. called: how many calls
    there were. looked_for_state: whether a wrong output was had again in a process of its own.
    """

    def __init__(self, process: SubmissionProcess, executor: Executor, name: str, on: bool) -> None:
        self.process = process
        self.executor = executor
        self.name = name
        self.on = on
        self.why = ""
        self.launched = False
        self.outbox: int | None = None
        self.opened = False
        self.likely = _is_likely(process)
        self.recorded: list[tuple[Case, float]] = []
        self.called = 0
        self.looked_for_state = False

    def open_outbox(self) -> tuple[int, bool]:
        """Its descriptor, and whether it is new."""
        if self.outbox is not None:
            return self.outbox, False
        self.outbox = os.memfd_create("nvfp4", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.outbox, outbox_bytes)
        _seal(self.outbox)
        return self.outbox, True

    def latest(self, most_s: float) -> list[Case]:
        """The cases of the latest recorded calls, in order, which took no longer in all."""
        found: list[Case] = []
        for case, taken_s in reversed(self.recorded):
            most_s -= taken_s
            if most_s < 0:
                break
            found.insert(0, case)
        return found

    def give_up(self, why: str) -> None:
        """From now on nothing is recorded."""
        self.on, self.why = False, why
        if self.outbox is not None:
            os.close(self.outbox)
            self.outbox = None


def _first_line(text: object) -> str:
    return (str(text).strip().splitlines() or ["unknown"])[0][:_longest_reason]


def _seal(fd: int) -> None:
    import fcntl

    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


class CapturedCase(OpenedCase):
    """A case whose calls are recorded as long as that works.

    own_word: why what the last call gave is the word of the submission's own process, None if it is
    not. prints: what its kernels have printed elsewhere. last_call_s: how long a call took.
    """

    def __init__(
        self,
        capture: Capture,
        case: Case,
        device: torch.device,
        deadline: float,
        explain: Explain | None = None,
    ) -> None:
        """As OpenedCase."""
        self._capture = capture
        self.own_word: str | None = None
        self.prints = ""
        self.last_call_s = 0.0
        self._settled = False
        super().__init__(capture.process, case, device, deadline, explain)

    def judged_request(
        self, data: input_t, request: object, answer: type[T], check: bool = True
    ) -> tuple[T, float]:
        """As OpenedCase: a call is recorded first."""
        began_s = time.monotonic()
        try:
            return self._judged_request(data, request, answer, check)
        finally:
            self.last_call_s = time.monotonic() - began_s

    @property
    def is_recorded(self) -> bool:
        """Whether the last call was recorded and its launches run elsewhere."""
        return self._settled

    def _judged_request(
        self, data: input_t, request: object, answer: type[T], check: bool
    ) -> tuple[T, float]:
        self._settled = False
        self._capture.called += 1
        if isinstance(request, Call) and self._capture.on:
            start_ns = time.perf_counter_ns()
            try:
                called = self._captured_call(data, check)
                self._settled = True
                taken_ns = time.perf_counter_ns() - start_ns
                self._capture.recorded.append((self.case, taken_ns / 1e9))
                return called, float(taken_ns)  # type: ignore[return-value]
            except NotCaptured as error:
                self._fall_back(str(error))
        self.own_word = self._capture.why
        try:
            return super().judged_request(data, request, answer, check)
        except SubmissionFailed as failed:
            if self.case.full_range and failed.end is Exit.CHECK_FAILED:
                self._look_for_state(failed, data)
            raise

    def _look_for_state(self, failed: SubmissionFailed, data: input_t) -> None:
        """Raises SubmissionFailed where only earlier calls of the process can be the cause."""
        capture = self._capture
        if capture.called == 1 or capture.looked_for_state:
            return
        capture.looked_for_state = True
        self._explain = None
        try:
            self._in_another_process()
            super().judged_request(data, Call(), Called)
        except (SubmissionFailed, OutOfTime):
            return
        raise SubmissionFailed(
            f"{failed}\nin a process of its own this call is right: what earlier calls have left "
            "decides"
        ) from None

    def _in_another_process(self, before: Sequence[Case] = ()) -> None:
        """Has later calls run there. before: cases that are called there first, as they were here,
        for what they leave."""
        process, case = self._capture.process, self.case
        self._called = False
        process.stop()
        try:
            for each in before:
                opened = OpenedCase(process, each, torch.device("cpu"), self._deadline)
                with closing(opened):
                    opened.judged_call(generate(each, each.seed), check=False)
        except SubmissionFailed:
            process.stop()
        taken(process.stdout)
        self.ask(OpenCase(case.m, case.k, case.l), Done, self.buffers.fd)

    def reported(self) -> dict[str, str]:
        """What the last call adds to the case's report."""
        report = {} if self.own_word is None else {"own_word": self.own_word or "no launch"}
        return {**report, "prints": self.prints} if self.prints else report

    def check_again(self) -> None:
        """As OpenedCase; nobody can change what came from elsewhere."""
        if not self._settled:
            super().check_again()

    def _captured_call(self, data: input_t, check: bool) -> Called:
        """Raises NotCaptured, and SubmissionFailed at the time limit."""
        call, said = self._record()
        executed, output = self._execute(call, said, data)
        if executed.record:  # it would take as long here
            self.prints += executed.prints
            raise SubmissionFailed(executed.fault, record=executed.record)
        if executed.fault:
            raise NotCaptured(_first_line(executed.fault))
        self._called = True
        self._output = output
        self.output_dtype = dtype_by_name[call.dtype]
        self.prints += executed.prints
        if check:
            self._check(data)
        return Called(0.0, 0.0, False, call.dtype, executed.reports)

    def _record(self) -> tuple[RecordedCall, dict[str, Any]]:
        decoys = Decoys(self.case)
        decoys.fill(self.buffers)
        self.buffers.tensors[output_name].fill_(0xFF)
        fd, fresh = self._capture.open_outbox()
        if self._capture.likely:
            self._capture.executor.start()  # which takes as long as a compiler
        try:
            recorded = self.ask(Record(fresh), Recorded, fd if fresh else None)
            changed = decoys.changed(self.buffers)
            if changed:
                raise SubmissionFailed(f"custom_kernel changed its input {changed} in place")
        except SubmissionFailed as failed:
            if failed.end is Exit.TIMED_OUT:
                raise
            self._capture.launched = True  # or it has got stuck halfway
            said = failed.record.get("message") or failed
            raise NotCaptured(_first_line(said)) from None
        self._capture.launched = recorded.launched
        if recorded.call == {}:
            raise NotCaptured(_first_line(recorded.why))
        try:
            return read_call(recorded.call), recorded.call
        except Malformed as error:
            raise NotCaptured(f"the launches cannot be read: {error}") from None

    def _execute(
        self, call: RecordedCall, said: dict[str, Any], data: input_t
    ) -> tuple[Executed, torch.Tensor]:
        """The answer, and the raw output. Raises NotCaptured."""
        capture, case = self._capture, self.case
        buffers = create_buffers(case.m, case.k, case.l, torch.device("cpu"))
        try:
            self.fill(buffers, data)
            base, nbytes = whole_mapping(buffers)
            left_s = self.seconds_left() / 2  # the other half is for a second run
            margin_s = min(_margin_s, left_s / 4)
            options = capture.process.options
            offsets = {name: each.data_ptr() - base for name, each in buffers.tensors.items()}
            request = Execute(
                said,
                described_buffers((case.m, case.k, case.l), offsets),
                nbytes,
                offsets[output_name],
                [case.m, case.l],
                {name: dtype.itemsize for name, dtype in dtype_by_name.items()},
                options.check,
                options.orders,
                f"{case.m}x{case.k}x{case.l}" if options.keep else "",
                time.monotonic() + left_s - margin_s,
            )
            assert buffers.fd is not None
            executed = self._ask_executor(request, left_s, buffers.fd)
            self.check_inputs(buffers, data)
            return executed, buffers.tensors[output_name].clone()
        finally:
            buffers.close()

    def _ask_executor(self, request: Execute, timeout_s: float, fd: int) -> Executed:
        capture = self._capture
        assert capture.outbox is not None
        try:
            for attempt in range(_attempts):
                first = not capture.opened
                if first:
                    path = capture.process.scratch / "submission.py"
                    text = path.read_bytes()[:_longest_quoted].decode("utf-8", "replace")
                    session = OpenSession(str(path), capture.name, text)
                    capture.executor.ask(session, Opened, timeout_s, capture.outbox)
                    capture.opened = True
                executed = capture.executor.ask(request, Executed, timeout_s, fd)
                if not executed.taken or not first or attempt + 1 == _attempts:
                    return executed
                capture.executor.stop()  # another process has other addresses
                capture.opened = False
        except ExecutorFailed as error:
            raise NotCaptured(f"the launches could not be run elsewhere: {error}") from None
        raise AssertionError("there is at least one attempt")

    def _check(self, data: input_t) -> None:
        """Raises NotCaptured: why it is wrong is found out when it runs here."""
        explain, self._explain = self._explain, None
        try:
            self.check_output(self.output(), data)
        except SubmissionFailed as failed:
            raise NotCaptured(_first_line(failed)) from None
        finally:
            self._explain = explain

    def _fall_back(self, why: str) -> None:
        """Has the call, and all others, run in the submission's process. Raises SubmissionFailed,
        OutOfTime."""
        capture = self._capture
        capture.give_up(why)
        taken(capture.process.stdout)  # it will print that again
        self._called = False
        if capture.launched:
            # What those launches would have left in memory is missing there.
            self._in_another_process(capture.latest(min(_replay_s, self.seconds_left() / 4)))


class Captures:
    """Opens cases; one executor serves all processes of a run."""

    def __init__(self, name: str) -> None:
        """name: what messages call the submission's file."""
        self._name = name
        self.executor = Executor()
        self._captures: dict[int, Capture] = {}
        self._on = True

    def expect(self, process: SubmissionProcess) -> None:
        """The executor starts while the submission does, if one is likely to be needed."""
        if _is_likely(process):
            self.executor.start()

    def open(
        self,
        process: SubmissionProcess,
        case: Case,
        device: torch.device,
        deadline: float,
        explain: Explain | None = None,
    ) -> OpenedCase:
        """As OpenedCase."""
        self._on = self._on and all(each.on for each in self._captures.values())
        known = self._captures.get(id(process))
        if known is None:
            for each in self._captures.values():
                each.opened = False  # the executor forgets it
            known = Capture(process, self.executor, self._name, self._on)
            self._captures[id(process)] = known
            known.why = next((each.why for each in self._captures.values() if each.why), "")
        return CapturedCase(known, case, device, deadline, explain)
