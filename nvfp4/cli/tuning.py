"""Runs the tuner in a process of its own, because it imports torch and the submission."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nvfp4.cli.problem import Problem, package_path, shape_of


def tune(
    problem: Problem,
    submission: Path,
    shapes: Sequence[tuple[int, int, int]],
    device: str,
    calls: int,
    write: bool,
    model: str | None = None,
) -> int:
    """The tuner's exit code: 0 ranked, 1 no right configuration for a shape, 2 it could not start.

    shapes: (m, k, l); the benchmarks' if there are none. device: auto, cuda or cuda:N. model: the
    GPU to predict for instead of timing on one. The tuner shares this process's output. Raises
    SetupError.
    """
    wanted = [",".join(map(str, shape)) for shape in shapes] or [
        ",".join(size for _, size in shape_of(each).sizes) for each in problem.benchmarks
    ]
    command = [
        sys.executable,
        "-m",
        "nvfp4.tuner.tune",
        str(submission.resolve()),
        "--calls",
        str(calls),
    ]
    for shape in wanted:
        command += ["--shape", shape]
    if write:
        command.append("--write")
    if model is not None:
        command += ["--model", model]
    process = subprocess.Popen(command, cwd="/", env=_environment(device), stdin=subprocess.DEVNULL)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the tuner was interrupted as well; it exits


def _environment(device: str) -> dict[str, str]:
    """This process's, with the package importable and one device visible."""
    environment = {**os.environ, **package_path()}
    number = device.partition(":")[2]
    if number:
        environment["CUDA_VISIBLE_DEVICES"] = number
    return environment
