"""Where capture and emulator meet: CuTe DSL's launches run on the CPU while this is installed.

from nvfp4 import emulation

with emulation.install() as emulated:  # CuTe DSL code runs unchanged in here
    ...
    print(emulated.launches[-1].to_dict())
"""

from __future__ import annotations

import sys
from types import TracebackType

from nvfp4 import emulator
from nvfp4.capture.cutedsl import start
from nvfp4.capture.launch import Buffer, Launch
from nvfp4.capture.torch_memory import ProcessMemory
from nvfp4.emulator import LaunchReport


class Emulation:
    """Runs captured launches and keeps their reports; a context manager that uninstalls.

    launches: one LaunchReport a launch, in order.
    check, sample_ctas: as of `emulator.run`; they may be changed between launches.
    """

    def __init__(self, arch: str, check: bool, sample_ctas: int | None) -> None:
        self.arch = arch
        self.check = check
        self.sample_ctas = sample_ctas
        self.launches: list[LaunchReport] = []
        self._memory = ProcessMemory()
        self._stop = start(self._run, arch, self._memory)
        self._installed = True

    def register(self, name: str, address: int, nbytes: int, writable: bool = True) -> None:
        """Memory other than torch tensors that kernels may touch; `name` is for messages."""
        self._memory.register(Buffer(name, address, nbytes, writable))

    def clear(self) -> None:
        """Forget the reports and the registered memory."""
        self.launches.clear()
        self._memory.clear()

    def uninstall(self) -> None:
        """Leave CuTe DSL as it was."""
        if self._installed:
            self._installed = False
            self._stop()

    def __enter__(self) -> Emulation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.uninstall()

    def _run(self, launch: Launch) -> None:
        report = emulator.run(launch, self.check, self.sample_ctas)
        self.launches.append(report)
        if report.output:
            sys.stdout.write(report.output)


def install(arch: str = "sm_100a", check: bool = True, sample_ctas: int | None = None) -> Emulation:
    """Run every CuTe DSL launch of this process on the CPU from now on.

    To be called before the code that compiles kernels is imported, so that it compiles for
    `arch`. Faults of a kernel are raised where the compiled function was called.
    Raises ValueError for an unknown architecture, RuntimeError if an emulation is installed
    already, ImportError without CuTe DSL.
    """
    return Emulation(arch, check, sample_ctas)
