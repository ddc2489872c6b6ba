"""Capture of CUDA C++: torch builds extensions here, and other ways to load kernels are refused."""

import ctypes
import functools
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from nvfp4.capture.cuda import calls  # noqa: F401  (fills the table of entries)
from nvfp4.capture.cuda.compilers import cache_folder
from nvfp4.capture.cuda.runtime import RUNTIME, FindVariable, checked
from nvfp4.capture.frames import is_installed
from nvfp4.capture.imports import when_imported
from nvfp4.capture.patches import Patches
from nvfp4.records.launch import Examine, Launch, Memory, anything_goes
from nvfp4.records.launch_errors import UnsupportedCall

Put = Callable[[Any, str, Any], None]
"""Replaces an attribute of an object until the emulation ends."""

_WHAT_WORKS = "CUDA C++ works through torch.utils.cpp_extension, load_inline or load"
_OF_CUDA = re.compile(r"lib(?:cudart|cuda|nvrtc)(?:-[\w.-]+)?\.so[.\d]*")
_LARGEST_LIBRARY_BYTES = 64 << 20


def start(
    run: Callable[[Launch], None],
    find_variable: FindVariable,
    arch: str = "sm_100a",
    memory: Memory | None = None,
    examine: Examine = anything_goes,
) -> Callable[[], None]:
    """Send every launch of an extension of this process to `run`; returns what stops it.

    Extensions must be built while this is on. find_variable: see `runtime.FindVariable`. memory:
    what the launches may touch. examine: see `capture.launch`. Raises ValueError for an
    architecture that is not known and RuntimeError if this is on already.
    """
    patches = Patches()

    def adapt_extensions() -> None:
        import torch._ops
        import torch.utils.cpp_extension as theirs

        from nvfp4.capture.cuda import extension

        for build in (extension.load, extension.load_inline):
            patches.replace(theirs, build.__name__, extension.taking_what_torch_takes(build))
        # Operators that C++ registers are called through torch, not through a module of ours.
        for kind in (torch._ops.OpOverloadPacket, torch._ops.OpOverload):
            patches.set(kind, "__call__", checked(kind.__call__))

    def install() -> Callable[[], None]:
        RUNTIME.find_variable = find_variable
        stop = ExitStack()
        stop.callback(patches.undo)
        stop.callback(when_imported("torch.utils.cpp_extension", adapt_extensions))
        patches.set(ctypes.CDLL, "__init__", _refusing_libraries(ctypes.CDLL.__init__))
        for package, adapt in _ADAPTERS.items():  # once it is imported
            stop.callback(when_imported(package, functools.partial(adapt, patches.set)))
        return stop.close

    return RUNTIME.start(run, arch, memory, examine, install)


def _refuse(what: str, *_: Any, **__: Any) -> NoReturn:
    raise UnsupportedCall(f"{what} needs a GPU", hint=_WHAT_WORKS)


def _refusing_libraries(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap ctypes.CDLL so that it refuses two kinds of libraries to a submission.

    They are CUDA's own, with which packages look for a GPU, and those that nvcc built for a GPU,
    whose launches would do nothing.
    """

    @functools.wraps(original)
    def init(self: Any, name: Any = None, *args: Any, **kwargs: Any) -> None:
        path = Path(os.fsdecode(name or ""))
        if _OF_CUDA.fullmatch(path.name) and not is_installed(_file(sys._getframe(1))):
            _refuse(f"{path.name.split('.')[0]}, opened by ctypes,")
        if len(path.parts) > 1 and _is_of_nvcc(path.absolute()):
            message = f"{path.name} has kernels that nvcc compiled for a GPU"
            hint = "build its sources with torch.utils.cpp_extension.load"
            raise UnsupportedCall(message, hint=hint)
        original(self, name, *args, **kwargs)

    return init


def _file(frame: FrameType) -> str:
    """Return the file of a frame's code, or of the code that has called ctypes."""
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent.name == "ctypes":
        frame = frame.f_back
    return frame.f_code.co_filename


def _is_of_nvcc(path: Path) -> bool:
    installed = cache_folder() in path.parents or is_installed(path)
    if installed or not path.is_file() or path.stat().st_size > _LARGEST_LIBRARY_BYTES:
        return False
    return b"__cudaRegisterFatBinary" in path.read_bytes()


def _refuse_torchs_compiler(put: Put) -> None:
    import torch.cuda._utils as utils

    for name in ("_get_cuda_library", "_get_nvrtc_library"):
        if hasattr(utils, name):
            put(utils, name, functools.partial(_refuse, "torch.cuda._compile_kernel"))


def _refuse_bindings(name: str, put: Put) -> None:
    """Refuse the functions of a module of cuda.bindings to submissions; its types, such as
    CUstream, are for CuTe DSL."""
    module = sys.modules[name]
    for key, value in list(vars(module).items()):
        if key.startswith(("cu", "nvrtc")) and callable(value) and not isinstance(value, type):
            put(module, key, _for_packages(value, f"{key} of {name}"))


def _for_packages(original: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_installed(sys._getframe(1).f_code.co_filename):
            _refuse(what)
        return original(*args, **kwargs)

    return call


def _refuse_numba(put: Put) -> None:
    from numba.cuda.dispatcher import CUDADispatcher

    put(CUDADispatcher, "configure", functools.partial(_refuse, "a kernel of numba.cuda"))


_ADAPTERS: dict[str, Callable[[Put], None]] = {
    "torch.cuda._utils": _refuse_torchs_compiler,
    "numba.cuda": _refuse_numba,
    "cuda.bindings.driver": functools.partial(_refuse_bindings, "cuda.bindings.driver"),
    "cuda.bindings.nvrtc": functools.partial(_refuse_bindings, "cuda.bindings.nvrtc"),
    "cuda.bindings.runtime": functools.partial(_refuse_bindings, "cuda.bindings.runtime"),
    "cuda.core": functools.partial(_refuse, "cuda.core"),
    "pycuda": functools.partial(_refuse, "PyCUDA"),
    "cupy": functools.partial(_refuse, "CuPy"),
}
