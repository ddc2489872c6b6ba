"""Where capture and retarget meet: code for another GPU runs on the one that is here.

translator = Translator("sm_90a")
with retargeting.install(translator, "sm_100a"):  # CuTe DSL and Triton run unchanged in here
    ...
    print(translator.kernels)
"""

from contextlib import ExitStack
from typing import Any

import torch

from nvfp4.capture.cutedsl import loading as cutedsl
from nvfp4.capture.device import device_for
from nvfp4.capture.imports import when_imported
from nvfp4.retarget.driver import Driver, installed_driver
from nvfp4.retarget.rewrite import rewrite


class Translator:
    """Rewrites PTX for a device and its driver.

    kernels: an entry for each kernel rewritten so far; see `Rewritten.entries`.
    """

    def __init__(self, target: str, driver: Driver | None = None) -> None:
        """target: the architecture of the device. Raises DriverError without a driver."""
        self.driver = driver or installed_driver()
        self.kernels: list[dict[str, Any]] = []
        self._target = target

    def translate(self, ptx: str) -> str:
        """Return the rewritten PTX. Raises NotRetargetable."""
        rewritten = rewrite(ptx, self._target, self.driver.newest_ptx())
        self.kernels += [each for each in rewritten.entries() if each not in self.kernels]
        return rewritten.ptx


def install(translator: Translator, arch: str = "sm_100a") -> ExitStack:
    """Run what CuTe DSL and Triton compile for `arch` on this GPU, and report the GPU as one of
    `arch`, until the returned stack is closed.

    CUDA C++ extensions are another matter: see `nvfp4.retarget.extensions`. Raises ValueError for
    an unknown architecture, and UnsupportedVersion where the installed CuTe DSL does not fit.
    """
    capability = device_for(arch).capability
    stop = ExitStack()
    asked = torch.cuda.get_device_capability
    torch.cuda.get_device_capability = lambda device=None: capability
    stop.callback(setattr, torch.cuda, "get_device_capability", asked)

    def take_cute_dsl() -> None:
        stop.callback(cutedsl.start_loading(translator.translate, arch))

    def take_triton() -> None:
        from nvfp4.capture.triton.loading import start_loading

        stop.callback(start_loading(translator.translate, translator.driver.load, arch))

    # Before user code imports them, so that they compile for `arch`.
    stop.callback(when_imported("cutlass", take_cute_dsl))
    stop.callback(when_imported("triton", take_triton))
    return stop
