"""Runs a submission for the judge, without seeds, expected values or results."""

import contextlib
import ctypes
import difflib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from nvfp4.contract.tree import Tree, build, parts, tensors_of, tree_of
from nvfp4.gpu.buffers import SharedBuffers, host_sizes_of, open_buffers, output_name, sizes_of
from nvfp4.gpu.timing import CallTimer, CudaTimer, call_timer, flushes, wait_until_idle
from nvfp4.records import messages
from nvfp4.records.failures import Failure
from nvfp4.records.launch_errors import RetargetError
from nvfp4.records.options import Options
from nvfp4.records.refusals import packages
from nvfp4.records.texts import plain
from nvfp4.records.unanswered import HangWatch, StateWriter, longest_call_s, longest_on_gpu_s
from nvfp4.worker.outputs import Refused, output_tree
from nvfp4.worker.raised import explained, failure_of, own_traceback, version_hint

CustomKernel = Callable[[Any], Any]

_import_heading = "the import failed"

_entry_point = "custom_kernel"
_known = ("cuda", "cupy", "cutlass", "numba", "numpy", "task", "torch", "triton", "utils")

# Kept: a submission may replace the attributes of torch.
_copy = torch.Tensor.copy_


class Runner:
    """Serves the judge's requests.

    operations: the function that carries out each kind of request, given the record and its
    descriptor; it returns the answer, None for `Done`. name: name of the submission's file in
    messages. emulates: whether there is no GPU.
    """

    emulates = False
    expected_device = ""

    def __init__(self, submission: Path, options: Options) -> None:
        self._submission = submission
        self.options = options
        self.name = options.name or submission.name
        longest_s = longest_call_s if self.emulates else longest_on_gpu_s
        self.watch = HangWatch(submission.parent, longest_s)
        self.state = StateWriter(submission.parent)
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self._kernel: CustomKernel | None = None
        # Before the import of the submission, which may replace what the timer is made of.
        self._timer: CallTimer = call_timer(self.device, flushes[options.flush])
        self.inputs = Tree({"tuple": []}, [], [])
        self._expected: Tree | None = None
        self.room_bytes = 0
        self.buffers, self._host = SharedBuffers({}), SharedBuffers({})
        self._last_output: Any = None
        self._first: dict[int, tuple[Tree, list[torch.Tensor]]] = {}
        """The first outputs of cases, which later calls must not write to."""
        self._number, self._case = 0, ""
        self._graphs: dict[str, tuple[Any, Any]] = {}
        """The calls of cases as CUDA graphs, and their outputs, by number and inputs."""
        self._captures = False
        """Whether the last call is the one that is captured."""
        self.output = self.inputs
        self.operations: dict[type, Callable[[Any, int | None], object]] = {
            messages.Load: self._load,
            messages.OpenCase: self._open_case,
            messages.OpenHost: self._open_host,
            messages.Call: self._call,
            messages.HandOverAgain: self._hand_over_again,
            messages.Profile: self._profile,
        }

    def answer(self, request: object, fd: int | None) -> object:
        """Carry out a request. An exception of the submission becomes the answer. Output is sent
        before the answer, and the activity is recorded in case there is no answer."""
        self.state.begin()
        loads = isinstance(request, messages.Load)
        try:
            with self.watch.watching(loads):
                return self.operations[type(request)](request, fd) or messages.Done()
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
            # Output of this process, that of compiled code included.
            with contextlib.suppress(Exception):  # a submission may have replaced or closed it
                sys.stdout.flush()
            ctypes.CDLL(None).fflush(None)

    def _told(self, loads: bool, code: str, message: str, arguments: dict[str, Any]) -> object:
        heading = f"{_import_heading}: " if loads else ""
        text = plain(f"{heading}{message}", self._submission, self.name)
        return messages.Failed(text, Failure(code, arguments=arguments).as_plain())

    @property
    def kernel(self) -> CustomKernel:
        assert self._kernel, "Load comes first"
        return self._kernel

    def data(self, buffers: SharedBuffers) -> Any:
        """Return the inputs of custom_kernel."""
        held = {**buffers.tensors, **self._host.tensors}
        flat = [held[name] for name in self.inputs.names]
        return build(self.inputs, flat, lambda each, at: self.adopt(each) if at == "cuda" else each)

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the judge in the form that the submission gets."""
        return tensor

    def targets(self, buffers: SharedBuffers) -> list[torch.Tensor]:
        """Return the tensors from which the judge reads an output."""
        return tensors_of(build(self.output, parts(self.output, buffers.tensors[output_name])))

    def accepted(self, output: Any) -> Tree:
        """Return the tree of an output. Raises Refused if the contest would not accept it."""
        device = self.expected_device or self.device.type
        return output_tree(output, self._expected, device, self.room_bytes)

    def settle(self) -> None:
        """Wait until the device is idle. Raises Refused if L2 cache was set aside."""
        if isinstance(self._timer, CudaTimer):
            self._timer.synchronize()
            if self._timer.l2_was_set_aside():
                message = "custom_kernel set aside L2 cache, which would survive the flush"
                raise Refused("contract.l2_set_aside", message)

    def _load(self, request: messages.Load, fd: int | None) -> None:
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

    def _open_case(self, request: messages.OpenCase, fd: int | None) -> object:
        self.buffers.close()
        self._graphs.clear()  # other buffers may lie elsewhere
        self._plan(request)
        assert fd is not None
        self.buffers = open_buffers(sizes_of(self.inputs, self.room_bytes), self.device, fd)
        return None

    def _plan(self, request: messages.OpenCase) -> None:
        self.inputs = tree_of(request.inputs)
        self._expected = tree_of(request.expected) if request.expected else None
        self.room_bytes, self._number = request.room_bytes, request.number
        self._case = f"{request.number} {request.inputs}"

    def _open_host(self, request: messages.OpenHost, fd: int | None) -> None:
        assert fd is not None
        self._host.close()
        self._host = open_buffers(host_sizes_of(self.inputs), torch.device("cpu"), fd)

    def _call(self, request: messages.Call, fd: int | None) -> messages.Called:
        kernel, data = self.kernel, self.data(self.buffers)
        self._captures = request.in_graph and self._case not in self._graphs
        call = self._replay(data) if request.in_graph else lambda: kernel(data)
        output, time = self._timer.time(call)
        self._last_output = output
        self._hand_over(self.accepted(output), tensors_of(output))
        return messages.Called(time.call_ns, time.settled_ns, time.late, self.output.to_plain(), [])

    def _replay(self, data: Any) -> Callable[[], Any]:
        """Return the replay of the case's call, which is captured if that has not been done."""
        if self._captures:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = self.kernel(data)
            self._graphs[self._case] = graph, output
        replayed, result = self._graphs[self._case]
        return lambda: (replayed.replay(), result)[1]

    def _hand_over_again(self, request: messages.HandOverAgain, fd: int | None) -> None:
        last = self.accepted(self._last_output), tensors_of(self._last_output)
        self._hand_over(*(self._first.setdefault(self._number, last) if request.first else last))

    def _hand_over(self, output: Tree, tensors: list[torch.Tensor]) -> None:
        """Copy an output to the memory that the judge reads."""
        self.output = output
        for target, tensor in zip(self.targets(self.buffers), tensors, strict=True):
            _copy(target, tensor)
        self.settle()

    def _profile(self, request: messages.Profile, fd: int | None) -> messages.Profiled:
        """Profile a call: in an NVTX range under ncu, else by torch's profiler."""
        data = self.data(self.buffers)
        on_cuda = self.device.type == "cuda"
        if os.environ.get("POPCORN_NCU") == "1":
            with torch.cuda.nvtx.range("custom_kernel") if on_cuda else contextlib.nullcontext():
                output = self.kernel(data)
            self._hand_over(self.accepted(output), tensors_of(output))
            return messages.Profiled("", self.output.to_plain())
        with torch.profiler.profile() as profiler, torch.profiler.record_function("custom_kernel"):
            output = self.kernel(data)
            wait_until_idle(self.device)
        self._hand_over(self.accepted(output), tensors_of(output))
        order = "cuda_time_total" if on_cuda else "cpu_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=20)
        return messages.Profiled(table, self.output.to_plain())

    def _explain(self, error: BaseException, loads: bool) -> messages.Failed:
        if loads and isinstance(error, Exception) and not isinstance(error, RetargetError):
            lines = [_import_heading, own_traceback(error, self._submission, self.name)]
            hint = version_hint(error)
            if hint is None and isinstance(error, ModuleNotFoundError):
                hint = _import_hint(error)
            text = "\n".join(lines + ([f"hint: {hint}"] if hint else []))
            failure = failure_of(error, self._submission, False, self.emulates)
            return messages.Failed(text, failure.as_plain())
        told = explained(error, self._submission, self.name)
        failure = failure_of(error, self._submission, self._kernel is not None, self.emulates)
        if self._captures and failure.code in ("call.exception", "launch.refused"):
            told = f"Failed to capture kernel in CUDA graph: {told}"
            failure = replace(failure, code="contract.not_capturable", message=told.split("\n")[0])
        if self.device.type == "cuda":
            try:
                torch.cuda.synchronize(self.device)
            except RuntimeError as lost:
                first_line = str(lost).splitlines()[0]
                told = told if first_line in told else f"{told}\n{first_line}"
                failure = replace(failure, code="cuda.error")
        return messages.Failed(told, failure.as_plain())


def _about_entry_point(module: ModuleType) -> str:
    """Describe what a submission has in place of a function custom_kernel."""
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
    """Return a hint for a module that is not installed."""
    name = (error.name or "").partition(".")[0]
    if name in packages:
        extra = "'nvfp4[triton]'" if name == "triton" else "the package that has it"
        return f"{name} is not installed here: pip install {extra}"
    close = difflib.get_close_matches(name, [each for each in _known if each != name], n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"a submission is one file, and {name} is not installed"


def send_lines_at_once() -> None:
    """Make output line-buffered, so that no line is lost if this process dies."""
    with contextlib.suppress(Exception):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with contextlib.suppress(ValueError, AttributeError):
        library = ctypes.CDLL(None)
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, 1, 1 << 12)
