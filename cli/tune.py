"""Runs the tuner: a process of its own, since it needs torch and the submission in it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nvfp4.cli.problem import Problem, Shape, shape_of

_tuner = Path("tuner", "tune.py")


class NoTuner(Exception):
    """The tuner is not where it belongs."""


def tune(
    problem: Problem,
    submission: Path,
    shapes: Sequence[tuple[int, int, int]],
    device: str,
    calls: int,
    state: Path | None,
    write: bool,
) -> int:
    """The tuner's exit code: 0 ranked, 1 nothing right to rank, 2 it could not begin.

    shapes: (m, k, l); the benchmarks' where there are none. device: auto, cuda or cuda:N. What it
    prints appears as it is printed. Raises NoTuner.
    """
    script = problem.folder / _tuner
    if not script.is_file():
        raise NoTuner(f"there is no {script}")
    wanted = [Shape(*shape) for shape in shapes] or [shape_of(each) for each in problem.benchmarks]
    command = [sys.executable, str(script), str(submission), "--calls", str(calls)]
    for shape in wanted:
        command += ["--shape", f"{shape.m},{shape.k},{shape.l}"]
    if state is not None:
        command += ["--state", str(state)]
    if write:
        command.append("--write")
    process = subprocess.Popen(command, env=_environment(device), stdin=subprocess.DEVNULL)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # it was interrupted too: it saves its state and ends


def _environment(device: str) -> dict[str, str]:
    number = device.partition(":")[2]
    return {**os.environ, "CUDA_VISIBLE_DEVICES": number} if number else dict(os.environ)
