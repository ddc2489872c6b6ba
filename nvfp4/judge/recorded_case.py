"""Benchmarks without a GPU: the submission gets decoys, its launches are recorded, and the executor
runs them on the true inputs.

Where a call cannot be had that way, it and all later ones run in a new process of the submission,
and what is said of them is unverified.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from nvfp4.contract.layout import described_buffers, dtype_by_name, input_names, storages
from nvfp4.contract.task import input_t
from nvfp4.judge.cases import Case
from nvfp4.judge.contents import Contents
from nvfp4.judge.executor import Executor, ExecutorFailed
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, changed_input, generate
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.failures import read_failure
from nvfp4.records.launch_records import Malformed, RecordedCall, outbox_bytes, read_call
from nvfp4.records.messages import (
    Call,
    Called,
    Execute,
    Executed,
    Opened,
    OpenSession,
    Record,
    Recorded,
)
from nvfp4.shared_memory.buffers import (
    SharedBuffers,
    create_buffers,
    output_name,
    sealed_file,
    whole_mapping,
)
from nvfp4.worker.printed import taken

T = TypeVar("T")

_attempts = 3
"""To find a process in which the submission's addresses are free."""

_margin_s = 5.0
_longest_reason = 200


class NotRecorded(Exception):
    """A call that has to run in the submission's process; ``str`` says why."""


class Recording:
    """What belongs to one submission's process. why: nothing is recorded any more; empty as long as
    that is not so.
    """

    def __init__(self, process: SubmissionProcess, name: str) -> None:
        """name: what messages call the submission's file."""
        self.process, self.name = process, name
        self.executor = Executor()
        self.why = ""
        self._outbox: int | None = None
        self._opened = False

    def open(self, setup: CaseSetup, case: Case) -> OpenedCase:
        """As OpenedCase, of the process that this belongs to."""
        return RecordedCase(self, setup, case)

    def outbox(self) -> tuple[int, bool]:
        """The descriptor of the file that records are handed over in, and whether it is new."""
        if self._outbox is not None:
            return self._outbox, False
        self._outbox = sealed_file(outbox_bytes)
        return self._outbox, True

    def give_up(self, why: str) -> None:
        """From now on nothing is recorded, and another process has the calls."""
        self.why = why
        taken(self.process.stdout)  # it will print that again
        self.process.stop()
        if self._outbox is not None:
            os.close(self._outbox)
            self._outbox = None

    def execute(self, request: Execute, timeout_s: float, fd: int) -> Executed:
        """Raises NotRecorded where there is no executor that can."""
        try:
            for attempt in range(_attempts):
                first = not self._opened
                if first:
                    process = self.process
                    path, text = str(process.submission), process.source.text
                    session = OpenSession(path, self.name, text)
                    self.executor.ask(session, Opened, timeout_s, self.outbox()[0])
                    self._opened = True
                executed = self.executor.ask(request, Executed, timeout_s, fd)
                if not executed.taken or not first or attempt + 1 == _attempts:
                    return executed
                self.executor.stop()  # another process has other addresses
                self._opened = False
        except ExecutorFailed as error:
            raise NotRecorded(f"the launches could not be run elsewhere: {error}") from None
        raise AssertionError("there is at least one attempt")


class RecordedCase(OpenedCase):
    """A case whose calls are recorded as long as that works. prints: what its kernels have printed
    elsewhere. predicted: the time of its first call on another GPU; see ``records.prediction``.
    """

    def __init__(self, recording: Recording, setup: CaseSetup, case: Case) -> None:
        """As OpenedCase."""
        self._recording = recording
        self._programs: set[RecordedCall] = set()
        self._keeps = False
        self._was_recorded = False
        self.prints = ""
        self.predicted: dict[str, Any] = {}
        super().__init__(setup, case)

    def judged_request(
        self, data: input_t, request: object, answer: type[T], check: bool = True
    ) -> tuple[T, float]:
        """As OpenedCase: a call is recorded first."""
        began_s = time.monotonic()
        try:
            if isinstance(request, Call) and not self._recording.why:
                try:
                    called = self._run(*self._record(), data)
                    if check:
                        self._check(data)
                    return called, (time.monotonic() - began_s) * 1e9  # type: ignore[return-value]
                except NotRecorded as error:
                    self._give_up(error)
            self._is_unverified("")
            return super().judged_request(data, request, answer, check)
        finally:
            self.last_call_s = time.monotonic() - began_s

    def call_again(self, contents: Callable[[], Contents], runs: bool) -> None:
        """As OpenedCase. What is recorded as before does the same, unless it keeps memory."""
        if not self._recording.why:
            try:
                call, said = self._record()
                if runs or call not in self._programs:
                    drawn = contents()
                    self._run(call, said, drawn.data)
                    self.check_drawn(drawn)
                return
            except NotRecorded as error:
                self._give_up(error)
        self._is_unverified("in a later call: " if self._was_recorded else "")
        super().call_again(contents, runs)

    def check_again(self) -> None:
        """As OpenedCase; nobody can change what came from elsewhere."""
        if self.unverified is not None:
            super().check_again()

    def _give_up(self, error: NotRecorded) -> None:
        self._recording.give_up(str(error))
        self._called = False
        self.resume()

    def _is_unverified(self, when: str) -> None:
        self.own_notes = None
        why = self._recording.why or "no launch"
        self.unverified = self.unverified or f"{when}{why}"

    def _run(self, call: RecordedCall, said: dict[str, Any], data: input_t) -> Called:
        """Raises NotRecorded, and SubmissionFailed at the time limit."""
        executed, output = self._execute(said, data)
        self.prints += executed.prints
        failure = read_failure(executed.failure)
        if failure is not None:  # it would take as long here
            raise SubmissionFailed.of(failure, executed.fault)
        if executed.fault:
            raise NotRecorded(f"where the judge runs its launches: {_first_line(executed.fault)}")
        self._called = self._was_recorded = True
        launches = [step.launch for step in call.steps if step.launch]
        self.own_notes = {note[:2] for launch in launches for note in launch.notes}
        self._output = output
        self.predicted = self.predicted or executed.predicted
        self.output_dtype = dtype_by_name[call.dtype]
        self._keeps |= executed.keeps
        if not self._keeps:
            self._programs.add(replace(call, texts=()))
        called = Called(0.0, 0.0, False, call.dtype, executed.reports)
        self._note_launches(called)
        return called

    def _record(self) -> tuple[RecordedCall, dict[str, Any]]:
        """What the submission launches on decoys. Raises NotRecorded."""
        decoys = Decoys(self.case)
        decoys.fill(self.buffers)
        self.buffers.tensors[output_name].fill_(0xFF)
        fd, fresh = self._recording.outbox()
        try:
            recorded = self.ask(Record(fresh), Recorded, fd if fresh else None)
            changed = decoys.changed(self.buffers)
            if changed:
                raise changed_input(changed)
        except SubmissionFailed as failed:
            if failed.end is Exit.TIMED_OUT:
                raise
            raise NotRecorded(f"recording failed: {_first_line(failed.failure.message)}") from None
        if recorded.call == {}:
            raise NotRecorded(f"its process says: {_first_line(recorded.why)}")
        try:
            return read_call(recorded.call), recorded.call
        except Malformed as error:
            raise NotRecorded(f"the launches cannot be read: {error}") from None

    def _execute(self, said: dict[str, Any], data: input_t) -> tuple[Executed, torch.Tensor]:
        """The answer, and the raw output. Raises NotRecorded."""
        case, options = self.case, self._recording.process.options
        buffers = create_buffers(case.m, case.k, case.l, torch.device("cpu"))
        try:
            self.fill(buffers, data)
            base, nbytes = whole_mapping(buffers)
            left_s = self.seconds_left() / 2  # the other half is for a second run
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
                time.monotonic() + left_s - min(_margin_s, left_s / 4),
                "" if self.predicted else options.model,
                options.flush,
            )
            assert buffers.fd is not None
            executed = self._recording.execute(request, left_s, buffers.fd)
            self.check_inputs(buffers, data)
            return executed, buffers.tensors[output_name].clone()
        finally:
            buffers.close()

    def _check(self, data: input_t) -> None:
        """Raises NotRecorded: why it is wrong is found out where it runs in the submission's own
        process."""
        explain, self._explain = self._explain, None
        try:
            self.check_output(self.output(), data)
        except SubmissionFailed as failed:
            wrong = f"where the judge runs its launches, {_first_line(failed)}"
            raise NotRecorded(wrong) from None
        finally:
            self._explain = explain


def _first_line(text: object) -> str:
    return (str(text).strip().splitlines() or ["unknown"])[0][:_longest_reason]


_atom_rows = 128
"""Of the permuted scales: where rows repeat with this period, so do they."""

_drawn_atoms = 4


class Decoys:
    """A few rows of one batch, drawn at random and repeated: to draw every row takes seconds."""

    def __init__(self, case: Case) -> None:
        sizes = (_drawn_atoms * _atom_rows, _atom_rows)
        rows = next((each for each in sizes if case.m % each == 0), case.m)
        batches = case.l if rows == case.m else 1
        kind = bool(secrets.randbits(1))
        drawn = generate(replace(case, m=rows, l=batches, full_range=kind), secrets.randbits(63))
        blocks = storages(drawn, rows, case.k, batches)
        self._blocks = {name: blocks[name] for name in input_names}

    def fill(self, buffers: SharedBuffers) -> None:
        """Writes all inputs."""
        for name, block in self._blocks.items():
            buffers.tensors[name].view(-1, block.numel()).copy_(block)

    def changed(self, buffers: SharedBuffers) -> str | None:
        """The first input that is not what was written."""
        for name, block in self._blocks.items():
            rows = buffers.tensors[name].view(-1, block.numel())
            if not all(torch.equal(row, block) for row in rows):
                return name
        return None
