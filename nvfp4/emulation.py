"""Where capture and emulator meet in one process: the launches of code that is trusted.

from nvfp4 import emulation

with emulation.install() as emulated:  # CuTe DSL code runs unchanged in here
    ...
    print(emulated.launches[-1].to_dict())
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from nvfp4 import emulator
from nvfp4.capture import activity, host_access, standin, stream_order
from nvfp4.capture.imports import when_imported
from nvfp4.capture.interception import Interception, unordered_notes
from nvfp4.capture.standin.memory import byte_runs
from nvfp4.emulator import DEFAULT_ORDERS, KernelCost, LaunchReport, UnderWay, Worlds
from nvfp4.emulator.errors import EmulatorError
from nvfp4.emulator.report import noted
from nvfp4.records.launch import Buffer, Launch, View
from nvfp4.records.source import show_as


class Emulation(Interception):
    """Runs captured launches and keeps their reports; a context manager that uninstalls.

    launches: one LaunchReport a launch, in order.
    check, orders: as of `emulator.run`; they may be changed between launches.
    """

    def __init__(self, arch: str, check: bool, orders: int) -> None:
        super().__init__(arch)
        self.check = check
        self.orders = orders
        self.launches: list[LaunchReport] = []
        self._worlds: Worlds | None = None
        self._under_way = UnderWay()
        self._deadline: float | None = None

    def _variable(self, ptx: str, name: str) -> Buffer:
        return emulator.variable(ptx, name)

    def _examine(self, ptx: str, kernel: str) -> None:
        emulator.examine(ptx, kernel)

    def register(
        self,
        name: str,
        address: int,
        nbytes: int,
        writable: bool = True,
        view: torch.Tensor | None = None,
        dimensions: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Let kernels touch memory other than torch tensors. For messages: name; view, the tensor
        that it holds; dimensions, for each what an index counts and the name of the extent."""
        seen = None
        if view is not None:
            strides = tuple(each * view.element_size() for each in view.stride())
            seen = View(tuple(view.shape), strides, 0, dimensions)
        self._memory.register(Buffer(name, address, nbytes, writable, seen))

    def clear(self) -> None:
        """Forget the reports and the registered memory."""
        self.launches.clear()
        self._memory.clear()

    def __enter__(self) -> Emulation:
        return self

    def __exit__(self, *error: object) -> None:
        self.uninstall()

    @activity.busy("emulating")
    def _run(self, launch: Launch) -> None:
        if launch.trial:
            emulator.run(launch, check=False)
            return
        asked = replace(launch, deadline=self._deadline)
        try:
            report = emulator.run(asked, self.check, self.orders, self._worlds, self._under_way)
        except EmulatorError as error:
            sys.stdout.write(error.output)
            raise
        self.launches.append(report)
        if report.output:
            sys.stdout.write(report.output)


class StandInEmulation(Emulation):
    """Emulation on a stand-in for a CUDA device: torch's tensors say that they are CUDA."""

    def __init__(self, arch: str, check: bool, orders: int, submission: Path | None) -> None:
        super().__init__(arch, check, orders)
        self.costs: list[KernelCost] = []
        self._most_instructions: int | None = None
        if submission:
            show_as(str(submission), submission.name)
        self._stop.callback(standin.install(arch).uninstall)
        host_access.belongs_to(_Differences(self))
        self._stop.callback(host_access.belongs_to, None)
        self.capture_python()
        self.capture_cuda()

    def begin_call(self, deadline: float | None = None) -> None:
        """Forget the reports of the call before.

        From now on a launch may write something else in another order, as long as neither torch's
        operators nor `output` read it. deadline: when a kernel that still runs is given up, on the
        monotonic clock.
        """
        self.clear()
        stream_order.begin()
        self._deadline = deadline
        if self._worlds is None:
            self._worlds = Worlds()
        # What the submission has kept may be used in this call.
        self._worlds.forget_all_but(self._memory.known())

    def count_by_line(self, most_instructions: int | None) -> None:
        """Let each later launch leave its cost in `costs` instead of a report. A launch ends after
        so many warp instructions. None: leave reports again."""
        self.costs.clear()
        self._most_instructions = most_instructions

    def end_call(self) -> None:
        """Note the launches that nothing orders with the current stream."""
        for kernel, note in unordered_notes(torch.cuda.current_stream().cuda_stream):
            those = [each for each in self.launches if each.kernel == kernel] or self.launches
            if those:
                those[-1].findings.append(noted(note, those[-1].kernel))

    def output(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor on the memory of what the call returns. Raises the finding on which its
        contents depend."""
        seen = self.host_view(tensor)
        for run in byte_runs(seen):
            self.refuse_what_differs(*run)
        return seen

    def refuse_what_differs(self, address: int, nbytes: int) -> None:
        """Raise the finding on which the contents of memory depend."""
        if self._worlds:
            span = Buffer("", address, nbytes)
            cause = self._worlds.cause_of(
                span, lambda: np.frombuffer(ctypes.string_at(address, nbytes), np.uint8)
            )
            if cause is not None:
                raise cause

    def _run(self, launch: Launch) -> None:
        if self._most_instructions is None or launch.trial:
            super()._run(launch)
            return
        self.costs.append(emulator.cost_of(replace(launch, samples=True), self._most_instructions))

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CUDA tensor on the memory of a CPU tensor."""
        return standin.adopt(tensor)

    def host_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor on the memory of a CUDA tensor."""
        return standin.host_view(tensor)


class _Differences(host_access.Owner):
    """Memory of this process, in which launches may have left what depends on their order."""

    def __init__(self, emulation: StandInEmulation) -> None:
        self.reads = emulation.refuse_what_differs  # type: ignore[method-assign]


def install(
    arch: str = "sm_100a",
    check: bool = True,
    orders: int = DEFAULT_ORDERS,
) -> Emulation:
    """Run every launch of CuTe DSL and Triton in this process on the CPU from now on.

    To be called before the code that compiles kernels is imported, so that it compiles for
    `arch`. Faults of a kernel are raised where the compiled function was called.
    Raises ValueError for an unknown architecture, RuntimeError if an emulation is installed
    already, ImportError without CuTe DSL.
    """
    emulation = Emulation(arch, check, orders)
    emulation.capture_cute_dsl()
    emulation._stop.callback(when_imported("triton", emulation.capture_triton))
    return emulation


def install_stand_in(
    submission: Path | None = None,
    arch: str = "sm_100a",
    check: bool = True,
    orders: int = DEFAULT_ORDERS,
) -> StandInEmulation:
    """`install`, and a CUDA device for torch, as code written for a GPU expects it.

    submission: the file that messages call by its name alone. Without CuTe DSL there is only the
    device. Raises RuntimeError where there is a real one.
    """
    return StandInEmulation(arch, check, orders, submission)
