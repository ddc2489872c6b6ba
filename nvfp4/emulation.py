"""Where capture and emulator meet in one process: the launches of code that is trusted.

from nvfp4 import emulation

with emulation.install() as emulated:  # CuTe DSL code runs unchanged in here
    ...
    print(emulated.launches[-1].to_dict())
"""

import gc
import itertools
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import torch

from nvfp4 import emulator
from nvfp4.capture import activity, host_access, standin, stream_order
from nvfp4.capture.imports import when_imported
from nvfp4.capture.interception import Interception
from nvfp4.capture.standin.memory import byte_runs
from nvfp4.emulator.errors import EmulatorError
from nvfp4.emulator.state.memory import contents
from nvfp4.records.launch import Buffer, Launch, ListedMemory
from nvfp4.records.source import show_as


class Emulation(Interception, AbstractContextManager["Emulation"]):
    """Runs captured launches and keeps their reports; a context manager that uninstalls.

    launches: a LaunchReport for each launch, in order. costs: of launches since `count_by_line`.
    """

    def __init__(self, arch: str, check: bool) -> None:
        super().__init__(arch)
        self._variable, self._examine = emulator.variable, emulator.examine
        self.launches: list[emulator.LaunchReport] = []
        self.costs: list[emulator.KernelCost] = []
        self._check = check
        self._searched: list[int] = []
        self._most_instructions: int | None = None
        self._worlds: emulator.Worlds | None = None
        self._under_way = emulator.UnderWay()
        self._deadline: float | None = None

    def __exit__(self, *error: object) -> None:
        self.uninstall()

    @activity.busy("emulating")
    def _run(self, launch: Launch) -> None:
        # What is new since the last search is young unless the garbage collector has run.
        collections = [each["collections"] for each in gc.get_stats()]
        young = collections == self._searched
        search = itertools.islice(launch.memory.search(), 1 if young else None)
        *_, known = launch.memory.known(), *search
        self._searched = collections
        asked = replace(launch, memory=ListedMemory(known, launch.memory.freed()))
        if launch.trial:
            emulator.run(asked, check=False)
            return
        if self._most_instructions is not None:
            asked = replace(asked, samples=True)
            self.costs.append(emulator.cost_of(asked, self._most_instructions))
            return
        asked = replace(asked, deadline=self._deadline)
        try:
            report = emulator.run(asked, self._check, self._worlds, self._under_way)
        except EmulatorError as error:
            sys.stdout.write(error.output)
            raise
        self.launches.append(report)
        if report.output:
            sys.stdout.write(report.output)

    def begin_call(self, deadline: float | None = None) -> None:
        """Forget the reports of the previous call.

        From now on the results of a launch may depend on the order of its threads, unless torch's
        operators or `output` read them. deadline: when to give up a kernel that still runs, on the
        monotonic clock.
        """
        self.launches.clear()
        stream_order.begin()
        self._deadline = deadline
        if self._worlds is None:
            self._worlds = emulator.Worlds()
        # What the submission has kept may be used in this call.
        self._worlds.forget_all_but(self._memory.known())

    def count_by_line(self, most_instructions: int | None) -> None:
        """Let each later launch leave its cost in `costs` instead of a report.

        most_instructions: warp instructions after which a launch ends; None to leave reports again.
        """
        self.costs.clear()
        self._most_instructions = most_instructions

    def output(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a CPU tensor on the memory of an output of the stand-in. Raises the finding that
        its contents depend on, if any."""
        seen = standin.host_view(tensor)
        for run in byte_runs(seen):
            self.refuse_what_differs(*run)
        return seen

    def refuse_what_differs(self, address: int, nbytes: int) -> None:
        """Raise the finding that makes the contents of this memory uncertain, if there is one."""
        if self._worlds:
            span = Buffer("", address, nbytes)
            cause = self._worlds.cause_of(span, lambda: contents(span).copy())
            if cause is not None:
                raise cause


class _Differences(host_access.Owner):
    """Owner of host memory that may hold results which depend on the order of launches."""

    def __init__(self, emulation: Emulation) -> None:
        self.reads = emulation.refuse_what_differs  # type: ignore[method-assign]


def install(arch: str = "sm_100a", check: bool = True) -> Emulation:
    """Run every launch of CuTe DSL and Triton in this process on the CPU from now on.

    To be called before the code that compiles kernels is imported, so that it compiles for
    `arch`. Faults of a kernel are raised where the compiled function was called.
    Raises ValueError for an unknown architecture, RuntimeError if an emulation is installed
    already, ImportError without CuTe DSL.
    """
    emulation = Emulation(arch, check)
    emulation.capture_cute_dsl()
    emulation._stop.callback(when_imported("triton", emulation.capture_triton))
    return emulation


def install_stand_in(
    submission: Path | None = None, arch: str = "sm_100a", check: bool = True
) -> Emulation:
    """`install`, and a stand-in for a CUDA device for torch, whose tensors say that they are CUDA.

    submission: the file that messages call by its name alone. Without CuTe DSL there is only the
    device. Raises RuntimeError where there is a real one.
    """
    emulation = Emulation(arch, check)
    if submission:
        show_as(str(submission), submission.name)
    emulation.stand_in(_Differences(emulation))
    return emulation
