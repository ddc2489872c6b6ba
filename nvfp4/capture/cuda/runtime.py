"""The state of the CUDA runtime that compiled host code uses: modules, kernels, errors.

A Python exception cannot cross compiled code. It is stored, every later call fails as after a fault
on a GPU, and the caller of the compiled code raises the exception again with `raise_pending`.
"""

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

from nvfp4.capture import host_access
from nvfp4.capture import kernel as kernels
from nvfp4.capture.codes import Code, CudaError, error_text
from nvfp4.capture.cuda.build import Built
from nvfp4.capture.emulated_gpu import EmulatedGpu
from nvfp4.capture.session import Session
from nvfp4.records.base import Record
from nvfp4.records.launch import Buffer, Dim3, Launch
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall, refused

_ALIGNMENT_BYTES = 256
_FIRST_HANDLE = 1 << 32
"""Larger than any handle of torch's streams."""
WHAT_WORKS = "launches, memory, streams, events and attributes of the CUDA runtime are emulated"
PINNING = "cudaMallocHost"
_UNSEEN = "a call has failed, which torch raises at its next kernel"
_REMEMBERED = 16
"""Freed allocations that are remembered for messages."""

FindVariable = Callable[[str, str], Buffer]
"""Returns the memory of a module's variable, given the module's PTX and the name."""


class Module(Record, frozen=False):
    """The code of a loaded module."""

    ptx: tuple[str, ...]
    """Its PTX texts."""
    resources: dict[str, kernels.Resources]
    """Resources of each kernel, by name."""
    made_for: tuple[str, ...] = ()
    """The architectures that it was compiled for."""


class _Errors(Record, frozen=False):
    """Errors of one thread."""

    last: Code = Code.SUCCESS
    said: dict[int, str] = field(default_factory=dict)
    refused: str | None = None
    """Message of a refused launch or call that the code has not checked yet."""


class CudaRuntime(Session):
    """The session of CUDA C++, and the memory of its launches: cudaMalloc's beside the tensors'."""

    def __init__(self, front_end: str = "CUDA C++") -> None:
        super().__init__(front_end)
        self.find_variable: FindVariable | None = None
        self._allocated: dict[int, tuple[Any, Buffer]] = {}
        self._freed: list[Buffer] = []
        self._loading = threading.local()
        self._threads = threading.local()
        self._handles = itertools.count(_FIRST_HANDLE, 0x10)
        self.destroyed: set[int] = set()
        self._modules: dict[int, Module] = {}
        self._with_suffix: dict[str, str] = {}
        self._kernels: dict[int, kernels.Kernel] = {}
        self._variables: dict[int, tuple[str, str]] = {}
        self._found_variables: dict[int, Buffer] = {}
        self._broken: BaseException | None = None
        self._texts: dict[str, ctypes.Array[ctypes.c_char]] = {}

    def forget(self) -> None:
        """Discard the state of an earlier interception."""
        super().forget()
        self._broken = None

    def end(self) -> None:
        """Refuse launches from now on."""
        super().end()
        self.find_variable = None

    # Errors

    @property
    def errors(self) -> _Errors:
        """Errors of this thread."""
        if not hasattr(self._threads, "errors"):
            self._threads.errors = _Errors()
        return self._threads.errors

    def keep(self, error: BaseException) -> Code:
        """Store the first exception that cannot cross compiled code; the device is then lost."""
        if getattr(error, "refusal", False):
            refused(str(error))
        self._broken = self._broken or error
        self.errors.last = Code.LAUNCH_FAILURE
        return Code.LAUNCH_FAILURE

    def fail(self, error: CudaError, launching: bool) -> Code:
        """Return the code of an error, and store it as CUDA's last error."""
        self.errors.last = self.refuse(error.code, error.message)
        if launching or error.code != Code.NOT_SUPPORTED:
            what = "the kernel did not run, CUDA refuses the launch" if launching else _UNSEEN
            self.errors.refused = f"{what}: {error_text(error.code)}: {error.message}"
        return error.code

    def refuse(self, code: Code, message: str) -> Code:
        """Return the code of a driver error; driver functions store no last error."""
        if code == Code.NOT_SUPPORTED:
            refused(message)
        self.errors.said.pop(code, None)
        self.errors.said[code] = message  # the last one
        return code

    def take_last_error(self, clear: bool) -> Code:
        """Implement cudaGetLastError and cudaPeekAtLastError."""
        errors = self.errors
        last = errors.last
        if clear:
            errors.refused = None
            if self._broken is None:
                errors.last = Code.SUCCESS
        return last

    def describe(self, code: int) -> str:
        """Implement cudaGetErrorString, with the message of this thread's last such error."""
        said = self.errors.said.get(code)
        return f"{error_text(code)} ({said})" if said else error_text(code)

    def raise_if_lost(self) -> None:
        """Raise CudaError after a fault, as every call does on a GPU."""
        if self._broken is not None:
            raise CudaError(Code.LAUNCH_FAILURE)

    def raise_pending(self, failure: BaseException | None = None) -> None:
        """Raise the stored error of a call of compiled code: a fault of a kernel, or a refused
        call that the code did not check, which torch's next kernel finds on a GPU. failure: the
        exception that the code raised itself.
        """
        errors = self.errors
        refused, errors.refused = errors.refused, None
        unsupported = errors.said.pop(Code.NOT_SUPPORTED, None)
        if unsupported is not None and failure is not None:
            raise UnsupportedCall(unsupported) from failure
        if self._broken is not None:
            error, self._broken = self._broken, None
            errors.last = Code.SUCCESS
            raise error
        if refused is not None and failure is None:
            errors.last = Code.SUCCESS
            raise LaunchRefused(refused, hint="look at what calls return, and cudaGetLastError()")

    def text(self, said: str) -> int:
        """Return the address of a C string that is never freed."""
        if said not in self._texts:
            self._texts[said] = ctypes.create_string_buffer(said.encode())
        return ctypes.addressof(self._texts[said])

    # Modules

    def loading(self, built: Built | None) -> None:
        """Assign the modules that this thread registers from now on to a build."""
        self._loading.built, self._loading.registered = built, 0

    def register_module(self) -> int:
        """Return a handle for a module of the library that is being loaded."""
        built = getattr(self._loading, "built", None)
        if built is None:
            raise UnsupportedCall("a library with kernels was loaded that was not built here")
        # Each translation unit registers one, in the order in which they were linked. What is not
        # its own may be another's: it may have been declared there only.
        at = self._loading.registered
        self._loading.registered += 1
        texts = (*built.ptx[at : at + 1], *built.ptx[:at], *built.ptx[at + 1 :])
        used = {name: n for each in built.resources for name, n in each.items()}
        used |= dict(*built.resources[at : at + 1])
        self._with_suffix |= dict(zip(built.ptx, built.with_suffix, strict=True))
        return self.add_module(Module(texts, used, built.made_for))

    def add_module(self, module: Module) -> int:
        """Return a handle for a module."""
        handle = self.new_handle()
        self._modules[handle] = module
        return handle

    def _module(self, handle: int) -> Module:
        if handle not in self._modules:
            raise CudaError(Code.INVALID_RESOURCE_HANDLE, "no such module is loaded")
        return self._modules[handle]

    def register_function(self, module: int, function: int, name: str) -> None:
        """Record the host's address of a kernel."""
        loaded = self._module(module)
        kernel = kernels.find_kernel(loaded.ptx, name, loaded.resources, loaded.made_for)
        if kernel is not None:
            self._kernels[function] = kernel

    def register_variable(self, module: int, address: int, name: str) -> None:
        """Record the address of the host's shadow of a __device__ or __constant__ variable."""
        for text in self._module(module).ptx:
            if name in text:
                self._variables[address] = (text, name)
                return

    def new_handle(self) -> int:
        """Return a handle for a new stream or event."""
        return next(self._handles)

    def require_handle(self, handle: int, least: int) -> None:
        """Raise CudaError for a stream or an event that is destroyed, or none."""
        if handle < least or handle in self.destroyed:
            raise CudaError(Code.INVALID_RESOURCE_HANDLE, f"{handle:#x} is no stream or event")

    def kernel(self, function: int) -> kernels.Kernel:
        """Return a kernel. Raises CudaError for a function that is no kernel, or not one of this
        device."""
        if function not in self._kernels:
            raise CudaError(Code.INVALID_DEVICE_FUNCTION, "no such kernel in a loaded module")
        kernel = self._kernels[function]
        if self._device is not None:
            kernels.refuse_other_architectures(kernel, self._device)
        return kernel

    def variable(self, symbol: int) -> Buffer:
        """Return the memory of a variable by its shadow. Raises CudaError."""
        if symbol not in self._variables or self.find_variable is None:
            raise CudaError(Code.INVALID_SYMBOL, "no such variable in a loaded module")
        found = self.find_variable(*self._variables[symbol])
        self._found_variables[symbol] = found
        return found

    # Memory

    def allocate(self, size: int, by: str = "cudaMalloc", shared: bool = False) -> int:
        """Return the address of new memory, aligned as cudaMalloc aligns. by: for messages. shared:
        host code may use it without a call of the runtime."""
        owner = host_access.owner
        if shared and isinstance(owner, EmulatedGpu):
            space: Any = None
            address = owner.share(size)
        else:
            space = (ctypes.c_uint8 * (size + _ALIGNMENT_BYTES))()
            address = -(-ctypes.addressof(space) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self._allocated[address] = space, Buffer(f"the {size} bytes of {by}", address, size)
        return address

    def free(self, address: int, pinned: bool) -> bool:
        """Free memory; return whether there was any of this kind at this address."""
        _, found = self._allocated.get(address, (None, None))
        if found is None or found.name.endswith(PINNING) != pinned:
            return False
        del self._allocated[address]
        self._freed = [found, *self._freed[: _REMEMBERED - 1]]
        return True

    def freed(self) -> list[Buffer]:
        """Return the memory that was freed, the latest first."""
        return [*self._freed, *self.memory.freed()]

    def buffer_at(self, address: int) -> Buffer | None:
        """Return the device memory around an address; None if there is none."""
        variables = list(self._found_variables.values())
        found = itertools.chain((self.known(), variables), self.memory.search())
        around = (each for known in found for each in known if each.address <= address < each.end)
        return next(around, None)

    def known(self) -> list[Buffer]:
        """Return the buffers that a launch may touch, as far as known without a search."""
        return [*self.memory.known(), *(buffer for _, buffer in self._allocated.values())]

    def search(self) -> Iterator[list[Buffer]]:
        """Search for more buffers that a launch may touch; yields all those known so far."""
        for found in self.memory.search():
            yield [*found, *(buffer for _, buffer in self._allocated.values())]

    # Launches

    refuse_launch = staticmethod(kernels.refuse_as_cuda_does)

    def launch(
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        arguments: int,
        shared_bytes: int,
        stream: int = 0,
        registers: Mapping[str, int] | None = None,
        programmatic: bool = False,
    ) -> None:
        """Run a kernel. registers: special registers that the driver sets. programmatic: as in
        Launch. Raises CudaError if CUDA refuses the launch, and the errors of the executor."""
        kernel = self.kernel(function)
        with kernels.examined(kernel, self.examine):
            self.refuse_launch(kernel, self.device, grid, block, cluster, shared_bytes)
        sizes = kernel.parameter_bytes  # host code passes an array of pointers (void **)
        pointers = (ctypes.c_void_p * len(sizes)).from_address(arguments) if sizes else ()
        raw = [ctypes.string_at(each, size) for each, size in zip(pointers, sizes, strict=True)]
        ptx, with_suffix = kernel.ptx, self._with_suffix.get(kernel.ptx, "")
        for name, value in (registers or {}).items():
            ptx = ptx.replace(f"{name};", f"{value};")
            with_suffix = with_suffix.replace(f"{name};", f"{value};")
        given = ptx, kernel.name, grid, block, raw, shared_bytes, kernel.clusters(cluster), self
        self.hand_over(
            Launch(*given, stream=stream, programmatic=programmatic, with_suffix=with_suffix)
        )


RUNTIME = CudaRuntime()


def checked(function: Callable[..., Any], runtime: CudaRuntime = RUNTIME) -> Callable[..., Any]:
    """Wrap a function that runs compiled code, so that it raises the error that the runtime has
    stored."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            runtime.raise_pending(error)
            raise
        runtime.raise_pending()
        return result

    return call
