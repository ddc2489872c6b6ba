"""Runs a submission for the judge: imports it, calls it, hands over bytes and timings.

It knows the shapes and contents of the inputs, and nothing of seeds, expected values or results.
"""

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from buffers import SharedBuffers, open_buffers, output_name
from channel import Message
from gate import WaitingSide
from layout import layouts
from task import input_t, output_t
from timing import CallTimer, CudaTimer, call_timer

if TYPE_CHECKING:
    from nvfp4.emulation import Emulation

CustomKernel = Callable[[input_t], output_t]

_longest_error = 4000

# References of our own: a submission may replace the attributes of torch.
_copy = torch.Tensor.copy_
_copy_all = torch._foreach_copy_


class Refused(Exception):
    """What the submission did is against the contract; the message says what."""


class Runner:
    """Answers the judge's requests about one submission."""

    def __init__(self, submission: Path) -> None:
        self._submission = submission
        self._device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self._kernel: CustomKernel | None = None
        # Before the submission is imported: it may replace what the timer is made of.
        self._timer: CallTimer = call_timer(self._device)
        self._shape = (0, 0, 0)
        self._buffers = SharedBuffers({})
        self._handles: dict[str, list[object]] = {}
        self._last_output: Any = None
        self._batch: list[SharedBuffers] = []
        self._batch_outputs: list[torch.Tensor] = []
        self._gate: WaitingSide | None = None
        self._nothing = torch.zeros(2, 1, dtype=torch.float16, device=self._device)
        self._emulation: Emulation | None = None

    def answer(self, request: Message, fd: int | None) -> Message:
        """Carries out one request. Whatever the submission raises becomes the answer."""
        operations: dict[str, Callable[[], Message]] = {
            "load": lambda: self._load(request),
            "case": lambda: self._open_case(request, fd),
            "call": self._call,
            "hand_over_again": self._hand_over_again,
            "profile": self._profile,
            "batch_open": lambda: self._open_batch(request),
            "batch_call": lambda: self._call_batch(request),
            "batch_wait": self._wait_for_batch,
            "batch_close": self._close_batch,
        }
        try:
            return operations[request["op"]]()
        except Refused as refused:
            return _failure("contract", str(refused))
        except SystemExit as stop:
            return _failure("exit", f"the submission called sys.exit({stop.code!r})")
        except BaseException as error:
            return self._explain(error)

    def _load(self, request: Message) -> Message:
        if self._device.type == "cpu" and self._emulation is None:
            self._emulation = _emulate(request["arch"], request["check"])
        spec = importlib.util.spec_from_file_location("submission", self._submission)
        if spec is None or spec.loader is None:
            raise Refused(f"{self._submission.name} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules["submission"] = module
        spec.loader.exec_module(module)
        kernel = getattr(module, "custom_kernel", None)
        if not callable(kernel):
            raise Refused(f"{self._submission.name} defines no function custom_kernel(data)")
        self._kernel = kernel
        return {}

    def _open_case(self, request: Message, fd: int | None) -> Message:
        self._buffers.close()
        self._close_batch()
        m, k, l = self._shape = request["m"], request["k"], request["l"]
        self._handles = request["handles"]
        self._buffers = open_buffers(m, k, l, self._device, self._handles, fd)
        return {}

    def _data(self, buffers: SharedBuffers) -> input_t:
        tensors = buffers.tensors
        a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = (
            layout.view(tensors[name]) for name, layout in layouts(*self._shape).items()
        )
        return a, b, sfa, sfb, sfa_permuted, sfb_permuted, c

    def _call(self) -> Message:
        assert self._kernel, "load and case come first"
        kernel, data = self._kernel, self._data(self._buffers)
        self._forget_launches()
        output, elapsed = self._timer.time(lambda: kernel(data))
        self._last_output = output
        self._hand_over(output, self._buffers)
        return {
            "call_ns": elapsed.call_ns,
            "settled_ns": elapsed.settled_ns,
            "late": elapsed.late,
            "launches": [each.to_dict() for each in self._emulation.launches]
            if self._emulation
            else [],
        }

    def _hand_over_again(self) -> Message:
        """The last output once more, now that the device has been idle for a while."""
        self._hand_over(self._last_output, self._buffers)
        return {}

    def _forget_launches(self) -> None:
        """Before a call: no launches yet, and only c may be written."""
        if self._emulation is None:
            return
        self._emulation.clear()
        for name, tensor in self._buffers.tensors.items():
            if name != output_name:
                self._emulation.register(
                    name, tensor.data_ptr(), tensor.numel(), writable=name == "c"
                )

    def _hand_over(self, output: Any, buffers: SharedBuffers) -> None:
        """Copies the bytes of an output where the judge reads them, if it is what it should be."""
        self._refuse_other_outputs(output)
        _copy(self._place(buffers), output)
        self._settle()

    def _place(self, buffers: SharedBuffers) -> torch.Tensor:
        """Where the judge reads an output: float16 [m, 1, l]."""
        return layouts(*self._shape)["c"].view(buffers.tensors[output_name])

    def _refuse_other_outputs(self, output: Any) -> None:
        """Raises Refused for what is no plain float16 tensor of the right shape."""
        m, _, l = self._shape
        expected = f"a float16 tensor [{m}, 1, {l}] on {self._device.type}"
        if output is None:
            raise Refused(f"custom_kernel returned None, expected {expected}: return c")
        if type(output) is not torch.Tensor:
            raise Refused(f"custom_kernel returned a {type(output).__name__}, expected {expected}")
        if output.dtype != torch.float16:
            raise Refused(f"custom_kernel returned dtype {output.dtype}, expected {expected}")
        if tuple(output.shape) != (m, 1, l):
            raise Refused(f"custom_kernel returned shape {list(output.shape)}, expected {expected}")
        if output.layout != torch.strided:
            raise Refused(
                f"custom_kernel returned a tensor with layout {output.layout}, expected {expected}"
            )
        if output.device.type != self._device.type:
            raise Refused(
                f"custom_kernel returned a tensor on {output.device}, expected {expected}"
            )

    def _settle(self) -> None:
        """Waits until the device is idle and looks what was done to it."""
        if isinstance(self._timer, CudaTimer):
            self._timer.synchronize()
            if self._timer.l2_was_set_aside():
                raise Refused("custom_kernel set aside L2 cache, which would survive the flush")

    def _open_batch(self, request: Message) -> Message:
        """More sets of buffers for a call each, and the gate in front of the calls."""
        shape = (*self._shape, self._device)
        self._batch += [
            self._buffers if handles == self._handles else open_buffers(*shape, handles, None)
            for handles in request["sets"]
        ]
        if self._gate is None:
            self._gate = WaitingSide(request["gate"])
            self._copy_all([], [])  # a kernel cannot be loaded while the device waits
        return {}

    def _call_batch(self, request: Message) -> Message:
        """Queues a call on each set, and what hands over its output, behind the gate."""
        assert self._gate, "batch_open comes first"
        data = [self._data(buffers) for buffers in self._batch]
        targets = [self._place(buffers) for buffers in self._batch]
        self._gate.wait()
        for inputs in data:
            assert self._kernel, "load comes first"
            output = self._kernel(inputs)
            self._refuse_other_outputs(output)
            self._batch_outputs.append(output)  # not freed, on whatever stream, before it is copied
        if request["wait"]:  # as a host does that waits for the device in a call
            self._settle()
        self._copy_all(targets, self._batch_outputs)
        return self._wait_for_batch() if request["wait"] else {}

    def _copy_all(self, targets: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """With something beside them, so that an empty batch costs what every other does."""
        _copy_all([*targets, self._nothing[0]], [*outputs, self._nothing[1]])

    def _wait_for_batch(self) -> Message:
        self._settle()
        return {}

    def _close_batch(self) -> Message:
        self._batch, self._batch_outputs = [], []
        return {}

    def _profile(self) -> Message:
        """One call in an NVTX range under ncu, else in torch's profiler with its table."""
        assert self._kernel, "load and case come first"
        data = self._data(self._buffers)
        on_cuda = self._device.type == "cuda"
        if os.environ.get("POPCORN_NCU") == "1":
            if on_cuda:
                torch.cuda.nvtx.range_push("custom_kernel")
            self._hand_over(self._kernel(data), self._buffers)
            if on_cuda:
                torch.cuda.nvtx.range_pop()
            return {"report": ""}
        activities = [torch.profiler.ProfilerActivity.CPU]
        if on_cuda:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with (
            torch.profiler.profile(activities=activities) as profiler,
            torch.profiler.record_function("custom_kernel"),
        ):
            output = self._kernel(data)
            if on_cuda:
                torch.cuda.synchronize(self._device)
        self._hand_over(output, self._buffers)
        order = "cuda_time_total" if on_cuda else "cpu_time_total"
        return {"report": profiler.key_averages().table(sort_by=order, row_limit=20)}

    def _explain(self, error: BaseException) -> Message:
        """The error with the submission's own frames, and whether the CUDA device is lost."""
        text = own_traceback(error, self._submission)
        if self._device.type == "cuda":
            try:
                torch.cuda.synchronize(self._device)
            except RuntimeError as lost:
                first_line = str(lost).splitlines()[0]
                return _failure("cuda", f"{text}\n{first_line}" if first_line not in text else text)
        return _failure("exception", text)


def _emulate(arch: str, check: bool) -> "Emulation | None":
    """Sends launches of CuTe DSL kernels to the emulator, where both are installed."""
    try:
        from nvfp4 import emulation

        return emulation.install(arch=arch, check=check)
    except ImportError:
        return None


def own_traceback(error: BaseException, submission: Path) -> str:
    """The error and those frames of its traceback that lie in the submission, innermost last."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(submission)
    ]
    for frame in frames:
        frame.filename = submission.name
    with contextlib.suppress(AttributeError):
        if getattr(error, "filename", None) == str(submission):
            error.filename = submission.name  # type: ignore[attr-defined]
    heading = ["Traceback, the submission's frames:\n"] if frames else []
    lines = heading + traceback.format_list(frames) + traceback.format_exception_only(error)
    text = "".join(lines).strip()
    return text if len(text) <= _longest_error else f"{text[:_longest_error]} ... (cut)"


def _failure(kind: str, message: str) -> Message:
    return {"failure": kind, "message": message}
