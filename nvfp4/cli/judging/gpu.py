"""Whether there is a GPU to judge on."""

import os
import subprocess
import sys
from pathlib import Path

from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.info import inspect
from nvfp4.cli.problem import load_problem

_drivers = ("/dev/nvidiactl", "/dev/dxg")
"""Of Linux, and of Linux under Windows."""


def has_gpu(device: str) -> bool:
    """Whether submissions are judged on a GPU. device: auto, cpu, emulate, cuda or cuda:N.

    Asks the judge, which loads torch, only where there is a driver. Raises SetupError.
    """
    if device in ("cpu", "emulate"):
        return False
    if device == "auto" and not any(Path(driver).exists() for driver in _drivers):
        return False
    return inspect(load_problem(), device).device.kind == "cuda"


def visible_gpus() -> list[str]:
    """The GPUs that torch sees, each as CUDA_VISIBLE_DEVICES names it. Raises SetupError."""
    if not any(Path(driver).exists() for driver in _drivers):
        return []
    command = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason is known"]
        raise SetupError(f"torch cannot count the GPUs: {reason[0]}", "Is torch installed here?")
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = int(done.stdout)
    names = map(str, range(count)) if chosen is None else chosen.split(",")
    return list(names)[:count]
