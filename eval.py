"""The judge, called by the contest's bot: ``python3 eval.py MODE CASEFILE``.

POPCORN_FD is the pipe that takes the results. Mode info, which is ours, measures the device and
runs no submission. Where nvfp4 is installed, local/options.py says what else may be set.
"""

import os
import sys

if __name__ == "__main__":
    _folder = os.path.dirname(os.path.abspath(__file__))
    if not os.path.exists(os.path.join(_folder, "import_guard.py")):  # a checkout, not the bot's
        sys.path.insert(0, os.path.join(_folder, "harness"))
    import import_guard

    import_guard.keep_to_modules()

import signal
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import isolation
from messages import Load
from protocol import Exit, PipeLost, ResultPipe
from submission_process import CannotRun, SubmissionFailed, SubmissionProcess

if TYPE_CHECKING:
    import torch

    from cases import Case
    from extras import Extras

modes = ("test", "benchmark", "leaderboard", "profile", "info")

default_timeout_s = 170.0
"""The bot kills a mode after 180 s."""

greeting_timeout_s = 30.0


class SetupError(Exception):
    """The judge cannot start."""

    def __init__(self, message: str, end: Exit) -> None:
        super().__init__(message)
        self.end = end


@dataclass(frozen=True)
class Environment:
    """What the bot and the command set. load: how the submission is imported."""

    secret_seed: int | None
    device: str = "auto"
    timeout_s: float = default_timeout_s
    load: Load = field(default_factory=Load)
    strict: bool = False


def read_environment() -> Environment:
    """Removes the seed. Raises SetupError."""
    seed = os.environ.pop("POPCORN_SEED", None)
    try:
        secret_seed = int(seed) if seed else None
    except ValueError:
        raise SetupError("POPCORN_SEED must be a whole number", Exit.USAGE) from None
    if find_spec("nvfp4") is None:  # under the contest's bot
        return Environment(secret_seed)
    from nvfp4.local.options import read_options

    try:
        return Environment(secret_seed, **read_options(default_timeout_s))
    except ValueError as error:
        raise SetupError(str(error), Exit.USAGE) from None


def run_mode(
    mode: str, case_file: Path, pipe: ResultPipe, environment: Environment, started: float
) -> Exit:
    """One mode over the cases of a file. Raises SetupError."""
    submission = Path("submission.py")
    if not submission.is_file():
        raise SetupError("there is no submission.py in this folder", Exit.USAGE)
    # The worker starts first: it and the judge import torch side by side.
    with SubmissionProcess(submission, environment.load) as process:
        from device import measure_limits
        from judge import Judge

        device = _device(environment)
        cases = _cases(case_file, environment)
        _report_facts(pipe, device, environment.load)
        _report_confinement(pipe, process)
        deadline = started + environment.timeout_s
        extras = _extras(process, submission, device, deadline, environment, pipe)
        judge = Judge(process, pipe, device, deadline, extras)
        if mode == "test":
            if extras.repeat is None:
                return judge.test(cases)
            with SubmissionProcess(submission, environment.load) as fresh:
                return judge.test(cases, extras.repeat(fresh))
        if mode == "profile":
            return judge.profile(cases)
        if mode == "info":
            process.stop()  # nothing runs beside the measurement
        limits = measure_limits(device, extras.flush)
        for name, value in vars(limits).items():
            pipe.write(f"device.{name}", value)
        if mode == "info":
            return judge.describe(cases, limits)
        return judge.benchmark(cases, limits, fresh_contents=mode == "leaderboard")


def _extras(
    process: SubmissionProcess,
    submission: Path,
    device: "torch.device",
    deadline: float,
    environment: Environment,
    pipe: ResultPipe,
) -> "Extras":
    from extras import Extras

    if find_spec("nvfp4") is None:
        return Extras()
    from nvfp4.local.extras import judge_extras

    load, strict = environment.load, environment.strict
    return judge_extras(process, submission, device, deadline, load.flush, strict, pipe)


def _cases(case_file: Path, environment: Environment) -> "list[Case]":
    from cases import CaseFileError, read_cases

    try:
        return read_cases(case_file, environment.secret_seed)
    except CaseFileError as error:
        raise SetupError(str(error), Exit.BAD_CASE_FILE) from None


def _device(environment: Environment) -> "torch.device":
    from reference import default_device

    device = default_device()
    if environment.device not in ("auto", device.type):
        message = f"torch sees {device.type} here, no {environment.device}: use --device auto"
        raise SetupError(message, Exit.USAGE)
    return device


def _report_facts(pipe: ResultPipe, device: "torch.device", load: Load) -> None:
    if find_spec("nvfp4") is None:
        return
    from nvfp4.local.facts import device_facts

    for name, value in vars(device_facts(device, load)).items():
        pipe.write(f"device.{name}", "" if value is None else value)
    pipe.complete("device")


def _report_confinement(pipe: ResultPipe, process: SubmissionProcess) -> None:
    try:
        confined = process.greet(greeting_timeout_s)
    except SubmissionFailed as error:
        raise SetupError(str(error), Exit.USAGE) from None
    for mechanism, how in confined.items():
        pipe.write(f"confined.{mechanism}", how)


def _open_pipe() -> ResultPipe:
    text = os.environ.pop("POPCORN_FD", "")
    try:
        return ResultPipe(int(text))
    except (ValueError, OSError, OverflowError) as error:
        raise SetupError(
            f"POPCORN_FD={text!r} cannot be written to ({error}): use the nvfp4 command",
            Exit.NO_PIPE,
        ) from None


def _stop(number: int, frame: object) -> NoReturn:
    """Ends this process as an exception does, so that the worker and its folder are removed."""
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt that
    sys.exit(128 + number)


def main(arguments: list[str]) -> Exit:
    """Runs a mode and returns how it ended."""
    started = time.monotonic()
    if len(arguments) != 2 or arguments[0] not in modes:
        print(f"usage: eval.py {'|'.join(modes)} CASEFILE", file=sys.stderr)
        return Exit.USAGE
    mode, case_file = arguments[0], Path(arguments[1])
    try:
        pipe = _open_pipe()
        environment = read_environment()
        isolation.adopt_orphans()
        isolation.close_to_others()  # before the submission starts, which runs as the same user
        return run_mode(mode, case_file, pipe, environment, started)
    except (SetupError, CannotRun) as error:
        print(f"eval.py: {error}", file=sys.stderr)
        return error.end
    except PipeLost as error:
        print(f"eval.py: the results cannot be written any more: {error}", file=sys.stderr)
        return Exit.NO_PIPE
    finally:
        isolation.kill_children()  # what a submission has detached


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    sys.exit(main(sys.argv[1:]))
