"""The modes that judge the cases of a file: test, benchmark, leaderboard, profile; and info."""

import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from nvfp4.judge.cases import read_cases
from nvfp4.judge.choose_referee import files_beside, referee_of
from nvfp4.judge.executor import Executor
from nvfp4.judge.protocol import Exit, Request, SetupError
from nvfp4.judge.submission_process import CaseFailed, Source, SubmissionFailed, SubmissionProcess
from nvfp4.records.cases import Case
from nvfp4.records.options import Options
from nvfp4.records.processes import wait_for_turn
from nvfp4.sandbox.namespaces import uses_gpu

if TYPE_CHECKING:
    import torch

    from nvfp4.contract.referee import Referee


def judge_cases(request: Request) -> Exit:
    """Runs a mode over the cases of a file. Raises SetupError."""
    options, pipe = request.options, request.pipe
    if not request.submission.is_file():
        raise SetupError("there is no submission.py in this folder", Exit.USAGE)
    submission = Source.read(request.submission)
    # The worker starts first: it and the judge import torch side by side.
    files = files_beside(options)
    gpu = None if uses_gpu() else Executor(bool(options.model) and request.mode != "test")
    # A worker takes 4 GiB for the contest's flush, and tests are not timed.
    given = replace(options, flush="none") if request.mode == "test" else options
    with (
        SubmissionProcess(submission, given, gpu, files) as process,
        closing(referee_of(options)) as referee,
    ):
        from nvfp4.judge.clock.calibration import Calibration, calibrate
        from nvfp4.judge.facts import device_facts
        from nvfp4.judge.fresh_process import Repetition
        from nvfp4.judge.modes import Judge
        from nvfp4.judge.observing import Hooks
        from nvfp4.judge.opened_case import CaseSetup

        device = _device(options)
        cases = read_cases(Path(request.arguments[0]), request.secret_seed, referee.refuse)
        waited_since = time.monotonic()
        if not wait_for_turn(partial(_get_ready, process, device, referee, cases)):
            raise SetupError("nobody waits for this judgement any more", Exit.USAGE)
        request = replace(request, deadline=request.deadline + time.monotonic() - waited_since)
        try:
            referee.prepare(cases)
            if device.type == "cpu" and request.mode != "info":
                with suppress(SubmissionFailed):  # as the first case says
                    process.begin_load()  # while the referee draws
            referee.plan(_smallest(cases))  # which comes first
        except CaseFailed as failed:
            if failed.failure.code != "machine.limit":  # as each case says
                raise SetupError(str(failed), Exit.USAGE) from None
        for name, value in device_facts(device, options).items():
            pipe.write(f"device.{name}", "" if value is None else value)
        pipe.complete("device")
        for mechanism, how in _greeted(process).items():
            pipe.write(f"confined.{mechanism}", how)
        hooks = Hooks(process, device, request.deadline, options, pipe, referee.withholds)
        judge = Judge(process, pipe, device, request.deadline, hooks, referee)
        if request.mode == "test":
            if not options.repeat:
                return judge.test(cases)
            # Findings are those of the first process.
            unchecked = replace(given, check=False)
            fresh = SubmissionProcess(submission, unchecked, process.gpu, files, anew=True)
            with closing(fresh):
                setup = CaseSetup(fresh, device, request.deadline, referee)
                return judge.test(cases, Repetition(setup))
        if request.mode == "profile":
            return judge.profile(cases)
        if request.mode == "info":
            process.stop()  # nothing runs beside the measurement
        sizes = [referee.published(each).least_bytes for each in cases]

        @cache
        def calibrated() -> Calibration:
            found = calibrate(device, options.flush, sizes, request.mode == "info")
            for name, value in vars(found.limits).items():
                pipe.write(f"device.{name}", value)
            return found

        if request.mode == "info":
            return judge.describe(cases, calibrated())
        return judge.benchmark(cases, calibrated, fresh_contents=request.mode == "leaderboard")


def _device(options: Options) -> "torch.device":
    from nvfp4.gpu.device_memory import default_device

    device = default_device()
    wanted = "cpu" if options.without_gpu else options.device.partition(":")[0]
    if wanted not in ("auto", device.type):
        message = f"torch sees {device.type} here, no {wanted}: use --device auto"
        raise SetupError(message, Exit.USAGE)
    return device


def _get_ready(
    process: SubmissionProcess, device: "torch.device", referee: "Referee", cases: list[Case]
) -> None:
    """Wait for the worker's start, load the kernels that draw and check, and wait for an idle GPU,
    which take time before anything is judged."""
    from nvfp4.gpu.timing import wait_until_idle

    _greeted(process)
    if device.type == "cuda":
        with suppress(CaseFailed):  # as the first case says
            _check_nothing(referee, cases, device)
    wait_until_idle(device)


def _check_nothing(referee: "Referee", cases: list[Case], device: "torch.device") -> None:
    """Check an output of zeros for the smallest case, whatever the result. Raises CaseFailed."""
    import torch

    from nvfp4.contract.referee import Output

    referee.prepare(cases)
    case = _smallest(cases)
    tree = referee.plan(case).expected
    zeros = [torch.zeros(each.nbytes, dtype=torch.uint8, device=device) for each in tree.storages]
    referee.check(referee.redraw(case, case.seed), Output(tree, zeros))


def _smallest(cases: list[Case]) -> Case:
    return min(cases, key=lambda case: case.elements)


def _greeted(process: SubmissionProcess) -> dict[str, str]:
    """Return how the worker is confined. Raises SetupError if it does not start."""
    try:
        return process.greet()
    except SubmissionFailed as error:
        raise SetupError(str(error), Exit.USAGE) from None
