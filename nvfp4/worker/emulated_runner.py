"""A runner on a stand-in for CUDA, whose kernels are emulated."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import torch

from nvfp4.contract.dimensions import dimensions
from nvfp4.contract.layout import layouts
from nvfp4.records.messages import Call, Called, Done, Load, OpenCase
from nvfp4.records.options import Options
from nvfp4.records.watch_messages import WatchedCall
from nvfp4.shared_memory.buffers import SharedBuffers, output_name
from nvfp4.worker.reporting_runner import ReportingRunner


class EmulatedRunner(ReportingRunner):
    """Reports of emulated launches come with each call."""

    _emulation: Any = None
    expected_device = "cuda"

    def __init__(self, submission: Path, options: Options) -> None:
        super().__init__(submission, options)
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
                self.options.arch,
                self.options.check,
                self.options.orders,
                bool(self.options.keep),
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
        """For nvfp4/cli/activity.py; the submission can do as it likes with the file."""
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
