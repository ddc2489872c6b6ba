"""Where capture and emulator meet: CuTe DSL's and Triton's launches run on the CPU.

from nvfp4 import emulation

with emulation.install() as emulated:  # CuTe DSL code runs unchanged in here
    ...
    print(emulated.launches[-1].to_dict())
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from nvfp4 import emulator
from nvfp4.capture import activity, cuda, cutedsl, graphs, host_access, standin, stream_order
from nvfp4.capture.imports import when_imported
from nvfp4.capture.recording import Recorder
from nvfp4.capture.torch_memory import ProcessMemory
from nvfp4.emulator import DEFAULT_ORDERS, KernelCost, LaunchReport, UnderWay, Worlds
from nvfp4.emulator.cost import merged
from nvfp4.emulator.errors import EmulatorError
from nvfp4.emulator.names import short_name
from nvfp4.emulator.rendering import annotated_ptx, keep_listing, ptx_with_fault
from nvfp4.emulator.report import noted
from nvfp4.emulator.source import show_as
from nvfp4.records.launch import Buffer, Launch, Note, View
from nvfp4.records.launch_errors import tell_refusals

LISTINGS = "kept"
"""Where a submission's process leaves listings for the judge."""


class Emulation:
    """Runs captured launches and keeps their reports; a context manager that uninstalls.

    launches: one LaunchReport a launch, in order.
    check, orders: as of `emulator.run`; they may be changed between launches.
    """

    def __init__(
        self,
        arch: str,
        check: bool,
        orders: int,
    ) -> None:
        self.arch = arch
        self.check = check
        self.orders = orders
        self.launches: list[LaunchReport] = []
        self._memory = ProcessMemory()
        self._worlds: Worlds | None = None
        self._under_way = UnderWay()
        self._deadline: float | None = None
        self._stop = ExitStack()

    def capture_cute_dsl(self) -> None:
        """Take CuTe DSL's launches from now on."""
        self._stop.callback(cutedsl.start(self._take, self.arch, self._memory, emulator.examine))

    def capture_cuda(self) -> None:
        """Take the launches of CUDA C++ extensions from now on."""
        self._stop.callback(
            cuda.start(self._take, self._variable, self.arch, self._memory, emulator.examine)
        )

    def capture_triton(self) -> None:
        """Take Triton's launches from now on."""
        from nvfp4.capture import triton

        self._stop.callback(triton.start(self._take, self.arch, self._memory))

    def _variable(self, ptx: str, name: str) -> Buffer:
        return emulator.variable(ptx, name)

    def register(
        self,
        name: str,
        address: int,
        nbytes: int,
        writable: bool = True,
        view: torch.Tensor | None = None,
        dimensions: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Memory other than torch tensors that kernels may touch. For messages: its name, the
        tensor that it holds, and by dimension what an index counts and how the extent is called.
        """
        seen = None
        if view is not None:
            strides = tuple(each * view.element_size() for each in view.stride())
            seen = View(tuple(view.shape), strides, 0, dimensions)
        self._memory.register(Buffer(name, address, nbytes, writable, seen))

    def watching(self, address: int, nbytes: int) -> AbstractContextManager[emulator.Watch]:
        """Have launches note who writes these bytes."""
        return emulator.watching(address, nbytes)

    def clear(self) -> None:
        """Forget the reports and the registered memory."""
        self.launches.clear()
        self._memory.clear()

    def uninstall(self) -> None:
        """Leave CuTe DSL, Triton, and torch where a stand-in was installed, as they were."""
        self._stop.close()

    def __enter__(self) -> Emulation:
        return self

    def __exit__(self, *error: object) -> None:
        self.uninstall()

    def _take(self, launch: Launch) -> None:
        overlaps = launch.programmatic and stream_order.follows_a_kernel(launch.stream)
        if overlaps != launch.programmatic:
            launch = replace(launch, programmatic=overlaps)
        if not launch.trial and not graphs.capturing():
            stream_order.launched(launch.stream, launch.kernel)
        graphs.do(partial(self._run, launch))

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
    """The same on a stand-in for a CUDA device: torch's tensors say that they are CUDA."""

    def __init__(
        self,
        arch: str,
        check: bool,
        orders: int,
        submission: Path | None,
        keep: bool,
        name: str = "",
    ) -> None:
        super().__init__(arch, check, orders)
        self.costs: list[KernelCost] = []
        self._most_instructions: int | None = None
        self._look: Callable[[Launch], None] | None = None
        self._recorder: Recorder | None = None
        self._kept_recorder: Recorder | None = None
        self._listings = submission.parent / LISTINGS if submission and keep else None
        self._call = ""
        if submission:
            show_as(str(submission), name or submission.name)
        self._stop.callback(standin.install(arch, self._before_reading).uninstall)
        # Importing CuTe DSL takes a second, which a submission in plain torch need not spend.
        self._stop.callback(when_imported("cutlass", self.capture_cute_dsl))
        self._stop.callback(when_imported("triton", self.capture_triton))
        self.capture_cuda()

    def tell_refusals(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a sentence whenever something is refused that a GPU does."""
        tell_refusals(listener)
        self._stop.callback(tell_refusals, None)

    def begin_call(self, name: str, deadline: float | None = None) -> None:
        """Forget the reports of the call before.

        From now on a launch may write something else in another order, as long as neither torch's
        operators nor `output` read it. name: a folder for the listings of this call's launches.
        deadline: when a kernel that still runs is given up, on the monotonic clock.
        """
        self.clear()
        stream_order.begin()
        self._deadline = deadline
        self._call = name
        if self._worlds is None:
            self._worlds = Worlds()
        # What the submission has kept may be used in this call.
        self._worlds.forget_all_but(self._memory.known())

    @contextmanager
    def recording(self, outbox: mmap.mmap | None) -> Iterator[Recorder]:
        """Launches of the with block are taken down and do not run. outbox: a new one, or None to
        go on with the one before.
        """
        if outbox is not None:
            self._kept_recorder = Recorder(outbox, cuda.RUNTIME)
        assert self._kept_recorder, "the first call brings an outbox"
        self._recorder = recorder = self._kept_recorder
        host_access.observe(recorder)
        try:
            yield recorder
        finally:
            self._recorder = None
            host_access.observe(None)

    def count_by_line(
        self, most_instructions: int | None, look: Callable[[Launch], None] | None = None
    ) -> None:
        """From now on a launch leaves its cost in `costs` and no report. It runs only until so
        many warp instructions are executed. None: no longer. look: is given each launch that has
        run.
        """
        self.costs.clear()
        self._most_instructions = most_instructions
        self._look = look

    def costs_by_kernel(self) -> list[KernelCost]:
        """The costs since `count_by_line`, those of several launches of a kernel added up."""
        return merged(self.costs)

    def end_call(self) -> None:
        """Say of launches that nothing joins to the current stream that they may still run."""
        for each in stream_order.unjoined(torch.cuda.current_stream().cuda_stream):
            note = Note(
                "unjoined_stream",
                f"{short_name(each.kernel)} runs in a stream that the current one does not wait "
                "for: on a GPU it may still run when custom_kernel's work seems to have ended",
                hint="let the current stream wait for it: torch.cuda.current_stream().wait_stream",
                file=each.file,
                line=each.line,
            )
            if self._recorder is not None:
                self._recorder.add_note(each.kernel, note)
            elif self.launches:
                those = [r for r in self.launches if r.kernel == each.kernel] or self.launches
                those[-1].findings.append(noted(note, those[-1].kernel))

    def output(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor on the memory of what the call returns. Raises the finding on which its
        contents depend."""
        seen = self.host_view(tensor)
        self._refuse_what_differs(seen)
        return seen

    def _variable(self, ptx: str, name: str) -> Buffer:
        found = super()._variable(ptx, name)
        if self._recorder is not None:
            self._recorder.found_variable(ptx, name, found)
        return found

    def _before_reading(self, tensor: torch.Tensor) -> None:
        """What torch's operators may raise before they read a CPU tensor."""
        if self._recorder is not None:
            for address, nbytes in standin.byte_runs(tensor):
                self._recorder.reads(address, nbytes)
        self._refuse_what_differs(tensor)

    def _refuse_what_differs(self, tensor: torch.Tensor) -> None:
        """Raise the finding on which the contents of a CPU tensor depend."""
        if not self._worlds:
            return
        storage = tensor.untyped_storage()
        span = Buffer("", storage.data_ptr(), storage.nbytes())
        cause = self._worlds.cause_of(
            span, lambda: tensor.contiguous().flatten().view(torch.uint8).numpy().copy()
        )
        if cause is not None:
            raise cause

    def _run(self, launch: Launch) -> None:
        if self._recorder is not None:
            self._recorder.launch(launch)
            return
        if self._most_instructions is not None and not launch.trial:
            self.costs.append(emulator.cost_of(launch, self._most_instructions))
            if self._look is not None:
                self._look(launch)
            return
        number = len(self.launches) + 1
        try:
            super()._run(launch)
        except EmulatorError as error:
            self._keep(number, launch.kernel, ptx_with_fault(launch.ptx, error))
            raise
        if self._listings is not None and not launch.trial:
            self._keep(number, launch.kernel, annotated_ptx(self.launches[-1]))

    def _keep(self, number: int, kernel: str, listing: str) -> None:
        if self._listings is not None:
            keep_listing(self._listings / self._call, number, kernel, listing)

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CUDA tensor on the memory of a CPU tensor."""
        return standin.adopt(tensor)

    def host_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor on the memory of a CUDA tensor."""
        return standin.host_view(tensor)


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
    keep: bool = False,
    name: str = "",
) -> StandInEmulation:
    """`install`, and a CUDA device for torch, as code written for a GPU expects it.

    submission: the file that messages call by its name alone, or by `name` if given. keep: write
    the PTX of each launch, with counts or the fault beside the lines, to the folder LISTINGS beside
    the submission. Without CuTe DSL there is only the device. Raises RuntimeError where there is a
    real one.
    """
    return StandInEmulation(arch, check, orders, submission, keep, name)
