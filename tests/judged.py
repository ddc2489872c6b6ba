"""Judges a submission as the worker does, on the stand-in device, and says what was found out."""

import contextlib
import ctypes
import gc
import io
import mmap
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gemv import make_case as make_case
from nvfp4.capture.emulated_gpu import fault_error
from nvfp4.executor import machine_code
from nvfp4.executor.gpu import Gpu
from nvfp4.executor.mapped_memory import MappedMemory
from nvfp4.judge.opened_case import CaseSetup, OpenedCase
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.problems import nvfp4_gemv
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.problems.nvfp4_gemv.referee import Gemv
from nvfp4.records.cases import Case
from nvfp4.records.failures import Failure, read_failure
from nvfp4.records.gpu_messages import Fault, HandOver, window_bytes
from nvfp4.records.messages import Begin, Call, Called, Done, End, Failed, Load, OpenSession
from nvfp4.records.options import Options
from nvfp4.records.texts import plain
from nvfp4.sandbox.caches import trusted_variables
from nvfp4.worker.emulated_runner import EmulatedRunner

TIME_LIMIT_S = 240.0

_CAUSES = {
    "launch_refused": "launch",
    "runaway_kernel": "endless",
    "read_only_memory": "out_of_bounds",
    "barrier_misuse": "deadlock",
}
"""Codes of the emulator that the corpus calls otherwise."""


@dataclass
class Judgement:
    """cause: why the first case failed that did, None for a pass. lines: of the fault or of the
    findings. printed: what the submission has.
    """

    cause: str | None = None
    message: str = "passed"
    findings: set[str] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    printed: str = ""


class Recorder(EmulatedRunner):
    """A runner that keeps the error behind a failure."""

    error: BaseException | None = None
    memory: "OwnMemory"

    def data(self, buffers: Any) -> Any:
        data = super().data(buffers)
        self.memory.fetch()
        return data

    def _explain(self, error: BaseException, loads: bool) -> Failed:
        self.error = error
        return super()._explain(error, loads)


class OwnMemory(MappedMemory):
    """Device memory of a GPU in this process: that of the submission."""

    def map_file(self, fd: int, nbytes: int, address: int) -> None:
        self.case = mmap.mmap(fd, nbytes), address

    def fetch(self) -> None:
        """The case's buffers as the judge has filled them."""
        mapping, address = self.case
        library = ctypes.CDLL(None)
        assert library.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)), 3) == 0
        ctypes.memmove(address, mapping[:], len(mapping))

    def map_shared(self, fd: int, nbytes: int, address: int) -> None:
        """It is there."""

    def is_shared(self, address: int, nbytes: int) -> bool:
        """It is not known here."""
        return False

    def hold(self, ranges: Iterable[tuple[int, int]]) -> None:
        """All is there."""

    def drop(self) -> None:
        """Nothing is kept."""


class InProcess:
    """Stands for the worker's process, and for its link with the executor: asks a runner and a GPU
    in this process. error: behind the last failure."""

    def __init__(self, submission: Path) -> None:
        self.options = Options()
        self.runner = Recorder(submission, self.options)
        self.memory = self.runner.memory = OwnMemory()
        window = mmap.mmap(-1, window_bytes)
        self.window = np.frombuffer(window, np.uint8)
        path, name, text = str(submission), submission.name, submission.read_text()
        session = OpenSession([], path, name, text, self.options.check)
        self.emulated = Gpu(session, self.memory, window)
        self.gpu = self
        self.runs = True
        self.limit_s: float | None = None
        self.runner.link = lambda: self  # type: ignore[method-assign]

    @property
    def error(self) -> BaseException | None:
        return self.emulated.error

    def ask(self, request: Any, *answer: Any) -> Any:
        """As a link, an executor, and a worker."""
        if isinstance(request, Begin):
            if self.limit_s is not None:
                request = replace(request, deadline=time.monotonic() + self.limit_s)
            self.emulated.begin(request, os.dup(answer[-1]))
            return Done()
        if isinstance(request, End):
            return self.emulated.end(request)
        if type(request) in self.emulated.kinds:
            fd = os.dup(answer[0]) if answer and answer[0] is not None else None
            found: Any = self.emulated.answer(request, fd)
            if isinstance(request, HandOver):
                # What has become of the case's buffers.
                mapping, address = self.memory.case
                mapping[:] = ctypes.string_at(address, len(mapping))
            if isinstance(found, Fault):
                sys.stdout.write(found.output)
                raise fault_error(found)
            return found
        found = self.runner.answer(request, None)
        if isinstance(found, Failed):
            raise SubmissionFailed.of(
                read_failure(found.failure) or Failure("unknown"), found.message
            )
        return found

    def request(self, request: object, answer: object, timeout_s: float, fd: int | None) -> Any:
        return self.ask(request)

    def stop(self) -> None:
        """Nothing runs."""


def judge(path: Path, cases: Iterable[Case], limit_s: float = TIME_LIMIT_S) -> Judgement:
    """The verdict on a submission. limit_s: when a kernel that does not end is given up."""
    # The stand-in device is for the submission: inputs and reference stay on the CPU.
    reference.default_device = lambda: torch.device("cpu")
    judgement, process, printed = Judgement(), InProcess(path), io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            process.ask(Load())
            for case in cases:
                with torch.random.fork_rng():
                    data = Gemv().draw(case, case.seed)
                rest = torch.device("cpu"), time.monotonic() + 600, Gemv(), True
                opened_case = OpenedCase(CaseSetup(process, *rest), case)  # type: ignore[arg-type]
                process.limit_s = limit_s
                with contextlib.closing(opened_case) as opened:
                    called, _ = opened.judged_request(data, Call(), Called)
                for report in called.launches:
                    for finding in report["findings"]:
                        judgement.findings.add(finding["code"])
                        judgement.lines |= {finding["line"]} if finding["line"] else set()
        except SubmissionFailed as failed:
            error = process.error if failed.failure.code.startswith("kernel.") else None
            error = error or process.runner.error
            judgement.message = str(failed)
            if error is None:
                causes = failed.failure.causes
                codes = [each["code"] for cause in causes for each in (cause, *cause["or"])]
                judgement.cause = "unwritten_output" if "output.unwritten" in codes else "mismatch"
            elif (code := getattr(error, "code", None)) is None:
                refused = type(error).__name__ == "LaunchRefused"
                judgement.cause = "launch" if refused else "exception"
            else:
                judgement.cause = _CAUSES.get(code, code)
            named = re.findall(rf"{re.escape(path.name)}\((\d+)\): error", judgement.message)
            judgement.lines = _lines(error, path) | {int(line) for line in named}
    judgement.printed = plain(printed.getvalue(), path, path.name).strip()
    return judgement


def _lines(error: BaseException | None, path: Path) -> set[int]:
    """The line of a fault, or those of the submission in the traceback of another error."""
    source = getattr(getattr(error, "where", None), "source", None)
    users = source.users() if source else None
    if users:
        return {users.line}
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return {frame.lineno or 0 for frame in frames if frame.filename == str(path)}


def _work(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sys.modules.pop("submission", None)
    sender.send(function(*arguments))


def apart(limit_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own; see `prepare`. Raises TimeoutError, and
    EOFError that says how the process ended without an answer.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_work, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit_s):
            raise TimeoutError("no answer in time")
        return receiver.recv()
    except EOFError:
        process.join()
        raise EOFError(f"the process ended with {process.exitcode}") from None
    finally:
        process.kill()
        process.join()


def judge_apart(path: Path, cases: Iterable[Case], limit_s: float = TIME_LIMIT_S) -> Judgement:
    """``judge`` in a process of its own."""
    try:
        return apart(TIME_LIMIT_S, judge, path, list(cases), limit_s)
    except TimeoutError as error:
        return Judgement("endless", str(error))
    except EOFError as error:
        return Judgement("exception", str(error))


def prepare() -> None:
    """Import and compile here what the processes that fork from this one would do each."""
    import cutlass.cute  # noqa: F401

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401

    import nvfp4.emulator.execution.launch  # noqa: F401

    sys.path.append(nvfp4_gemv.__path__[0])  # the judge puts utils.py beside a submission
    torch.set_num_threads(1)
    machine_code.load(Path(trusted_variables().get("NUMBA_CACHE_DIR", os.devnull)))
    gc.freeze()  # what is here is no garbage: those processes need not walk through it
