"""Whether there is a GPU to judge on."""

from pathlib import Path

from nvfp4.cli.info import inspect
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
