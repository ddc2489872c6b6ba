"""Where capture and retarget meet: code for another GPU runs on the one that is here.

from nvfp4 import retargeting

with retargeting.install("sm_100a") as retargeted:  # CuTe DSL and Triton run unchanged in here
    ...
    print(retargeted.kernels())
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from nvfp4.capture.cutedsl.loading import start_loading
from nvfp4.capture.device import device_for
from nvfp4.capture.imports import when_imported
from nvfp4.records.launch import Launch
from nvfp4.retarget import target_of
from nvfp4.retarget.executor import Executor


class Retargeting:
    """Rewrites what is compiled for `arch`; a context manager that uninstalls.

    arch, target: architectures of the code and of this GPU.
    """

    def __init__(self, arch: str, target: str) -> None:
        self.arch = arch
        self.target = target
        self._executor = Executor(target)
        self._capability = device_for(arch).capability
        self._stop: list[Callable[[], None]] = []

    def start(self) -> None:
        """Takes over CuTe DSL and Triton once they are imported, and says that the GPU is one of
        `arch`."""
        asked = torch.cuda.get_device_capability
        torch.cuda.get_device_capability = lambda device=None: self._capability

        def forget() -> None:
            torch.cuda.get_device_capability = asked

        self._stop.append(forget)
        # Before user code imports it, so that it compiles for `arch`.
        self._stop.append(when_imported("cutlass", self._take_cute_dsl))
        self._stop.append(when_imported("triton", self._take_triton))

    def _take_cute_dsl(self) -> None:
        # Its host code launches as ever, which costs nothing: only what it loads is rewritten.
        self._stop.append(start_loading(self._executor.translate, self.arch))

    def _take_triton(self) -> None:
        from nvfp4.capture.triton.loading import start_loading as start

        self._stop.append(start(self._executor.translate, self._executor.explain, self.arch))

    def run(self, launch: Launch) -> None:
        """Queues a captured launch on torch's current stream, for front ends that hand over whole
        launches. Raises NotRetargetable or DriverError.
        """
        self._executor.run(launch, torch.cuda.current_stream().cuda_stream)

    def kernels(self) -> list[dict[str, Any]]:
        """What was rewritten so far; see `retarget.rewrite.RewriteReport.entries`."""
        return self._executor.kernels()

    def uninstall(self) -> None:
        """Leaves CuTe DSL, Triton and torch as they were."""
        while self._stop:
            self._stop.pop()()

    def __enter__(self) -> Retargeting:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.uninstall()


def install(arch: str = "sm_100a") -> Retargeting:
    """Run what is compiled for `arch` on this GPU from now on.

    CUDA C++ extensions are another matter: see `nvfp4.retarget.extensions`. Raises ValueError for
    an unknown architecture or a GPU before sm_80, DriverError without a driver, and
    UnsupportedVersion where the installed CuTe DSL does not fit.
    """
    target = target_of(torch.cuda.get_device_capability())
    retargeting = Retargeting(arch, str(target))
    retargeting.start()
    return retargeting
