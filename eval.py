"""The judge, called by the contest's bot: ``python3 eval.py MODE CASEFILE``.

MODE is test, benchmark, leaderboard or profile, and POPCORN_FD the pipe that takes the results. A
fifth mode of ours, info, measures the device and runs no submission. Besides the bot's variables:
NVFP4_DEVICE (auto, cuda or cpu) demands a kind of device; NVFP4_TIMEOUT_S limits a mode;
NVFP4_ARCH, NVFP4_CHECK=0, NVFP4_ORDERS and NVFP4_STRICT=1 are for kernels that are emulated because
there is no GPU.
"""

import os
import sys

if __name__ == "__main__":
    _folder = os.path.dirname(os.path.abspath(__file__))
    if not os.path.exists(os.path.join(_folder, "import_guard.py")):  # a checkout, not the bot's
        sys.path.insert(0, os.path.join(_folder, "harness"))
    import import_guard

    import_guard.keep_to_modules()

import math
import signal
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import isolation
from messages import Load
from protocol import Exit, PipeLost, ResultPipe
from submission_process import SubmissionFailed, SubmissionProcess

if TYPE_CHECKING:
    import torch

    from cases import Case
    from device import DeviceLimits
    from extras import Extras

modes = ("test", "benchmark", "leaderboard", "profile", "info")

default_timeout_s = 170.0
"""The bot kills a mode after 180 s; ten seconds before that, what is judged is reported."""


default_orders = 4
"""In how many orders an emulated launch with findings runs."""

greeting_timeout_s = 30.0
"""A worker says how it is confined before it imports anything heavy."""


class SetupError(Exception):
    """The judge cannot start; the message is one sentence and a hint."""

    def __init__(self, message: str, end: Exit) -> None:
        super().__init__(message)
        self.end = end


@dataclass(frozen=True)
class Environment:
    """What the bot and the command line set; seeds are removed from the environment."""

    result_fd: int
    secret_seed: int | None
    device: str
    timeout_s: float
    arch: str
    check: bool
    orders: int
    strict: bool


def read_environment() -> Environment:
    """Raises SetupError where a variable is missing or not a number."""
    text = os.environ.pop("POPCORN_FD", None)
    if text is None:
        raise SetupError("POPCORN_FD is not set: use the nvfp4 command", Exit.NO_PIPE)
    try:
        result_fd = int(text)
        os.fstat(result_fd)
    except (ValueError, OSError, OverflowError):
        raise SetupError(f"POPCORN_FD={text!r} is not an open descriptor", Exit.NO_PIPE) from None
    seed_text = os.environ.pop("POPCORN_SEED", None)
    timeout_text = os.environ.get("NVFP4_TIMEOUT_S", str(default_timeout_s))
    try:
        secret_seed = int(seed_text) if seed_text else None
        timeout_s = float(timeout_text)
        if not 0 < timeout_s < math.inf:
            raise ValueError
    except ValueError:
        raise SetupError(
            "POPCORN_SEED must be a whole number and NVFP4_TIMEOUT_S a positive number of seconds",
            Exit.USAGE,
        ) from None
    device = os.environ.get("NVFP4_DEVICE", "auto")
    if device not in ("auto", "cuda", "cpu"):
        raise SetupError(f"NVFP4_DEVICE={device!r} is not auto, cuda or cpu", Exit.USAGE)
    arch = os.environ.get("NVFP4_ARCH", "sm_100a")
    check = os.environ.get("NVFP4_CHECK", "1") != "0"
    strict = os.environ.get("NVFP4_STRICT", "0") != "0"
    orders = os.environ.get("NVFP4_ORDERS", str(default_orders))
    if not orders.isdecimal() or int(orders) < 1:
        raise SetupError(f"NVFP4_ORDERS={orders!r} is not a positive number", Exit.USAGE)
    return Environment(result_fd, secret_seed, device, timeout_s, arch, check, int(orders), strict)


def judge_submission(
    mode: str, case_file: Path, pipe: ResultPipe, environment: Environment, started: float
) -> Exit:
    """One mode over the cases of a file. Raises SetupError."""
    submission = Path("submission.py")
    if not submission.is_file():
        raise SetupError("there is no submission.py in this folder", Exit.USAGE)
    # The worker starts first: it and the judge import torch side by side.
    with _worker(submission, environment) as process:
        from device import measure_limits
        from judge import Judge

        device = _device(environment)
        cases = _cases(case_file, environment)
        _report_facts(pipe, device, environment.arch)
        _report_confinement(pipe, process)
        deadline = started + environment.timeout_s
        extras = _extras(process, submission, device, deadline, environment.strict)
        judge = Judge(process, pipe, device, deadline, environment.secret_seed, extras)
        if mode == "test":
            if extras.repeat is None:
                return judge.test(cases)
            with _worker(submission, environment) as fresh:
                return judge.test(cases, extras.repeat(fresh))
        if mode == "profile":
            return judge.profile(cases)
        limits = measure_limits(device)
        _report_limits(pipe, limits)
        return judge.benchmark(cases, limits, fresh_contents=mode == "leaderboard")


def _worker(submission: Path, environment: Environment) -> SubmissionProcess:
    load = Load(environment.arch, environment.check, environment.orders)
    return SubmissionProcess(submission, load)


def _extras(
    process: SubmissionProcess,
    submission: Path,
    device: "torch.device",
    deadline: float,
    strict: bool,
) -> "Extras":
    """What an installed nvfp4 adds to the judge; the bot has the files of task.yml alone."""
    from extras import Extras

    if find_spec("nvfp4") is None:
        return Extras()
    from nvfp4.local.extras import judge_extras

    return judge_extras(process, submission, device, deadline, strict)


def describe_device(pipe: ResultPipe, case_file: Path, environment: Environment) -> Exit:
    """Mode info: the device's facts and limits and the floor of each case. Raises SetupError."""
    from device import measure_limits
    from judge import write_floor

    device = _device(environment)
    cases = _cases(case_file, environment)
    _report_facts(pipe, device, environment.arch)
    limits = measure_limits(device)
    _report_limits(pipe, limits)
    with _worker(Path("submission.py"), environment) as process:
        _report_confinement(pipe, process)
    for index, case in enumerate(cases):
        write_floor(pipe, f"benchmark.{index}", case, limits)
    pipe.verdict(passed=True)
    return Exit.PASSED


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
        hint = "use --device auto or cpu" if environment.device == "cuda" else "hide the GPU"
        raise SetupError(f"torch sees no {environment.device} device here: {hint}", Exit.USAGE)
    return device


def _report_facts(pipe: ResultPipe, device: "torch.device", arch: str) -> None:
    if find_spec("nvfp4") is None:  # the contest's bot does not show them
        return
    from nvfp4.local.facts import device_facts

    for name, value in vars(device_facts(device, arch)).items():
        pipe.write(f"device.{name}", "" if value is None else value)
    pipe.complete("device")


def _report_limits(pipe: ResultPipe, limits: "DeviceLimits") -> None:
    for name, value in vars(limits).items():
        pipe.write(f"device.{name}", value)


def _report_confinement(pipe: ResultPipe, process: SubmissionProcess) -> None:
    try:
        confined = process.greet(greeting_timeout_s)
    except SubmissionFailed as error:
        raise SetupError(str(error), Exit.USAGE) from None
    for mechanism, how in confined.items():
        pipe.write(f"confined.{mechanism}", how)


def _open_pipe(fd: int) -> ResultPipe:
    try:
        return ResultPipe(fd)
    except OSError as error:
        raise SetupError(
            f"POPCORN_FD={fd} cannot be written to ({error.strerror}): use the nvfp4 command",
            Exit.NO_PIPE,
        ) from None


def _stop(number: int, frame: object) -> NoReturn:
    """SIGTERM ends this process as an exception does: the worker and its folder are removed."""
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the cleanup
    sys.exit(128 + number)


def main(arguments: list[str]) -> Exit:
    """Runs a mode and returns how it ended."""
    started = time.monotonic()
    if len(arguments) != 2 or arguments[0] not in modes:
        print(f"usage: eval.py {'|'.join(modes)} CASEFILE", file=sys.stderr)
        return Exit.USAGE
    mode, case_file = arguments[0], Path(arguments[1])
    try:
        environment = read_environment()
        isolation.adopt_orphans()
        isolation.close_to_others()  # before the submission starts, which runs as the same user
        pipe = _open_pipe(environment.result_fd)
        if mode == "info":
            return describe_device(pipe, case_file, environment)
        return judge_submission(mode, case_file, pipe, environment, started)
    except SetupError as error:
        print(f"eval.py: {error}", file=sys.stderr)
        return error.end
    except PipeLost as error:
        print(f"eval.py: the results cannot be written any more: {error}", file=sys.stderr)
        return Exit.NO_PIPE
    finally:
        isolation.kill_children()  # what a submission started and detached from its session


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main(sys.argv[1:]))
