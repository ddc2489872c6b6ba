"""Python packages that compile or load kernels at run time: they get our driver and our NVRTC.

cuda.bindings and torch find the libraries of `libraries` where they look for NVIDIA's. Packages
that need more than those offer say so in one sentence.
"""

import ctypes
import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from nvfp4.capture.cuda import runtime_bindings
from nvfp4.capture.cuda.compilers import cache_folder, library
from nvfp4.capture.cuda.runtime import checked
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.capture.frames import is_installed
from nvfp4.capture.imports import when_imported
from nvfp4.records.launch_errors import UnsupportedCall

Put = Callable[[Any, str, Any], None]
"""Replaces an attribute of an object until the emulation ends."""

_WHAT_WORKS = (
    "CUDA text works through torch.cuda._compile_kernel, NVRTC with the driver API of "
    "cuda.bindings, and load_inline"
)
_SONAMES = {"cuda": "libcuda.so.1", "nvrtc": "libnvrtc.so.12"}
_OF_CUDA = re.compile(r"lib(cudart|cuda|nvrtc)(-[\w.-]+)?\.so[.\d]*")
_LARGEST_LIBRARY_BYTES = 64 << 20


def hook(put: Put) -> list[Callable[[], None]]:
    """Adapt each package once it is imported; returns what forgets those that are not yet."""
    put(ctypes.CDLL, "__init__", _refusing_kernels(ctypes.CDLL.__init__))
    return [when_imported(name, functools.partial(adapt, put)) for name, adapt in _ADAPTERS.items()]


@functools.cache
def _opened(name: str, soname: str = "") -> ctypes.CDLL:
    return ctypes.CDLL(str(library(name, soname)))


# torch.cuda._compile_kernel


def _adapt_torch(put: Put) -> None:
    import torch.cuda._utils as utils

    def nvrtc() -> ctypes.CDLL:
        import torch.utils.cpp_extension as extension

        if extension.CUDA_HOME is None:  # torch adds its folder of headers
            extension.CUDA_HOME = str(find_toolchain().include.parent)
        return _opened("nvrtc")

    for name, value in (
        ("_get_cuda_library", lambda: _opened("cuda")),
        ("_get_nvrtc_library", nvrtc),
    ):
        if hasattr(utils, name):
            put(utils, name, value)
    if hasattr(utils, "_CudaKernel"):
        put(utils._CudaKernel, "__call__", checked(utils._CudaKernel.__call__))


# cuda.bindings


def _adapt_bindings(name: str, package: str, put: Put) -> None:
    """A module of cuda.bindings whose functions a library has."""
    module = sys.modules[f"cuda.bindings.{package}"]
    loaders = [
        sys.modules[f"cuda.bindings.{each}"]
        for each in (f"_internal.{package}", f"_bindings.cy{package}")
        if hasattr(sys.modules.get(f"cuda.bindings.{each}"), "load_nvidia_dynamic_lib")
    ]
    for loader in loaders:
        put(loader, "load_nvidia_dynamic_lib", _loading_ours(loader.load_nvidia_dynamic_lib))
    # Cython code that opens the library by itself finds the one that is loaded already.
    prepare = (lambda: None) if loaders else lambda: _opened(name, _SONAMES[name])
    prefix = "nvrtc" if name == "nvrtc" else "cu"
    for key, value in list(vars(module).items()):
        if key.startswith(prefix) and callable(value) and not isinstance(value, type):
            put(module, key, _supported(checked(value), prepare))
    if hasattr(module, "cuEventElapsedTime"):
        put(module, "cuEventElapsedTime", runtime_bindings.refuse_time)


def _loading_ours(original: Callable[[str], Any]) -> Callable[[str], Any]:
    """cuda.pathfinder.load_nvidia_dynamic_lib with our libraries."""

    def load(libname: str) -> Any:
        if libname not in _SONAMES:
            return original(libname)
        return SimpleNamespace(
            abs_path=str(library(libname)),
            was_already_loaded_from_elsewhere=False,
            _handle_uint=_opened(libname)._handle,
            found_via="nvfp4",
        )

    return load


def _supported(function: Callable[..., Any], prepare: Callable[[], Any]) -> Callable[..., Any]:
    """A function that raises UnsupportedCall where the library does not have it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        prepare()
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if "not found" not in str(error):
                raise
            raise UnsupportedCall(
                f"{function.__name__} of cuda.bindings is not emulated",
                hint="modules, launches, memory, streams, events and attributes are",
            ) from error

    return call


# What does not work


def _refusing_kernels(original: Callable[..., None]) -> Callable[..., None]:
    """ctypes.CDLL that refuses what nvcc built for a GPU: its launches would do nothing."""

    @functools.wraps(original)
    def init(self: Any, name: Any = None, *args: Any, **kwargs: Any) -> None:
        name = _stand_in(name, sys._getframe(1)) if name else name
        path = Path(os.fsdecode(name)).absolute() if name and "/" in os.fsdecode(name) else None
        if path is not None and _is_of_nvcc(path):
            raise UnsupportedCall(
                f"{path.name} has kernels that nvcc compiled for a GPU",
                hint="build its sources with torch.utils.cpp_extension.load",
            )
        original(self, name, *args, **kwargs)

    return init


def _stand_in(name: Any, caller: FrameType) -> Any:
    """The library that stands in for one of CUDA's, where a submission opens it; packages look for
    a GPU with it. Raises UnsupportedCall for the runtime."""
    found = _OF_CUDA.fullmatch(Path(os.fsdecode(name)).name)
    if found is None or is_installed(_file(caller)):
        return name
    if found[1] == "cudart":
        raise UnsupportedCall(
            "libcudart is not emulated where ctypes opens it",
            hint="build its callers with torch.utils.cpp_extension, or use libcuda",
        )
    return str(library(found[1], ""))


def _file(frame: FrameType) -> str:
    """Of a frame's code, or of whoever has called ctypes."""
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent.name == "ctypes":
        frame = frame.f_back
    return frame.f_code.co_filename


def _is_of_nvcc(path: Path) -> bool:
    installed = cache_folder() in path.parents or is_installed(path)
    if installed or not path.is_file() or path.stat().st_size > _LARGEST_LIBRARY_BYTES:
        return False
    return b"__cudaRegisterFatBinary" in path.read_bytes()


def _refuse_package(name: str, put: Put) -> None:
    raise UnsupportedCall(f"{name} needs a GPU", hint=_WHAT_WORKS)


def _refuse_numba(put: Put) -> None:
    from numba.cuda.dispatcher import CUDADispatcher

    def configure(self: Any, *_: Any, **__: Any) -> Any:
        raise UnsupportedCall("kernels of numba.cuda need a GPU", hint=_WHAT_WORKS)

    put(CUDADispatcher, "configure", configure)


_ADAPTERS: dict[str, Callable[[Put], None]] = {
    "torch.cuda._utils": _adapt_torch,
    "cuda.bindings.driver": functools.partial(_adapt_bindings, "cuda", "driver"),
    "cuda.bindings.nvrtc": functools.partial(_adapt_bindings, "nvrtc", "nvrtc"),
    "cuda.bindings.runtime": runtime_bindings.adapt,
    "cuda.core": functools.partial(_refuse_package, "cuda.core"),
    "pycuda": functools.partial(_refuse_package, "PyCUDA"),
    "numba.cuda": _refuse_numba,
    "cupy": functools.partial(_refuse_package, "CuPy"),
}
