"""The judge's side of the worker.

Imports nothing heavy: the worker starts before the judge loads torch.
"""

import math
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from nvfp4.judge.executor import Executor, ExecutorFailed
from nvfp4.judge.protocol import Exit
from nvfp4.records import messages
from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout, Message
from nvfp4.records.failures import BY_SUBMISSION, Failure, read_failure
from nvfp4.records.files import clear
from nvfp4.records.options import Options
from nvfp4.records.processes import Process, Tail
from nvfp4.records.unanswered import last_state, longest_on_gpu_s, stack_of_hang
from nvfp4.sandbox import isolation
from nvfp4.sandbox.namespaces import uses_gpu
from nvfp4.sandbox.workers import start_worker

T = TypeVar("T")

_longest_quoted = 128 << 10

greeting_timeout_s = 30.0
"""Time for a worker to start."""

_look_s = 0.2
"""Seconds between two checks of a silent worker."""


_told_by_workers = (
    *("build.", "call.", "contract.", "cuda.", "import.", "kernel.", "launch.", "machine."),
    *("process.sys_exit", "retarget."),
)
"""Prefixes of the codes that the submission's process may report; all others are the judge's
own."""

_device_address_hint = (
    "\nhint: host code cannot use an address of the device's memory; .cpu() copies from there"
)

_attempts = 4
"""Attempts to find an executor in which the worker's addresses are free."""

_least_s = 0.1
"""The least time of compiling and emulating that is reported."""


@dataclass(frozen=True)
class Source:
    """The bytes of a submission, read once, since its process may replace every copy that it can
    write to."""

    file: str
    """Name of the file."""
    content: bytes

    @classmethod
    def read(cls, path: Path) -> "Source":
        """Read a submission's file. Raises OSError."""
        return cls(path.name, path.read_bytes())

    @property
    def text(self) -> str:
        """The text that messages quote; only the beginning of a long file."""
        return self.content[:_longest_quoted].decode("utf-8", "replace")


class CaseFailed(Exception):
    """A case cannot pass. ``str`` is the message for people.

    failure: the same for programs. end: the exit code of eval.py.
    """

    end = Exit.CHECK_FAILED

    def __init__(self, code: str, message: str, **arguments: object) -> None:
        super().__init__(message)
        self.failure = Failure(code, message.partition("\n")[0], arguments=arguments)


class SubmissionFailed(CaseFailed):
    """A case cannot pass because of the submission. by_import: whether importing it has raised."""

    by_import = False

    def __init__(
        self, code: str, message: str, end: Exit = Exit.CHECK_FAILED, **arguments: object
    ) -> None:
        super().__init__(code, message, **arguments)
        self.end = end

    @classmethod
    def of(cls, failure: Failure, message: str) -> "SubmissionFailed":
        """Return the error for a failure that the submission's process or the executor reports."""
        failed = cls(failure.code, message)
        failed.failure = replace(failure, message=failure.message or failed.failure.message)
        if failure.code == "cuda.error":
            failed.end = Exit.CUDA_ERROR
        return failed

    def and_more(self, text: str) -> "SubmissionFailed":
        """Return the error with another line added."""
        failed = self.of(self.failure, f"{self}\n{text}")
        failed.end = self.end
        return failed


def start_peer(
    module: str, file: Path, options: Options, folder: Path, anew: bool = False
) -> tuple[Process, Channel, Tail, Tail]:
    """Start a worker and return it with its channel, its output and its errors; see
    ``start_worker``."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = start_worker(module, file, theirs.fileno(), options, folder, anew)
    assert process.stdout and process.stderr
    return process, Channel(ours), Tail(process.stdout), Tail(process.stderr)


class SubmissionProcess:
    """A worker in a session, an environment and a scratch folder of its own.

    The folder holds copies of the submission and of the problem's files. A worker that takes the
    place of another finds nothing that the other has left there.
    """

    def __init__(
        self,
        submission: Path | Source,
        options: Options | None = None,
        gpu: Executor | None = None,
        files: Mapping[str, bytes] | None = None,
        anew: bool = False,
    ) -> None:
        """gpu: a new executor, or an earlier worker's, which then loses it. files: files that the
        submission may import, by name. anew: see ``start_worker``."""
        self._files, self._anew = files or {}, anew
        self.options = options or Options()
        self.gpu = gpu
        self._connected = False
        self.source = submission if isinstance(submission, Source) else Source.read(submission)
        self.scratch = self._new_scratch()
        self._name = self.options.name or self.source.file
        self._process: Process | None = None
        self._loaded = self._loads = False
        self._requests = 0
        self._asked: object = None
        self._load_failure: SubmissionFailed | None = None
        self._confined: dict[str, str] | None = None

    def __enter__(self) -> "SubmissionProcess":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the process for good."""
        self.stop()
        clear(self.scratch)

    def _new_scratch(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="nvfp4-"))
        for name, content in self._files.items():
            (folder / name).write_bytes(content)
        (folder / self.source.file).write_bytes(self.source.content)
        self._used = False
        return folder

    @property
    def submission(self) -> Path:
        """Path of the copy that the worker imports, which the submission may have overwritten."""
        return self.scratch / self.source.file

    def start(self) -> None:
        if self.gpu is None and not uses_gpu():
            self.gpu = Executor()
        if self.gpu is not None:
            self.gpu.start()
        if self._used:
            clear(self.scratch)
            self.scratch = self._new_scratch()
        self._used = True
        given = self.submission, self.options, self.scratch, self._anew
        self._process, self._channel, self.stdout, self._stderr = start_peer("nvfp4.worker", *given)
        self._confined = None
        self._loaded = self._loads = False

    @property
    def pid(self) -> int | None:
        """The process ID of the worker, if there is one."""
        return self._process.pid if self._process else None

    def stop(self) -> None:
        """Kill the worker and all processes that it has started."""
        if self._process is None:
            return
        isolation.kill_tree(self._process)
        self._channel.close()
        self._process = None
        if self._connected and self.gpu is not None:
            self.gpu.stop()  # it may be busy, and its memory is the worker's
        self._connected = False

    def request(
        self, request: object, answer: type[T], timeout_s: float, fd: int | None = None
    ) -> T:
        """Asks the worker and waits for an answer of a kind. Raises SubmissionFailed.

        A worker that cannot go on is stopped; the next request starts another.
        """
        deadline = time.monotonic() + timeout_s
        self.begin(request, timeout_s, fd)
        return self.finish(answer, deadline - time.monotonic())

    def begin(
        self, request: object, timeout_s: float, fd: int | None = None, load: bool = True
    ) -> None:
        """Load the submission if needed, then send a request; ``finish`` waits for the answer.
        Raises SubmissionFailed."""
        deadline = time.monotonic() + timeout_s
        if self._process is None:
            self.start()
        self.greet(timeout_s)
        if load and not self._loaded:
            self.load(deadline - time.monotonic())
        self._send(request, fd)

    def begin_load(self, timeout_s: float = greeting_timeout_s) -> None:
        """Let the worker begin to import the submission; ``load`` waits for it. Raises
        SubmissionFailed if the worker or the emulated GPU does not start."""
        self.greet(timeout_s)
        self._connect(timeout_s)
        self._send(messages.Load(), None)
        self._loads = True

    def load(self, timeout_s: float) -> None:
        """Import the submission. Raises SubmissionFailed, with the same failure at every further
        call."""
        if self._process is None:
            self.start()
        self.greet(timeout_s)
        if self._load_failure:
            raise self._load_failure
        try:
            if not self._loads:
                self.begin_load(timeout_s)
            self._loads = False
            self.finish(messages.Done, timeout_s)
        except SubmissionFailed as failed:
            self._load_failure = failed
            raise
        self._loaded = True

    def _connect(self, timeout_s: float) -> None:
        """Connect the worker to an emulated GPU if there is no other. Raises SubmissionFailed."""
        import torch

        if torch.cuda.is_available() or self._connected:
            return
        self.gpu = self.gpu or Executor()
        self._connected = True
        try:
            for _ in range(_attempts):
                ours, theirs = socket.socketpair()
                with ours, theirs:
                    self._send(messages.Connect(), theirs.fileno())
                    taken = self.finish(messages.Connected, timeout_s).taken
                    path, text, options = str(self.submission), self.source.text, self.options
                    session = messages.OpenSession(taken, path, self._name, text, options.check)
                    if self.gpu.ask(session, messages.Opened, timeout_s, ours.fileno()).possible:
                        return
                self.gpu.stop(anew=True)
            raise ExecutorFailed("its addresses are those of the submission's process")
        except ExecutorFailed as error:
            self._connected = False
            raise no_gpu(error) from None

    def answered(self, wait_s: float) -> bool:
        """Return whether ``finish`` would return or raise within ``wait_s``."""
        return self._channel.has_something(wait_s)

    def greet(self, timeout_s: float = greeting_timeout_s, attempts: int = 2) -> dict[str, str]:
        """Return how the worker is confined; see ``confinement.confine``. Raises
        SubmissionFailed."""
        if self._confined is None:
            try:
                greeting = messages.unpack(self._receive(timeout_s), messages.Greeting)
            except ChannelClosed:
                died = self._died()
                if attempts == 1:
                    raise died from None
                self.start()  # it has not seen the submission
                return self.greet(timeout_s, attempts - 1)
            except (ChannelTimeout, BadMessage) as error:
                self.stop()
                message = f"the worker did not start: {error!r}"
                raise SubmissionFailed("process.not_started", message) from None
            self._confined = {str(name): str(how) for name, how in greeting.confined.items()}
        return self._confined

    def _send(self, request: object, fd: int | None) -> None:
        self._requests += 1
        self._asked = request
        try:
            self._channel.send({**messages.pack(request), "id": self._requests}, fd)
        except ChannelClosed:
            raise self._died() from None

    def finish(self, answer: type[T], timeout_s: float) -> T:
        """Wait for the answer to the last request. Raises SubmissionFailed."""
        began_s = time.monotonic()
        try:
            message = self._receive(timeout_s)
            if message.get("id") != self._requests:
                self.stop()
                why = "the submission's process sent an answer that nobody asked for"
                raise SubmissionFailed("process.protocol", why)
            answered = messages.unpack(message, answer, messages.Failed)
        except ChannelClosed:
            raise self._died() from None
        except ChannelTimeout:
            self.stop()
            waited_s = math.ceil(time.monotonic() - began_s)
            raise self._timed_out(min(timeout_s, waited_s)) from None
        except BadMessage as error:
            self.stop()
            why = f"the submission's process sent a bad message: {error}"
            raise SubmissionFailed("process.protocol", why) from None
        if isinstance(answered, messages.Failed):
            raise self._told(answered)
        assert isinstance(answered, answer)
        return answered

    def _told(self, answered: messages.Failed) -> SubmissionFailed:
        failure = read_failure(answered.failure) or Failure("call.exception")
        if not failure.code.startswith(_told_by_workers):
            failure = replace(failure, code="call.exception")
        failure = replace(failure, causes=[], told_by=BY_SUBMISSION)
        failed = SubmissionFailed.of(failure, answered.message)
        failed.by_import = isinstance(self._asked, messages.Load)
        if failure.code == "cuda.error":  # lost with the CUDA context of that process
            self.stop()
        return self._after_refusal(failed) if failure.code == "process.sys_exit" else failed

    def _timed_out(self, timeout_s: float) -> SubmissionFailed:
        """Return the failure of a request that timed out, with the time spent on other work and the
        place of the hang."""
        loads = isinstance(self._asked, messages.Load)
        message = f"{'its import' if loads else 'custom_kernel'} did not finish within "
        message += f"{timeout_s:.3g} s"
        arguments = {"seconds": float(f"{timeout_s:.3g}")}
        ours_s = min(last_state(self.scratch).not_its_own_until_now_s, timeout_s)
        if ours_s >= _least_s:
            message += f", of which compiling and the GPU's work took {ours_s:.3g} s"
            arguments["not_its_own_s"] = float(f"{ours_s:.3g}")
        stack = stack_of_hang(self.scratch, self.source.file, self.source.text, self._name)
        code = "timeout.import" if loads else "timeout.call"
        return SubmissionFailed(code, f"{message}\n{stack}".strip(), Exit.TIMED_OUT, **arguments)

    def _after_refusal(self, ended: SubmissionFailed) -> SubmissionFailed:
        """Return the error with a refusal just before the end, or ``ended`` if there was none."""
        refused = last_state(self.scratch).refused
        if not refused:
            return ended
        failed = SubmissionFailed("launch.unsupported_call", f"{refused}\nthen {ended}")
        failed.failure = replace(failed.failure, told_by=BY_SUBMISSION)
        failed.by_import = ended.by_import
        return failed

    def _receive(self, timeout_s: float) -> Message:
        """Return the next message. A fork may hold the socket open after the worker has ended."""
        assert self._process
        deadline = time.monotonic() + timeout_s
        while True:
            gone = self._process.poll() is not None
            left_s = max(0.0, deadline - time.monotonic())
            try:
                return self._channel.receive(min(left_s, _look_s))[0]
            except ChannelTimeout:
                if gone:
                    raise ChannelClosed from None
                if len(isolation.descendants(os.getpid())) > isolation.processes:
                    self.stop()
                    most = isolation.processes
                    message = f"the submission started more than {most} processes"
                    raise SubmissionFailed("process.too_many", message, limit=most) from None
                if left_s <= _look_s or self._hangs(timeout_s - left_s):
                    raise

    def _hangs(self, waited_s: float) -> bool:
        """Whether a call on a GPU has taken too long without its compilations."""
        is_timed = self.gpu is None and isinstance(self._asked, messages.Call)
        if not is_timed or waited_s < longest_on_gpu_s:
            return False
        return waited_s - last_state(self.scratch).not_its_own_until_now_s > longest_on_gpu_s

    def _died(self) -> SubmissionFailed:
        process = self._process
        assert process
        try:
            code: int | None = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        tail = self._stderr.text() or self.stdout.text()
        connected = self._connected
        self.stop()
        more = "".join(f"\n{line}" for line in tail.splitlines()[-12:])
        if code is None:
            message = "the submission's process closed its connection to the judge"
            return SubmissionFailed("process.closed", message + more)
        if code < 0:
            name, meaning = _signal(-code)
            message = f"the submission's process was killed by {name}{meaning}"
            if connected and name == "SIGSEGV":
                source, heading = self.source, "it was here:"
                stack = stack_of_hang(self.scratch, source.file, source.text, self._name, heading)
                more += f"\n{stack}".rstrip() + _device_address_hint
            killed = SubmissionFailed("process.killed", message + more, signal=name)
            return self._after_refusal(killed)
        if code == messages.NOT_STARTED:
            return SubmissionFailed("process.not_started", f"the worker did not start:{more}")
        message = f"the submission's process ended with exit code {code}"
        exited = SubmissionFailed("process.exited", message + more, exit_code=code)
        return self._after_refusal(exited)


def no_gpu(error: ExecutorFailed) -> SubmissionFailed:
    """Return the failure for an emulated GPU that is gone, which says nothing about the
    submission."""
    return SubmissionFailed(error.code, f"the emulated GPU is gone: {error}")


def _signal(number: int) -> tuple[str, str]:
    """Return a signal's name, and what it means."""
    try:
        meaning = (signal.strsignal(number) or "").lower()
        return signal.Signals(number).name, f" ({meaning})"
    except ValueError:  # a real-time signal
        return f"signal {number}", ""
