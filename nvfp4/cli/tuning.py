"""Runs the tuner in a process of its own, because it imports torch and the submission."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nvfp4.cli.errors import SetupError, interrupted
from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.problem import load_problem, package_path

_begin = """
import signal, sys
from nvfp4.sandbox.isolation import die_with_parent
signal.signal(signal.SIGINT, signal.SIG_DFL)
die_with_parent()
from nvfp4.tuner.tune import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
"""Program of the tuner's process. Its modules take seconds to import: before that it is bound to
this command, and Ctrl-C ends it without a traceback."""


def tune(submission: Path, cases: Sequence[str], device: str, model: str | None) -> int:
    """Return the tuner's exit code: 0 ranked, 1 no right configuration for a case, 2 it could not
    start.

    cases: as the user names them; the benchmarks if there are none. device: auto, cuda or cuda:N.
    model: the GPU to predict for instead of timing on one. The tuner shares this process's output.
    Raises SetupError.
    """
    if device in ("cpu", "emulate") and not model:
        raise SetupError("only a GPU can say what is fast", "Predict with --model B200.")
    read_submission(submission)
    problem = load_problem()
    lines = problem.chosen(cases, problem.benchmarks)
    command = [sys.executable, "-c", _begin, str(submission.resolve())]
    command += ["--model", model, *lines] if model else lines
    environment = {**os.environ, **package_path()}
    if number := device.partition(":")[2]:
        environment["CUDA_VISIBLE_DEVICES"] = number
    # In a session of its own, so that Ctrl-C reaches it once, from this process.
    process = subprocess.Popen(
        command, cwd="/", env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        return interrupted()
