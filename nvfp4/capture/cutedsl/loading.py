"""CuTe DSL compiles for one architecture and its modules run on another.

Only the loading of a module is taken over: the driver gets translated PTX in place of machine
code. Host code launches as ever, on its own streams and with its own attributes, at no cost.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nvfp4.capture.cutedsl.hooks import compiling_for, linked_to
from nvfp4.capture.patches import Patches
from nvfp4.records.launch_errors import UnsupportedCall

I32, PTR = ctypes.c_int32, ctypes.c_void_p
_LOAD = "_cudaLibraryLoadData"
_ARGUMENTS = (PTR, PTR, PTR, PTR, I32, PTR, PTR, I32)
_RUNTIME = "cute_dsl_runtime"
_FAILURE = 200  # cudaErrorInvalidKernelImage
_LOG_BYTES = 8192
_ERROR_LOG_OPTIONS = (5, 6)  # cudaJitErrorLogBuffer and its size

Translate = Callable[[str], str]


def start_loading(translate: Translate, arch: str) -> Callable[[], None]:
    """CuTe DSL compiles for `arch` from now on; what is loaded is `translate(ptx)`.

    Returns the function that stops it. What `translate` raises surfaces where the user's code
    compiled or called its function. Raises UnsupportedVersion and ImportError as `start` does.
    """
    pending: list[BaseException] = []
    held: list[dict[str, Any]] = []

    def callbacks(
        texts: tuple[str, ...], declared: list[str], libraries: Sequence[str]
    ) -> dict[str, Any]:
        if _LOAD not in declared and not any(texts):
            return {}  # host code alone
        real = _real_load(libraries)
        return {_LOAD: ctypes.CFUNCTYPE(I32, *_ARGUMENTS)(_load(texts, translate, real, pending))}

    def install(patches: Patches) -> None:
        from cutlass.base_dsl.compiler import Compiler
        from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

        patches.replace(Compiler, "jit", partial(linked_to, callbacks, held.append))
        raising = partial(_raising, pending)
        patches.replace(CudaDialectJitCompiledFunction, "_load_cuda_library", raising)

    return compiling_for(arch, install).undo


def _real_load(libraries: Sequence[str]) -> Any:
    """Return the function that CuTe DSL's runtime library loads a module with."""
    for path in libraries:
        if _RUNTIME in path:
            function = ctypes.CDLL(path)[_LOAD]
            function.restype, function.argtypes = I32, _ARGUMENTS
            return function
    raise UnsupportedCall("CuTe DSL's runtime library is not among those it links")


def _load(
    texts: tuple[str, ...], translate: Translate, real: Any, pending: list[BaseException]
) -> Callable[..., int]:
    """Do what cudaLibraryLoadData does with the translated text; an exception is stored in
    `pending`."""

    def load(library: int, code: int, *_: Any) -> int:
        try:
            if len(texts) != 1:
                raise UnsupportedCall(f"a compiled function with {len(texts)} modules of PTX")
            text = translate(texts[0]).encode() + b"\0"
            log = ctypes.create_string_buffer(_LOG_BYTES)
            options = (I32 * 2)(*_ERROR_LOG_OPTIONS)
            values = (PTR * 2)(ctypes.addressof(log), _LOG_BYTES)
            status = real(library, text, options, values, 2, None, None, 0)
            if status:
                lines = log.value.decode("utf-8", "replace").splitlines()
                why = f": {lines[0].strip()}" if lines else ""
                raise UnsupportedCall(f"the driver takes no such PTX (CUDA error {status}){why}")
        except BaseException as error:
            pending.append(error)
            return _FAILURE
        return 0

    return load


def _raising(pending: list[BaseException], original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a loader of libraries so that it raises the exception that a callback stored."""

    def load_library(self: Any, *args: Any) -> Any:
        pending.clear()
        try:
            return original(self, *args)
        except Exception:
            if pending:
                raise pending[0] from None
            raise

    return load_library
