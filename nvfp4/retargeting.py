"""Where capture and retarget meet: code for another GPU runs on the one that is here.

translator = Translator("sm_90a")
with retargeting.install(translator, "sm_100a"):  # CuTe DSL and Triton run unchanged in here
    ...
    print(translator.kernels())
"""

from __future__ import annotations

from contextlib import ExitStack

import torch

from nvfp4.capture.cutedsl.loading import start_loading
from nvfp4.capture.device import device_for
from nvfp4.capture.imports import when_imported
from nvfp4.retarget.translator import Translator


class Retargeting:
    """Rewrites what is compiled for `arch`. As a context manager, it uninstalls itself at the
    end."""

    def __init__(self, arch: str, translator: Translator) -> None:
        self.arch = arch
        self._translator = translator
        self._capability = device_for(arch).capability
        self._stop = ExitStack()

    def start(self) -> None:
        """Take over CuTe DSL and Triton once they are imported, and report the GPU as one of
        `arch`."""
        asked = torch.cuda.get_device_capability
        torch.cuda.get_device_capability = lambda device=None: self._capability
        self._stop.callback(setattr, torch.cuda, "get_device_capability", asked)
        # Before user code imports it, so that it compiles for `arch`.
        self._stop.callback(when_imported("cutlass", self._take_cute_dsl))
        self._stop.callback(when_imported("triton", self._take_triton))

    def _take_cute_dsl(self) -> None:
        # Its host code launches as ever, which costs nothing: only what it loads is rewritten.
        self._stop.callback(start_loading(self._translator.translate, self.arch))

    def _take_triton(self) -> None:
        from nvfp4.capture.triton.loading import start_loading as start

        self._stop.callback(start(self._translator.translate, self._translator.explain, self.arch))

    def uninstall(self) -> None:
        """Leave CuTe DSL, Triton and torch as they were."""
        self._stop.close()

    def __enter__(self) -> Retargeting:
        return self

    def __exit__(self, *error: object) -> None:
        self.uninstall()


def install(translator: Translator, arch: str = "sm_100a") -> Retargeting:
    """Run what is compiled for `arch` on this GPU from now on.

    CUDA C++ extensions are another matter: see `nvfp4.retarget.extensions`. Raises ValueError for
    an unknown architecture, and UnsupportedVersion where the installed CuTe DSL does not fit.
    """
    retargeting = Retargeting(arch, translator)
    retargeting.start()
    return retargeting
