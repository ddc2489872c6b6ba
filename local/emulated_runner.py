"""A runner on a stand-in for CUDA, whose kernels are emulated."""

import dataclasses
from typing import Any

import torch

from buffers import output_name
from messages import Call, Called, Done, Load
from runner import Runner


class EmulatedRunner(Runner):
    """Reports of emulated launches come with each call."""

    _emulation: Any = None
    expected_device = "cuda"

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the stand-in on the same memory."""
        adopted: torch.Tensor = self._emulation.adopt(tensor)
        return adopted

    def host_view(self, output: torch.Tensor) -> torch.Tensor:
        """Raises the finding on which the contents depend."""
        seen: torch.Tensor = self._emulation.output(output)
        return seen

    def _load(self, request: Load, fd: int | None) -> Done:
        if self._emulation is None:
            from nvfp4 import emulation

            self._emulation = emulation.install_stand_in(
                self._submission, request.arch, request.check, request.orders, request.keep
            )
        return super()._load(request, fd)

    def _call(self, request: Call, fd: int | None) -> Called:
        self._emulation.begin_call("x".join(map(str, self.shape)))
        for name, tensor in self.buffers.tensors.items():
            if name != output_name:
                # Launches may write c alone.
                self._emulation.register(
                    name, tensor.data_ptr(), tensor.numel(), writable=name == "c"
                )
        answer = super()._call(request, fd)
        reports = [each.to_dict() for each in self._emulation.launches]
        return dataclasses.replace(answer, launches=reports)
