"""Runs a submission on a stand-in for CUDA, whose kernels run in the executor."""

import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nvfp4.capture import activity, standin, stream_order
from nvfp4.capture.cuda.runtime import RUNTIME
from nvfp4.capture.emulated_gpu import AddressSpace, EmulatedGpu, ExecutorLink, Link
from nvfp4.capture.interception import Interception, unordered_notes
from nvfp4.contract.tree import Tree, outermost_first, places
from nvfp4.gpu.buffers import SharedBuffers, buffers_in, mapped_bytes, sizes_of
from nvfp4.records import messages
from nvfp4.records.files import overwrite
from nvfp4.records.gpu_messages import window_bytes
from nvfp4.records.launch import Buffer, Launch, View
from nvfp4.records.launch_errors import UnsupportedCall, tell_refusals
from nvfp4.records.options import Options
from nvfp4.records.ranges import taken_ranges
from nvfp4.records.source import show_as
from nvfp4.worker.runner import Runner

_permute = torch.Tensor.permute  # a submission may replace the attributes of torch


class ForwardedLaunches(Interception):
    """Sends every launch of this process to the executor, and gives torch a CUDA device."""

    def __init__(self, link: Link, submission: Path, options: Options) -> None:
        super().__init__(options.arch)
        show_as(str(submission), options.name or submission.name)
        self.gpu = EmulatedGpu(link, RUNTIME, str(submission))
        self._variable, self._examine = self.gpu.variable, self.gpu.examine
        self.stand_in(self.gpu)

    @activity.busy("emulating")
    def _run(self, launch: Launch) -> None:
        self.gpu.launch(launch)

    def begin_call(self, inputs: Tree, tensors: dict[str, torch.Tensor]) -> None:
        """Prepare for a call whose kernels may use the case's buffers. tensors: flat storages by
        name."""
        self._memory.clear()
        stream_order.begin()
        self.gpu.begin_call()
        for leaf in inputs.first_leaves:
            flat = tensors.get(leaf.path)
            if flat is None:  # it lies in the host's memory
                continue
            strides = tuple(each * leaf.itemsize for each in leaf.strides)
            words = tuple((one, other) for one, other in leaf.dimensions)
            seen = View(tuple(leaf.shape), strides, leaf.offset * leaf.itemsize, words)
            self._memory.register(Buffer(leaf.path, flat.data_ptr(), flat.numel(), True, seen))

    def end_call(self) -> None:
        """Note the launches that nothing orders with the current stream."""
        for kernel, note in unordered_notes(torch.cuda.current_stream().cuda_stream):
            self.gpu.add_note(kernel, note)


class NoLink:
    """The link of a submission that runs outside a judgement, where no kernel is judged."""

    window = np.zeros(window_bytes, np.uint8)

    def ask(self, request: object, fd: int | None = None) -> Any:
        """Raise UnsupportedCall: this process has no emulated GPU."""
        raise UnsupportedCall("kernels run in a judgement only, where there is no GPU")


class EmulatedRunner(Runner):
    """Runs calls whose launches and tensor contents are in the executor."""

    launches: ForwardedLaunches
    emulates = True
    expected_device = "cuda"

    def __init__(self, submission: Path, options: Options) -> None:
        super().__init__(submission, options)
        self._cases: dict[int, tuple[AddressSpace, Any]] = {}
        self.watch.watch_crashes()
        self.operations[messages.Connect] = self._connect

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the stand-in on the same memory."""
        return standin.adopt(tensor)

    def _connect(self, request: messages.Connect, fd: int | None) -> messages.Connected:
        assert fd is not None
        self._socket = socket.socket(fileno=fd)
        return messages.Connected(taken_ranges())

    def _load(self, request: messages.Load, fd: int | None) -> None:
        self.launches = ForwardedLaunches(self.link(), self._submission, self.options)
        activity.tell(self._note)
        tell_refusals(self.state.refused)
        with activity.busy("importing"):
            super()._load(request, fd)

    def link(self) -> Link:
        """Return the link to the executor, which runs the kernels."""
        return ExecutorLink(self._socket)

    def _open_case(self, request: messages.OpenCase, fd: int | None) -> messages.CaseOpened:
        """Open a case in its own address space. No address is used for two cases, so that a pointer
        that a submission keeps is wrong for other cases; a reopened case has its old addresses."""
        self._plan(request)
        opened = self._cases.pop(request.number, None)
        if opened is None:
            sizes = sizes_of(self.inputs, self.room_bytes)
            space = AddressSpace(mapped_bytes(sizes))
            opened = space, buffers_in(space.mapping, sizes)
        self._cases[request.number] = opened
        self.buffers = opened[1]
        self.launches.gpu.spaces = [space for space, _ in self._cases.values()]
        return messages.CaseOpened(opened[0].address)

    def _note(self, word: str) -> None:
        """Write the activity for nvfp4/cli/judging/bot.py; the submission can change the file."""
        self.state.busy(word)
        overwrite(self._submission.parent / "activity", word)

    def data(self, buffers: SharedBuffers) -> Any:
        """Return the inputs of custom_kernel and begin a call of the emulation."""
        self.launches.begin_call(self.inputs, buffers.tensors)
        return super().data(buffers)

    def _call(self, request: messages.Call, fd: int | None) -> messages.Called:
        answer = super()._call(request, fd)
        self.launches.end_call()
        return answer

    def _hand_over(self, output: Tree, tensors: list[torch.Tensor]) -> None:
        """Hand an output to the executor."""
        self.output = output
        for tensor, leaf, at in zip(tensors, self.output.leaves, places(self.output), strict=False):
            host = stream_order.waits(), stream_order.operators()
            self.launches.gpu.hand_over(_permute(tensor, outermost_first(leaf)), at, *host)
