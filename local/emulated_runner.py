"""A runner on a stand-in for CUDA, whose kernels are emulated."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import torch

from buffers import SharedBuffers, output_name
from layout import layouts
from messages import Call, Called, Done, Load, OpenCase
from nvfp4.local.dimensions import dimensions
from nvfp4.local.reporting_runner import ReportingRunner
from nvfp4.local.watch_messages import WatchedCall
from timing import Flush, contest_flush


class EmulatedRunner(ReportingRunner):
    """Reports of emulated launches come with each call."""

    _emulation: Any = None
    expected_device = "cuda"

    def __init__(self, submission: Path, flush: Flush = contest_flush) -> None:
        super().__init__(submission, flush)
        self.operations[WatchedCall] = self._watched_call

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the stand-in on the same memory."""
        adopted: torch.Tensor = self._emulation.adopt(tensor)
        return adopted

    def host_view(self, output: torch.Tensor) -> torch.Tensor:
        """Raises the finding on which the contents depend."""
        seen: torch.Tensor = self._emulation.output(output)
        return seen

    def _load(self, request: Load, fd: int | None) -> Done:
        from nvfp4 import emulation

        if self._emulation is None:
            self._emulation = emulation.install_stand_in(
                self._submission,
                request.arch,
                request.check,
                request.orders,
                request.keep,
                self.name,
            )
            emulation.activity.tell(self._note)
        with emulation.activity.busy("importing"):
            return super()._load(request, fd)

    def _open_case(self, request: OpenCase, fd: int | None) -> Done:
        """As long as the tensors of the case before are there, others have other addresses: what a
        submission keeps of an address is wrong then."""
        before, self.buffers = self.buffers, SharedBuffers({})
        try:
            return super()._open_case(request, fd)
        finally:
            before.close()

    def _note(self, word: str) -> None:
        """For cli/activity.py; the submission can do as it likes with the file."""
        with contextlib.suppress(OSError):
            (self._submission.parent / "activity").write_text(word)

    def begin_call(self) -> Any:
        """Kernels may use the case's buffers; returns the emulation."""
        self._emulation.begin_call("x".join(map(str, self.shape)), self.watch.deadline)
        known = layouts(*self.shape)
        for name, tensor in self.buffers.tensors.items():
            if name != output_name:
                # Launches may write c alone.
                self._emulation.register(
                    name,
                    tensor.data_ptr(),
                    tensor.numel(),
                    writable=name == "c",
                    view=known[name].view(tensor),
                    dimensions=dimensions[name],
                )
        return self._emulation

    def _call(self, request: Call, fd: int | None) -> Called:
        emulation = self.begin_call()
        answer = super()._call(request, fd)
        emulation.end_call()
        reports = [each.to_dict() for each in emulation.launches]
        return dataclasses.replace(answer, launches=reports)

    def _watched_call(self, request: WatchedCall, fd: int | None) -> Called:
        """A call whose reports are those who wrote an element of c."""
        m, _, _ = self.shape
        c = self.buffers.tensors["c"]
        element = request.batch * m + request.row
        with self._emulation.watching(c.data_ptr() + 2 * element, 2) as watch:
            answer = self._call(Call(), fd)
        return dataclasses.replace(answer, launches=[vars(each) for each in watch.writers])
