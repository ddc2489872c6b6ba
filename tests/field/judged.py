"""Judges submissions of the corpus as the worker does, each in a process of its own.

PYTHONPATH=.:tests python -m field.judged [NAME ...]

A name is "folder/module" or a folder; all of the corpus without any.
"""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from field.corpus import Entry, load
from nvfp4.contract import reference
from nvfp4.emulator.arithmetic import compiled
from nvfp4.judge.cases import Case
from nvfp4.judge.opened_case import OpenedCase, generate
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.messages import Call, Called, Failure, Load, OpenCase
from nvfp4.records.options import Options
from nvfp4.worker.emulated_runner import EmulatedRunner

SHAPES = {
    "any": ((128, 256, 1), (256, 512, 2)),
    "batches": ((128, 256, 2),),
    "one_batch": ((128, 256, 1),),
    "full_range": ((128, 256, 1),),
    "k_blocks": ((128, 1536, 1),),
    "second_call": ((128, 256, 2), (128, 1536, 2)),
}
"""The shapes, (m, k, l), on which a submission is judged, by where its fault shows."""

TIME_LIMIT_S = 90.0
ENDLESS_LIMIT_S = 12.0
"""Of what is expected to reach the limit."""

CAUSES = {
    "launch_refused": "launch",
    "runaway_kernel": "endless",
    "read_only_memory": "out_of_bounds",
    "barrier_misuse": "deadlock",
}
"""Codes of the emulator that the corpus calls otherwise."""


@dataclass
class Judgement:
    """What was found out. cause: None for a pass. lines: of the fault or of the findings."""

    cause: str | None = None
    message: str = ""
    findings: set[str] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)


class Recorder(EmulatedRunner):
    """A runner that keeps the error behind a failure."""

    error: BaseException | None = None

    def _explain(self, error: BaseException, loads: bool) -> Failure:
        self.error = error
        return super()._explain(error, loads)


class InProcess:
    """Stands for the worker's process: asks a runner in this one."""

    def __init__(self, submission: Path) -> None:
        self.runner = Recorder(submission, Options())

    def ask(self, request: object, fd: int | None) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            answer = self.runner.answer(request, fd)
        if isinstance(answer, Failure):
            raise SubmissionFailed(answer.message)
        return answer

    def request(self, request: object, answer: object, timeout_s: float, fd: int | None) -> Any:
        own = os.dup(fd) if isinstance(request, OpenCase) and fd is not None else None
        return self.ask(request, own)


def judge(entry: Entry) -> Judgement:
    """The verdict on one submission, in this process."""
    # The stand-in device is for the submission: inputs and reference stay on the CPU.
    reference.default_device = lambda: torch.device("cpu")
    judgement = Judgement()
    process: InProcess | None = None
    try:
        process = InProcess(entry.path)
        process.ask(Load(), None)
        for m, k, l in SHAPES[entry.expectation.on]:
            for full in (False, True) if entry.expectation.on != "full_range" else (True,):
                called = _call(process, Case("", m, k, l, 1111, full))
                for report in called.launches:
                    for finding in report["findings"]:
                        judgement.findings.add(finding["code"])
                        judgement.lines |= {finding["line"]} if finding["line"] else set()
    except SubmissionFailed as failed:
        error = process.runner.error if process else None
        judgement.message = str(failed)
        judgement.cause = _cause(error, judgement.message)
        where = getattr(error, "where", None)
        source = getattr(where, "source", None)
        users = source.users() if source else None
        judgement.lines = {users.line} if users else _own_lines(error, entry.path)
        judgement.lines |= _compilers_lines(judgement.message, entry.path)
    return judgement


def _own_lines(error: BaseException | None, path: Path) -> set[int]:
    """Lines of the submission in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return {frame.lineno or 0 for frame in frames if frame.filename == str(path)}


def _compilers_lines(message: str, path: Path) -> set[int]:
    """Lines of the submission that a compiler's message names."""
    return {int(line) for line in re.findall(rf"{re.escape(path.name)}\((\d+)\): error", message)}


def _call(process: InProcess, case: Case) -> Called:
    from nvfp4.judge.diagnosis import likely_cause

    with torch.random.fork_rng():
        data = generate(case, case.seed)
    opened = OpenedCase(process, case, torch.device("cpu"), time.monotonic() + 600, likely_cause)  # type: ignore[arg-type]
    try:
        called: Called = opened.judged_request(data, Call(), Called)[0]
        return called
    finally:
        opened.close()


def _cause(error: BaseException | None, message: str) -> str:
    if error is None:
        return "unwritten_output" if "c was not written" in message else "mismatch"
    code = getattr(error, "code", None)
    if code is None:
        return "launch" if type(error).__name__ == "LaunchRefused" else "exception"
    return CAUSES.get(code, code)


def _work(sender: Any, entry: Entry) -> None:
    sys.modules.pop("submission", None)
    sender.send(judge(entry))


def judged_apart(entry: Entry) -> Judgement:
    """``judge`` in a process of its own, killed after the time limit."""
    limit_s = ENDLESS_LIMIT_S if "endless" in entry.expectation.causes else TIME_LIMIT_S
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_work, args=(sender, entry))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit_s):
            return Judgement("endless", "the time limit was reached")
        judgement: Judgement = receiver.recv()
        return judgement
    except EOFError:
        process.join()
        return Judgement("exception", f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def prepare() -> None:
    """Import and compile here what the processes that fork from this one would do each."""
    import cutlass.cute  # noqa: F401

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401

    import nvfp4.emulation
    import nvfp4.emulator.execution.launch  # noqa: F401

    torch.set_num_threads(1)
    list(compiled.compile_all())
    gc.freeze()  # what is here is no garbage: those processes need not walk through it


def judged(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Judgement]]:
    """Every entry with its verdict, several at a time; see `prepare`."""
    listed = list(entries)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(listed, pool.map(judged_apart, listed), strict=True)


def complaint(entry: Entry, got: Judgement) -> str | None:
    """How a verdict differs from what is expected; None if it does not."""
    expected = entry.expectation
    if expected.verdict == "fail":
        if got.cause is None:
            return f"passed with {sorted(got.findings)}, must fail: {sorted(expected.causes)}"
        if got.cause not in expected.causes:
            return f"failed by {got.cause}, must be {sorted(expected.causes)}: {got.message}"
        if expected.lines and got.cause not in ("mismatch", "unwritten_output", "endless"):
            if not got.lines & expected.lines:
                return f"{got.cause} at {sorted(got.lines)}, must be at {sorted(expected.lines)}"
        return None
    if got.cause is not None:
        return f"failed by {got.cause}, must pass: {got.message}"
    if expected.findings and not got.findings & expected.findings:
        return f"found {sorted(got.findings)}, must find {sorted(expected.findings)}"
    extra = got.findings - expected.findings - expected.allowed
    return f"found {sorted(extra)} as well, at {sorted(got.lines)}" if extra else None


def main() -> None:
    """Prints a line for each submission."""
    wanted = set(sys.argv[1:])
    entries = [
        entry for entry in load() if not wanted or {entry.name, entry.name.split("/")[0]} & wanted
    ]
    wrong = 0
    prepare()
    for entry, got in judged(entries):
        said = complaint(entry, got)
        wrong += said is not None
        first = " ".join((said or "").split())[:260]
        print(f"{'ok ' if said is None else 'BAD'} {entry.name:44} {first}", flush=True)
    print(f"{len(entries) - wrong} of {len(entries)} as expected")


if __name__ == "__main__":
    main()
