"""The process-wide emulation: CuTe DSL's launches run on the CPU while it is installed."""

from __future__ import annotations

import sys
from types import TracebackType

from emulator.cutedsl import Launch, start
from emulator.engine.launch import launch
from emulator.engine.memory import Buffer
from emulator.engine.module import load_module
from emulator.errors import UnsupportedInstruction
from emulator.report import LaunchReport


class Emulation:
    """Runs intercepted launches and keeps their reports; a context manager that uninstalls.

    launches: one LaunchReport a launch, in order.
    check, sample_ctas: as of emulator.run_ptx; they may be changed between launches.
    """

    def __init__(self, arch: str, check: bool, sample_ctas: int | None):
        self.arch = arch
        self.check = check
        self.sample_ctas = sample_ctas
        self.launches: list[LaunchReport] = []
        self._buffers: dict[int, Buffer] = {}
        self._stop = start(self._run, arch)
        self._installed = True

    def register(self, name: str, address: int, nbytes: int, writable: bool = True) -> None:
        """Memory that kernels may touch and that is no torch tensor; `name` is for messages."""
        self._buffers[address] = Buffer(name, address, nbytes, writable)

    def clear(self) -> None:
        """Forget the reports and the registered memory."""
        self.launches.clear()
        self._buffers.clear()

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

    def _run(self, asked: Launch) -> None:
        if asked.cluster != (1, 1, 1):
            raise UnsupportedInstruction(
                f"{asked.kernel} is launched in clusters of {asked.cluster} CTAs",
                hint="only clusters of one CTA are emulated",
            )
        report = launch(
            load_module(asked.ptx),
            asked.kernel,
            asked.grid,
            asked.block,
            asked.parameters,
            asked.shared_bytes,
            list(self._buffers.values()),
            self.check,
            self.sample_ctas,
        )
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
