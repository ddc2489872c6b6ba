"""cupy.RawKernel and cupy.RawModule for torch's tensors. CuPy's own arrays need a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from nvfp4.capture.codes import CudaError
from nvfp4.capture.cuda.driver_calls import load_module
from nvfp4.capture.cuda.nvrtc import Program, compile_program
from nvfp4.capture.cuda.runtime import RUNTIME
from nvfp4.capture.cuda.source_lines import in_file
from nvfp4.capture.frames import users_file
from nvfp4.capture.kernel import allow_dynamic_shared, dynamic_shared_said
from nvfp4.records.launch import Dim3
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall


class Array:
    """A tensor that was handed to CuPy: kernels take it. Anything else needs a GPU."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape, self.size = tuple(tensor.shape), tensor.numel()
        self.data = SimpleNamespace(ptr=tensor.data_ptr())

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedCall(
            f"CuPy's arrays ({name}) need a GPU", hint="give kernels the torch tensors"
        )


class Idle:
    """cupy.cuda.Stream, ExternalStream and Device: a context, in which all work is done."""

    def __init__(self, handle: int = 0, *_: Any, **__: Any) -> None:
        self.ptr = self.id = int(handle)

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was changed."""

    def use(self) -> Idle:
        """As the current one, which makes no difference."""
        return self

    def synchronize(self) -> None:
        """Nothing is to be waited for."""

    @classmethod
    def from_external(cls, stream: Any) -> Idle:
        """For another package's stream."""
        return cls(stream.__cuda_stream__()[1])


class RawModule:
    """CUDA text, compiled when a function is asked for. path: of a file of PTX."""

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool = False,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("exactly one of code and path")
        self.code, self.path = code, path
        self.options = tuple(options)
        self.expressions = tuple(name_expressions or ())
        self._file = users_file()
        self._loaded: tuple[int, dict[str, str]] | None = None

    def compile(self, log_stream: Any = None) -> None:
        """Compile now. Raises CompileError."""
        self._load()

    def _load(self) -> tuple[int, dict[str, str]]:
        """The module and the names of the expressions in it."""
        if self._loaded is None:
            ptx, lowered = Path(self.path).read_text() if self.path else "", {}
            if self.code is not None:
                program = Program(
                    in_file(self.code, self._file),
                    "RawModule.cu",
                    RUNTIME.device.arch,
                    expressions=self.expressions,
                    options=self.options,
                )
                compiled = compile_program(program, self._file.parent)
                ptx, lowered = compiled.ptx, compiled.lowered
            self._loaded = load_module(RUNTIME, ptx), lowered
        return self._loaded

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name, or by one of the name expressions."""
        kernel = RawKernel.__new__(RawKernel)
        kernel.name, kernel.module = name, self
        return kernel


class RawKernel:
    """A kernel of CUDA text."""

    name: str
    module: RawModule

    def __init__(self, code: str, name: str, options: Sequence[str] = (), **others: Any) -> None:
        plain = name.isidentifier()
        others.setdefault("name_expressions", () if plain else (name,))
        self.name, self.module = name, RawModule(code, options=options, **others)

    def compile(self, log_stream: Any = None) -> None:
        """Compile now. Raises CompileError."""
        self.module.compile()

    def _function(self) -> int:
        module, lowered = self.module._load()
        return RUNTIME.function(module, lowered.get(self.name, self.name))

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Bytes of dynamic shared memory that a launch may have; can be set."""
        return dynamic_shared_said(RUNTIME.kernel(self._function()), RUNTIME.device)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value: int) -> None:
        allow_dynamic_shared(RUNTIME.kernel(self._function()), RUNTIME.device, value)

    @property
    def num_regs(self) -> int:
        """Registers of a thread."""
        return RUNTIME.kernel(self._function()).resources.registers

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch. Raises LaunchRefused, and what the kernel does wrong."""
        kept = [_argument(each) for each in args]
        pointers = (ctypes.c_void_p * max(len(kept), 1))(*(ctypes.addressof(each) for each in kept))
        try:
            function = self._function()
            expected = len(RUNTIME.kernel(function).parameter_bytes)
            if expected != len(kept):
                raise TypeError(f"{self.name} takes {expected} arguments, not {len(kept)}")
            dims = _dims(grid), _dims(block), (1, 1, 1)
            RUNTIME.launch(function, *dims, ctypes.addressof(pointers), shared_mem)
        except CudaError as error:
            raise LaunchRefused(f"the kernel did not run: {error}") from None


def _dims(given: Sequence[int]) -> Dim3:
    x, y, z = (*(int(each) for each in given), 1, 1)[:3]
    return x, y, z


def _argument(value: Any) -> Any:
    """The bytes of an argument: Python's numbers have 64 bits, NumPy's their own size."""
    if isinstance(value, Array):
        return ctypes.c_void_p(value.data.ptr)
    if hasattr(value, "data_ptr"):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, (bool, int, float, complex)):
        value = np.asarray(value)  # bool, int64, float64, complex128
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        return ctypes.create_string_buffer(value.tobytes(), value.nbytes)
    raise UnsupportedCall(f"a kernel cannot take a {type(value).__name__} without a GPU")
