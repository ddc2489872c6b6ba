"""Submissions timed in turn on one device.

Mode ``compare FOLDER ROUNDS CASEFILE``. FOLDER/0, FOLDER/1, ... hold a submission.py each. In a
round a fresh process of every file is called in turn, in random order.

Writes to the result pipe: ``round.N``, a JSON list [files][cases] of medians in microseconds; or
``failed``, an object of file, case (null where it was not loaded) and message; or ``error``.
"""

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from nvfp4.contract.referee import Referee
from nvfp4.gpu.device_memory import default_device
from nvfp4.gpu.timing import CallTime, flushes
from nvfp4.judge import opened_case
from nvfp4.judge.cases import read_cases
from nvfp4.judge.choose_referee import files_beside, referee_of
from nvfp4.judge.clock import timing_checks
from nvfp4.judge.clock.calibration import DeviceLimits, measure_limits
from nvfp4.judge.protocol import Exit, Request
from nvfp4.judge.submission_process import CaseFailed, SubmissionFailed, SubmissionProcess
from nvfp4.records.cases import Case
from nvfp4.records.options import Options
from nvfp4.sandbox import isolation

calls_in_a_round = 15

longest_bytes = 60 << 10


class FileFailed(Exception):
    """A submission is wrong. case: number of the benchmark; None if there was none yet."""

    def __init__(self, file: int, case: int | None, why: SubmissionFailed) -> None:
        super().__init__(str(why))
        self.file, self.case, self.failure = file, case, why.failure


@contextmanager
def _blamed(file: int, case: int | None) -> Iterator[None]:
    """Blame this file for a failure in the block."""
    try:
        yield
    except SubmissionFailed as failed:
        raise FileFailed(file, case, failed) from None


def time_round(
    files: list[Path], cases: list[Case], options: Options, limits: DeviceLimits, referee: Referee
) -> list[list[float]]:
    """Time a fresh process of each file: medians in microseconds [files][cases].

    Raises FileFailed, OutOfTime and other CaseFailed.
    """
    deadline, device = time.monotonic() + options.timeout_s, default_device()
    beside = files_beside(options)
    with ExitStack() as stack:
        started = (SubmissionProcess(file, options, files=beside) for file in files)
        processes = list(map(stack.enter_context, started))
        for file, process in enumerate(processes):
            with _blamed(file, None):
                process.load(opened_case.seconds_left(deadline, opened_case.longest_compile_s))
        setups = [
            opened_case.CaseSetup(process, device, deadline, referee) for process in processes
        ]
        medians = [_time_case(number, case, setups, limits) for number, case in enumerate(cases)]
    return [list(of_file) for of_file in zip(*medians, strict=True)]


def _time_case(
    number: int, case: Case, setups: Sequence[opened_case.CaseSetup], limits: DeviceLimits
) -> list[float]:
    """Call every process in turn, all in the same buffers: where those lie changes a time."""
    with ExitStack() as stack:
        opened: list[opened_case.OpenedCase] = []
        for file, setup in enumerate(setups):
            with _blamed(file, number):
                each = opened_case.OpenedCase(setup, case)
                stack.callback(each.close)
                each.judged_call(each.draw(_seed()))
                if opened:
                    each.buffers.close()
                    each.buffers = opened[0].buffers
                    each.resume()
                opened.append(each)
        times: list[list[CallTime]] = [[] for _ in opened]
        for _ in range(calls_in_a_round):
            data = opened[0].draw(_seed())
            for file in secrets.SystemRandom().sample(range(len(opened)), len(opened)):
                with _blamed(file, number):
                    answer, wall_ns = opened[file].judged_call(data)
                    times[file].append(timing_checks.read_time(answer, wall_ns))
        for file, taken in enumerate(times):
            stats = timing_checks.summarise([each.call_ns for each in taken])
            floor_ns = limits.floor_ns(opened[file].plan.least_bytes)
            with _blamed(file, number):
                timing_checks.refuse_unfinished(stats, taken, limits)
                timing_checks.refuse_impossible(stats, floor_ns)
    return [median(each.call_ns for each in taken) / 1e3 for taken in times]


def compare(request: Request) -> Exit:
    """Time the files in rounds, and write each round's result."""
    folder, case_file = Path(request.arguments[0]), Path(request.arguments[2])
    rounds, pipe, options = int(request.arguments[1]), request.pipe, request.options
    files = [each / "submission.py" for each in sorted(folder.iterdir(), key=lambda e: int(e.name))]
    isolation.processes *= len(files)  # it counts those of all submissions
    limits = measure_limits(default_device(), flushes[options.flush])
    referee = referee_of(options)
    try:
        for number in range(rounds):
            cases = read_cases(case_file, None, referee.refuse)
            referee.prepare(cases)
            found = time_round(files, cases, options, limits, referee)
            pipe.write(f"round.{number}", json.dumps(found), longest_bytes)
        return Exit.PASSED
    except FileFailed as failed:
        said: dict[str, Any] = {"file": failed.file, "case": failed.case, "message": str(failed)}
        said["failure"] = failed.failure.as_plain()
        pipe.write("failed", json.dumps(said), longest_bytes)
    except opened_case.OutOfTime:
        pipe.write("error", f"a round took longer than {options.timeout_s:g} s")
    except CaseFailed as error:
        pipe.write("error", error)
    return Exit.CHECK_FAILED


def _seed() -> int:
    """Return a seed of contents that cannot be foreseen."""
    return secrets.randbelow(2**63)
