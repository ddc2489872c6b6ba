"""The worker's side of the judge's own clock: calls queued behind the gate, on many sets of
buffers."""

from collections.abc import Callable
from typing import Any

import torch

from nvfp4.contract.tree import tensors_of
from nvfp4.gpu.buffers import SharedBuffers, in_sets, of_sets, open_buffers, sizes_of
from nvfp4.gpu.device_memory import WaitingSide
from nvfp4.records import messages
from nvfp4.worker.outputs import Refused
from nvfp4.worker.runner import Runner

# A reference of our own: a submission may replace the attributes of torch.
_copy_all = torch._foreach_copy_


class GatedCalls:
    """The operations that ``judge.clock.gated_clock`` asks for, on a runner's submission."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._sets: list[SharedBuffers] = []
        self._outputs: list[torch.Tensor] = []
        self._gate: WaitingSide | None = None
        self._nothing = torch.zeros(2, 1, dtype=torch.float16, device=runner.device)
        self._open_case = runner.operations[messages.OpenCase]
        self.operations: dict[type, Callable[[Any, int | None], object]] = {
            messages.OpenCase: self._open_other_case,
            messages.OpenGate: self._open_gate,
            messages.OpenSets: self._open_sets,
            messages.QueueCalls: self._queue,
            messages.AwaitQueue: lambda request, fd: runner.settle(),
            messages.CloseQueue: self._close,
        }

    def _open_other_case(self, request: messages.OpenCase, fd: int | None) -> object:
        self._close(messages.CloseQueue(), None)
        return self._open_case(request, fd)

    def _open_gate(self, request: messages.OpenGate, fd: int | None) -> None:
        assert fd is not None, "a descriptor comes with it"
        self._gate = WaitingSide(fd, self._runner.device)
        self._copy_all([], [])  # a kernel cannot be loaded while the device waits

    def _open_sets(self, request: messages.OpenSets, fd: int | None) -> None:
        runner = self._runner
        if fd is None:
            self._sets = [runner.buffers]
        else:
            sizes = sizes_of(runner.inputs, runner.room_bytes)
            whole = open_buffers(of_sets(sizes, request.count), runner.device, fd)
            self._sets = in_sets(whole, request.count)

    def _queue(self, request: messages.QueueCalls, fd: int | None) -> None:
        """Queue behind the gate one call on each set, and the copy of its output to the judge."""
        assert self._gate, "OpenGate comes first"
        runner = self._runner
        data = [runner.data(buffers) for buffers in self._sets]
        targets = [target for buffers in self._sets for target in runner.targets(buffers)]
        self._gate.wait()
        for inputs in data:
            output = runner.kernel(inputs)
            if runner.accepted(output) != runner.output:
                message = "custom_kernel returned another dtype than in the call before"
                raise Refused("contract.other_dtype", message)
            # Not freed, on whatever stream, before it is copied.
            self._outputs += tensors_of(output)
        if request.wait:  # as a host does that waits for the device in a call
            runner.settle()
        self._copy_all(targets, self._outputs)
        if request.wait:
            runner.settle()

    def _copy_all(self, targets: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """Copy the outputs and a dummy, so that an empty queue costs the same as others."""
        _copy_all([*targets, self._nothing[0]], [*outputs, self._nothing[1]])

    def _close(self, request: messages.CloseQueue, fd: int | None) -> None:
        self._sets, self._outputs = [], []
