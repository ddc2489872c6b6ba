"""The one way into a judge: a mode and its arguments.

    test|benchmark|leaderboard|profile CASEFILE    the bot's modes
    info CASEFILE                                  measures the device and runs no submission
    alone SCRIPT                                   a submission by itself
    build SCRIPT CAPABILITY                        its extensions alone, without a GPU
    explain INSTRUCTIONS ptx|sass|... CASEFILE TARGET    what each line costs
    compare FOLDER ROUNDS CASEFILE            files timed against each other

The current folder holds submission.py. POPCORN_FD is the pipe that takes the results, POPCORN_SEED
a secret seed; records/options.py says what else may be set.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from nvfp4.judge.protocol import Exit, PipeLost, Request, ResultPipe, SetupError, streamed_bytes
from nvfp4.records.options import Options, called_by_the_command, options_of_environment
from nvfp4.records.processes import Process
from nvfp4.sandbox import isolation
from nvfp4.sandbox.workers import start_alone

_bot_modes = ("test", "benchmark", "leaderboard", "profile")

_least_arguments = {
    **dict.fromkeys((*_bot_modes, "info", "alone"), 1),
    "build": 2,
    "explain": 3,
    "compare": 3,
}
"""The least number of arguments of each mode."""

_without_results = ("alone", "build", "explain")


def main(arguments: list[str]) -> int:
    """Runs a mode and returns how it ended, as an exit code."""
    started = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent may have let this process ignore it
    isolation.allow_many_files()
    # The judge works on one stream, and a context with one queue is made in half the time.
    # This process alone reads it: workers get `os.environ`.
    os.putenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    mode, *rest = arguments or [""]
    least = _least_arguments.get(mode)
    if least is None or len(rest) < least or (mode in _bot_modes and len(rest) > 1):
        print(f"usage: eval.py {'|'.join(_bot_modes)} CASEFILE", file=sys.stderr)
        return Exit.USAGE
    try:
        pipe = ResultPipe(os.open(os.devnull, os.O_WRONLY)) if mode in _without_results else _pipe()
        options = _options()
        request = Request(mode, rest, options, _secret_seed(), pipe, started + options.timeout_s)
        isolation.adopt_orphans()
        isolation.close_to_others()  # before the submission starts, which runs as the same user
        return _carried_out(request)
    except SetupError as error:
        print(f"eval.py: {error}", file=sys.stderr)
        return error.end
    except PipeLost as error:
        print(f"eval.py: the results cannot be written any more: {error}", file=sys.stderr)
        return Exit.NO_PIPE
    finally:
        isolation.kill_children()  # what a submission has detached


def _carried_out(request: Request) -> int:
    """Carry out a mode. Only the modules that it needs are loaded."""
    if request.mode in ("alone", "build"):
        script, *capability = request.arguments[:2]
        # Ends as the script did, with its exit code or by its signal; what it leaves is killed.
        isolation.die_with_parent()
        code = _ended(start_alone(Path(script).resolve(), request.options, *capability))
        if code < 0:
            isolation.kill_children()
            os.kill(os.getpid(), -code)
        return code
    if request.mode == "explain":
        from nvfp4.judge.line_costs import explain

        return explain(request)
    if request.mode == "compare":
        from nvfp4.judge.comparison import compare

        return compare(request)
    from nvfp4.judge.judging import judge_cases

    return judge_cases(request)


def _ended(process: Process) -> int:
    """Return the exit code of a process, or minus the signal that killed it."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.2)
        if len(isolation.descendants(os.getpid())) > isolation.processes:
            print(f"it started more than {isolation.processes} processes", file=sys.stderr)
            return 1


def _pipe() -> ResultPipe:
    text = os.environ.pop("POPCORN_FD", "")
    try:
        capacity_bytes = streamed_bytes if called_by_the_command() else ResultPipe.capacity_bytes
        return ResultPipe(int(text), capacity_bytes)
    except (ValueError, OSError, OverflowError) as error:
        message = f"POPCORN_FD={text!r} cannot be written to ({error}): use the nvfp4 command"
        raise SetupError(message, Exit.NO_PIPE) from None


def _options() -> Options:
    try:
        return options_of_environment()
    except ValueError as error:
        raise SetupError(str(error), Exit.USAGE) from None


def _secret_seed() -> int | None:
    """Return the secret seed and remove it from the environment."""
    seed = os.environ.pop("POPCORN_SEED", None)
    try:
        return int(seed) if seed else None
    except ValueError:
        raise SetupError("POPCORN_SEED must be a whole number", Exit.USAGE) from None


def _stop(number: int, frame: object) -> NoReturn:
    """Ends this process as an exception does, so that the worker and its folder are removed."""
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt that
    sys.exit(128 + number)
