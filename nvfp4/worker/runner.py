"""Runs a submission for the judge, without seeds, expected values or results."""

import contextlib
import difflib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from nvfp4.contract.layout import dtype_by_name, layouts, output_view
from nvfp4.contract.task import input_t, output_t
from nvfp4.gpu.buffers import SharedBuffers, open_buffers, output_name
from nvfp4.gpu.timing import CallTimer, CudaTimer, call_timer, flushes, wait_until_idle
from nvfp4.records.failures import Failure
from nvfp4.records.launch_errors import RetargetError
from nvfp4.records.messages import (
    Call,
    Called,
    CaseOpened,
    Done,
    Failed,
    HandOverAgain,
    Load,
    OpenCase,
    Profile,
    Profiled,
)
from nvfp4.records.options import Options
from nvfp4.records.refusals import packages
from nvfp4.records.texts import plain
from nvfp4.records.unanswered import HangWatch, StateWriter
from nvfp4.worker.printed import flush_output
from nvfp4.worker.raised import failure_of
from nvfp4.worker.tracebacks import explained

CustomKernel = Callable[[input_t], output_t]

_longest_error = 4000

_import_heading = "the import failed"

_entry_point = "custom_kernel"
_known = ("cuda", "cupy", "cutlass", "numba", "numpy", "task", "torch", "triton", "utils")

# Kept: a submission may replace the attributes of torch.
_copy = torch.Tensor.copy_


class Refused(Exception):
    """The submission broke the contract. code, arguments: of the failure."""

    def __init__(self, code: str, message: str, **arguments: object) -> None:
        super().__init__(message)
        self.code, self.arguments = code, arguments


class Runner:
    """operations: what carries out a kind of request, given the record and its descriptor. name:
    what messages call the submission's file. emulates: whether there is no GPU.
    """

    emulates = False
    expected_device = ""

    def __init__(self, submission: Path, options: Options) -> None:
        self._submission = submission
        self.options = options
        self.name = options.name or submission.name
        self.watch = HangWatch(submission.parent)
        self.state = StateWriter(submission.parent)
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self._kernel: CustomKernel | None = None
        # Before the import of the submission, which may replace what the timer is made of.
        self._timer: CallTimer = call_timer(self.device, flushes[options.flush])
        self.shape = (0, 0, 0)
        self.buffers = SharedBuffers({})
        self._last_output: Any = None
        self.output_dtype = torch.float16
        self.operations: dict[type, Callable[[Any, int | None], object]] = {
            Load: self._load,
            OpenCase: self._open_case,
            Call: self._call,
            HandOverAgain: self._hand_over_again,
            Profile: self._profile,
        }

    def answer(self, request: object, fd: int | None) -> object:
        """Carries out a request. What the submission raises becomes the answer; what was printed
        is on its way to the judge before the answer is, and what the process does is told for the
        case that there is none."""
        self.state.begin()
        loads = isinstance(request, Load)
        try:
            with self.watch.watching(loads):
                return self.operations[type(request)](request, fd)
        except Refused as refused:
            module = sys.modules.get("submission")
            more = _about_entry_point(module) if loads and module else ""
            return self._told(loads, refused.code, f"{refused}{more}", refused.arguments)
        except SystemExit as stop:
            given = stop.code if type(stop.code) is int else repr(stop.code)
            message = f"the submission called sys.exit({given})"
            return self._told(loads, "process.sys_exit", message, {"argument": given})
        except BaseException as error:
            return self._explain(error, loads)
        finally:
            flush_output()

    def _told(self, loads: bool, code: str, message: str, arguments: dict[str, Any]) -> Failed:
        heading = f"{_import_heading}: " if loads else ""
        text = plain(f"{heading}{message}", self._submission, self.name)
        return Failed(text, Failure(code, arguments=arguments).as_plain())

    @property
    def kernel(self) -> CustomKernel:
        assert self._kernel, "Load comes first"
        return self._kernel

    def data(self, buffers: SharedBuffers) -> input_t:
        """What custom_kernel gets."""
        a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = (
            self.adopt(each.view(buffers.tensors[name]))
            for name, each in layouts(*self.shape).items()
        )
        return a, b, sfa, sfb, sfa_permuted, sfb_permuted, c

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the judge as the submission gets it."""
        return tensor

    def place(self, buffers: SharedBuffers) -> torch.Tensor:
        """Where the judge reads an output [m, 1, l]."""
        m, _, l = self.shape
        return output_view(buffers.tensors[output_name], m, l, self.output_dtype)

    def refuse_other_outputs(self, output: Any) -> None:
        """Raises Refused for what the contest would not accept."""
        m, _, l = self.shape
        device = self.expected_device or self.device.type
        returned = None
        if output is None:
            returned = "None"
        elif type(output) is not torch.Tensor:
            returned = f"a {type(output).__name__}"
        elif output.dtype not in dtype_by_name.values():
            returned = f"dtype {output.dtype}"
        elif tuple(output.shape) != (m, 1, l):
            returned = f"shape {list(output.shape)}"
        elif output.layout != torch.strided:
            returned = f"a tensor with layout {output.layout}"
        elif output.device.type != device:
            returned = f"a tensor on {output.device}"
        if returned:
            expected = f"expected a float16 tensor [{m}, 1, {l}] on {device}"
            hint = ": return c" if output is None else ""
            message = f"custom_kernel returned {returned}, {expected}{hint}"
            raise Refused("contract.returned", message, returned=returned)

    def settle(self) -> None:
        """Waits until the device is idle. Raises Refused if L2 cache was set aside."""
        if isinstance(self._timer, CudaTimer):
            self._timer.synchronize()
            if self._timer.l2_was_set_aside():
                raise Refused(
                    "contract.l2_set_aside",
                    "custom_kernel set aside L2 cache, which would survive the flush",
                )

    def _load(self, request: Load, fd: int | None) -> Done:
        spec = importlib.util.spec_from_file_location("submission", self._submission)
        if spec is None or spec.loader is None:
            raise Refused("contract.not_python", f"{self._submission.name} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules["submission"] = module
        spec.loader.exec_module(module)
        kernel = getattr(module, "custom_kernel", None)
        if not callable(kernel):
            message = f"{self._submission.name} defines no function custom_kernel(data)"
            raise Refused("contract.no_custom_kernel", message)
        self._kernel = kernel
        return Done()

    def _open_case(self, request: OpenCase, fd: int | None) -> Done | CaseOpened:
        self.buffers.close()
        self.shape = (request.m, request.k, request.l)
        assert fd is not None
        self.buffers = open_buffers(*self.shape, self.device, fd)
        return Done()

    def _call(self, request: Call, fd: int | None) -> Called:
        kernel, data = self.kernel, self.data(self.buffers)
        output, time = self._timer.time(lambda: kernel(data))
        self._last_output = output
        self._hand_over(output)
        return Called(time.call_ns, time.settled_ns, time.late, self._dtype_name, [])

    @property
    def _dtype_name(self) -> str:
        return str(self.output_dtype).removeprefix("torch.")

    def _hand_over_again(self, request: HandOverAgain, fd: int | None) -> Done:
        self._hand_over(self._last_output)
        return Done()

    def _hand_over(self, output: Any) -> None:
        """Copies an output to where the judge reads it."""
        self.refuse_other_outputs(output)
        self.output_dtype = output.dtype
        _copy(self.place(self.buffers), output)
        self.settle()

    def _profile(self, request: Profile, fd: int | None) -> Profiled:
        """In an NVTX range under ncu, else in torch's profiler."""
        data = self.data(self.buffers)
        on_cuda = self.device.type == "cuda"
        if os.environ.get("POPCORN_NCU") == "1":
            with torch.cuda.nvtx.range("custom_kernel") if on_cuda else contextlib.nullcontext():
                self._hand_over(self.kernel(data))
            return Profiled("", self._dtype_name)
        with (
            torch.profiler.profile() as profiler,
            torch.profiler.record_function("custom_kernel"),
        ):
            output = self.kernel(data)
            wait_until_idle(self.device)
        self._hand_over(output)
        order = "cuda_time_total" if on_cuda else "cpu_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=20)
        return Profiled(table, self._dtype_name)

    def _explain(self, error: BaseException, loads: bool) -> Failed:
        if loads and isinstance(error, Exception) and not isinstance(error, RetargetError):
            return self._explain_import(error)
        told = explained(error, self._submission, self.name)
        failure = failure_of(error, self._submission, self._kernel is not None, self.emulates)
        if self.device.type == "cuda":
            try:
                torch.cuda.synchronize(self.device)
            except RuntimeError as lost:
                first_line = str(lost).splitlines()[0]
                told = told if first_line in told else f"{told}\n{first_line}"
                failure = replace(failure, code="cuda.error")
        return Failed(told, failure.as_plain())

    def _explain_import(self, error: Exception) -> Failed:
        lines = [_import_heading, own_traceback(error, self._submission)]
        hint = _import_hint(error) if isinstance(error, ModuleNotFoundError) else None
        text = "\n".join(lines + ([f"hint: {hint}"] if hint else []))
        failure = failure_of(error, self._submission, False, self.emulates)
        return Failed(text, failure.as_plain())


def own_traceback(error: BaseException, submission: Path) -> str:
    """The error and the frames of its traceback in the submission."""
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if frame.filename == str(submission)]
    for frame in frames:
        frame.filename = submission.name
    with contextlib.suppress(AttributeError):
        if getattr(error, "filename", None) == str(submission):
            error.filename = submission.name  # type: ignore[attr-defined]
    heading = ["Traceback, the submission's frames:\n"] if frames else []
    lines = heading + traceback.format_list(frames) + traceback.format_exception_only(error)
    text = "".join(lines).strip()
    return text if len(text) <= _longest_error else f"{text[:_longest_error]} ... (cut)"


def _about_entry_point(module: ModuleType) -> str:
    """What there is in place of a function custom_kernel."""
    if hasattr(module, _entry_point):
        value = getattr(module, _entry_point)
        return f": it is {'None' if value is None else 'of type ' + type(value).__name__}"
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    close = difflib.get_close_matches(_entry_point, names, n=1)
    return f"\nhint: did you mean {_entry_point}? It is called {close[0]} here" if close else ""


def _import_hint(error: ModuleNotFoundError) -> str | None:
    """What to do about a module that is not there."""
    name = (error.name or "").partition(".")[0]
    if name in packages:
        extra = "'nvfp4[triton]'" if name == "triton" else "the package that has it"
        return f"{name} is not installed here: pip install {extra}"
    close = difflib.get_close_matches(name, [each for each in _known if each != name], n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"a submission is one file, and {name} is not installed"
