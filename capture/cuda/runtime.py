"""The state of the CUDA runtime that compiled host code talks to: modules, kernels, errors.

A Python exception cannot cross compiled code: it is kept, every
later call fails as after a fault on a GPU, and whoever called the compiled code raises it again
with `raise_pending`.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nvfp4.capture.cuda.build import Built, Resources
from nvfp4.capture.cuda.codes import Code, error_text
from nvfp4.capture.device import Device
from nvfp4.capture.errors import LaunchRefused
from nvfp4.capture.launch import Buffer, Dim3, Launch, ListedMemory, Memory
from nvfp4.capture.signature import most_threads, parameter_bytes, parameters_at

_ALIGNMENT_BYTES = 256

FindVariable = Callable[[str, str], Buffer]
"""Where a variable of a module lies, by the module's PTX and its name."""


class CudaError(Exception):
    """What a function of the CUDA runtime returns. message: more than the code says, for people."""

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(message or error_text(code))
        self.code = code
        self.message = message


@dataclass
class Kernel:
    """A __global__ function of a loaded module. most_threads: by its launch bounds."""

    ptx: str
    name: str
    parameter_bytes: tuple[int, ...]
    most_threads: int | None
    resources: Resources
    dynamic_shared_limit: int


@dataclass
class _Module:
    built: Built


@dataclass
class _Errors:
    """Of one thread. refused: a launch that CUDA refused and nobody has asked about."""

    last: Code = Code.SUCCESS
    said: dict[int, str] = field(default_factory=dict)
    refused: str | None = None


class CudaRuntime:
    """One for the process, as compiled code keeps pointing at it: `begin` and `end` say when
    launches go somewhere. It is the memory of its launches too: cudaMalloc's beside the tensors'.
    """

    def __init__(self) -> None:
        self._device: Device | None = None
        self._run: Callable[[Launch], None] | None = None
        self._find_variable: FindVariable | None = None
        self._memory: Memory = ListedMemory()
        self._allocated: dict[int, tuple[Any, Buffer]] = {}
        self._loading = threading.local()
        self._threads = threading.local()
        self._handles = itertools.count(0x1000, 0x10)
        self._modules: dict[int, _Module] = {}
        self._kernels: dict[int, Kernel] = {}
        self._variables: dict[int, tuple[str, str]] = {}
        self._found_variables: dict[int, Buffer] = {}
        self._broken: BaseException | None = None
        self._texts: dict[str, ctypes.Array[ctypes.c_char]] = {}

    def begin(
        self,
        device: Device,
        run: Callable[[Launch], None],
        memory: Memory,
        find_variable: FindVariable,
    ) -> None:
        """Send launches to `run` until `end`. Raises RuntimeError if they go somewhere already."""
        if self._run is not None:
            raise RuntimeError("CUDA C++ launches are intercepted already")
        self._device, self._run, self._memory = device, run, memory
        self._find_variable = find_variable
        self._broken = None

    def end(self) -> None:
        """Refuse launches from now on."""
        self._device = self._run = self._find_variable = None

    @property
    def device(self) -> Device:
        """The pretended device. Raises LaunchRefused when none is."""
        if self._device is None:
            raise LaunchRefused("this extension was built for an emulation that has ended")
        return self._device

    # Errors

    @property
    def errors(self) -> _Errors:
        """Those of this thread."""
        if not hasattr(self._threads, "errors"):
            self._threads.errors = _Errors()
        errors: _Errors = self._threads.errors
        return errors

    def keep(self, error: BaseException) -> Code:
        """The first exception that compiled code must not see; the device is lost with it."""
        self._broken = self._broken or error
        self.errors.last = Code.LAUNCH_FAILURE
        return Code.LAUNCH_FAILURE

    def fail(self, error: CudaError, launching: bool) -> Code:
        """An error that CUDA returns, and remembers as the last one."""
        self.errors.last = error.code
        if error.message:
            self.errors.said[error.code] = error.message
        if launching:
            self.errors.refused = f"{error_text(error.code)}: {error.message}"
        return error.code

    def take_last_error(self, clear: bool) -> Code:
        """cudaGetLastError, cudaPeekAtLastError."""
        errors = self.errors
        last = errors.last
        errors.refused = None
        if clear and self._broken is None:
            errors.last = Code.SUCCESS
        return last

    def describe(self, code: int) -> str:
        """cudaGetErrorString, with what is known of this thread's last such error."""
        said = self.errors.said.get(code)
        return f"{error_text(code)} ({said})" if said else error_text(code)

    def raise_if_lost(self) -> None:
        """Raises CudaError after a fault, as every call does on a GPU."""
        if self._broken is not None:
            raise CudaError(Code.LAUNCH_FAILURE)

    def raise_pending(self, failure: BaseException | None = None) -> None:
        """Raise what a call of compiled code has left behind: a fault of a kernel, or that a
        launch was refused and the code did not look. failure: what the code raised itself.
        """
        errors = self.errors
        refused, errors.refused = errors.refused, None
        errors.said.clear()
        if self._broken is not None:
            error, self._broken = self._broken, None
            errors.last = Code.SUCCESS
            raise error
        if refused is not None and failure is None:
            errors.last = Code.SUCCESS
            raise LaunchRefused(
                f"the kernel did not run, CUDA refuses the launch: {refused}",
                hint="check cudaGetLastError() after a launch",
            )

    def text(self, said: str) -> int:
        """The address of a C string that stays."""
        if said not in self._texts:
            self._texts[said] = ctypes.create_string_buffer(said.encode())
        return ctypes.addressof(self._texts[said])

    # Modules

    def loading(self, built: Built | None) -> None:
        """Which build the modules belong to that this thread registers from now on."""
        self._loading.built = built

    def register_module(self) -> int:
        """A handle for a module of the library that is being loaded."""
        built = getattr(self._loading, "built", None)
        if built is None:
            raise LaunchRefused("a library with kernels was loaded that was not built here")
        handle = next(self._handles)
        self._modules[handle] = _Module(built)
        return handle

    def register_function(self, module: int, function: int, name: str) -> None:
        """The host's address of a kernel."""
        built = self._modules[module].built
        for text in built.ptx:
            sizes = parameter_bytes(text, name)
            if sizes is not None:
                used = built.resources.get(name, Resources())
                allowed = self.device.attributes[8] - used.shared_bytes
                bound = most_threads(text, name)
                self._kernels[function] = Kernel(text, name, sizes, bound, used, allowed)
                return

    def register_variable(self, module: int, address: int, name: str) -> None:
        """The host's shadow of a __device__ or __constant__ variable."""
        for text in self._modules[module].built.ptx:
            if name in text:
                self._variables[address] = (text, name)
                return

    def new_handle(self) -> int:
        """For a stream or an event."""
        return next(self._handles)

    def kernel(self, function: int) -> Kernel:
        """Raises CudaError for a function that is no kernel."""
        if function not in self._kernels:
            raise CudaError(Code.INVALID_DEVICE_FUNCTION, "no such kernel in a loaded module")
        return self._kernels[function]

    def variable(self, symbol: int) -> Buffer:
        """The memory behind a shadow. Raises CudaError."""
        if symbol not in self._variables or self._find_variable is None:
            raise CudaError(Code.INVALID_SYMBOL, "no such variable in a loaded module")
        found = self._find_variable(*self._variables[symbol])
        self._found_variables[symbol] = found
        return found

    # Memory

    def allocate(self, size: int) -> int:
        """The address of new memory, aligned as cudaMalloc aligns."""
        space = (ctypes.c_uint8 * (size + _ALIGNMENT_BYTES))()
        start = ctypes.addressof(space)
        address = -(-start // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        name = f"the {size} bytes of cudaMalloc"
        self._allocated[address] = space, Buffer(name, address, size)
        return address

    def free(self, address: int) -> bool:
        """Whether there was memory to free."""
        return self._allocated.pop(address, None) is not None

    def buffer_at(self, address: int) -> Buffer | None:
        """The device memory around an address; None if there is none."""
        variables = list(self._found_variables.values())
        for known in itertools.chain((self.known(), variables), self._memory.search()):
            for buffer in known:
                if buffer.address <= address < buffer.end:
                    return buffer
        return None

    def known(self) -> list[Buffer]:
        """What a launch may touch, as far as it is known without a search."""
        return [*self._memory.known(), *(buffer for _, buffer in self._allocated.values())]

    def search(self) -> Iterator[list[Buffer]]:
        """The same after a look for more."""
        for found in self._memory.search():
            yield [*found, *(buffer for _, buffer in self._allocated.values())]

    # Launches

    def launch(
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        arguments: int,
        shared_bytes: int,
    ) -> None:
        """Run a kernel. Raises CudaError where CUDA refuses, and what the executor raises."""
        kernel = self.kernel(function)
        refuse_as_cuda_does(kernel, self.device, grid, block, cluster, shared_bytes)
        if self._run is None:
            raise LaunchRefused("this extension was built for an emulation that has ended")
        raw = parameters_at(arguments, kernel.parameter_bytes)
        launch = Launch(kernel.ptx, kernel.name, grid, block, raw, shared_bytes, cluster, self)
        self._run(launch)


def refuse_as_cuda_does(
    kernel: Kernel, device: Device, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int
) -> None:
    """Raises CudaError for a launch that cannot be, with CUDA's code for it.

    Source: scripts/fidelity/launch_errors.cu on an H200, CUDA 13.0, driver 580, 2026-11-21. Older
    releases say cudaErrorInvalidConfiguration for some of them.
    """
    attributes = device.attributes
    threads = block[0] * block[1] * block[2]
    name = kernel.name
    invalid = Code.INVALID_VALUE
    if threads < 1 or min(grid) < 1:
        raise CudaError(invalid, f"{name}: a grid of {grid} blocks of {block} threads")
    if threads > attributes[1] or any(n > attributes[2 + i] for i, n in enumerate(block)):
        raise CudaError(
            invalid, f"{name}: blocks of {block} threads, {threads} in all; 1024 are the most"
        )
    if any(n > attributes[5 + i] for i, n in enumerate(grid)):
        raise CudaError(invalid, f"{name}: a grid of {grid} blocks is too large")
    if kernel.most_threads is not None and threads > kernel.most_threads:
        raise CudaError(
            invalid,
            f"{name}: {threads} threads a block, but __launch_bounds__ says {kernel.most_threads}",
        )
    # Registers are given to warps, in units of 8 a thread.
    registers = kernel.resources.registers
    if -(-registers // 8) * 8 * -(-threads // 32) * 32 > attributes[12]:
        raise CudaError(
            Code.LAUNCH_OUT_OF_RESOURCES,
            f"{name}: {threads} threads of {registers} registers; a block has {attributes[12]}",
        )
    if shared_bytes > kernel.dynamic_shared_limit:
        raise CudaError(
            Code.INVALID_VALUE,
            f"{name}: {shared_bytes} bytes of dynamic shared memory, but "
            f"{kernel.dynamic_shared_limit} are allowed; cudaFuncSetAttribute raises the limit",
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise CudaError(
            Code.INVALID_CLUSTER_SIZE, f"{name}: a grid of {grid} in clusters of {cluster}"
        )


RUNTIME = CudaRuntime()
