"""torch.utils.cpp_extension.load_inline and load, for a machine without a GPU.

They take what torch's take. What is built differs: PTX for the pretended device, and host code
that talks to the runtime beside this file.
"""

import ctypes
import functools
import importlib.machinery
import importlib.util
import inspect
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from nvfp4.capture.cuda.architectures import nvccs_images, torchs_options
from nvfp4.capture.cuda.build import Built, Request, Source, build
from nvfp4.capture.cuda.compilers import LoadError
from nvfp4.capture.cuda.flags import own_include_paths, with_own_flags
from nvfp4.capture.cuda.runtime import RUNTIME, WHAT_WORKS, checked
from nvfp4.capture.cuda.source_lines import CXX_IN_PYTHON, SHOWN_AS, in_file, texts
from nvfp4.capture.cuda.toolchain import refuse_other_compiler
from nvfp4.capture.frames import users_file
from nvfp4.records.launch_errors import UnsupportedCall

_CPP_START = "#include <torch/extension.h>\n"
_CUDA_START = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"

_OF_CUDA = re.compile(
    r"undefined symbol: "
    r"(cu(?:[A-Z]|blas|da|dnn|fft|rand|solver|sparse|tensor)\w*|nv(?:[A-Z]|rtc|ml|tx)\w*|n(?:pp|ccl)\w+)"
)

_loaded: dict[Path, Any] = {}
_loading = threading.Lock()


def load_inline(given: dict[str, Any]) -> Any:
    """Build an extension from strings. Return its module, or the path of the library if it is not a
    Python module.

    Raises MissingToolchain, CompileError and UnsupportedCall.
    """
    if given.get("sycl_sources"):
        raise UnsupportedCall("SYCL sources cannot be built for a CUDA device")
    caller = users_file()
    cpp, cuda = texts(given["cpp_sources"]), texts(given["cuda_sources"])
    plain = given.get("no_implicit_headers")
    sources = []
    bindings = _bindings(given["functions"], given["with_pytorch_error_handling"])
    if cpp or bindings:
        text = ("" if plain else _CPP_START) + _joined(cpp, caller) + bindings
        sources.append(Source("main.cpp", text))
    if cuda:
        sources.append(Source("cuda.cu", ("" if plain else _CUDA_START) + _joined(cuda, caller)))
    return _load(_request(given, sources), given["is_python_module"], caller)


def load(given: dict[str, Any]) -> Any:
    """Build an extension from files; see `load_inline`."""
    if given["is_standalone"]:
        raise UnsupportedCall("load(is_standalone=True) makes a program, which cannot be emulated")
    paths = [Path(each).resolve() for each in texts(given["sources"])]
    files = [Source(path.name, path.read_text(encoding="utf-8"), path) for path in paths]
    return _load(_request(given, files), given["is_python_module"], users_file())


def taking_what_torch_takes(
    build: Callable[[dict[str, Any]], Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`load` or `load_inline`, called as torch's original is."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            return build(given.arguments)

        return call

    return make


def _request(given: dict[str, Any], sources: list[Source]) -> Request:
    if (folder := given["build_directory"]) and not Path(folder).is_dir():
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {folder!r}")
    flags = ("cflags", "cuda_cflags", "ldflags", "include_paths")
    words = {each: tuple(texts(given[f"extra_{each}"])) for each in flags}
    import torch.utils.cpp_extension as torchs

    refuse_other_compiler(torchs.CUDA_HOME)
    # With these there are fewer operators on half types than CUDA has, unless a submission says so.
    common, own = torchs.COMMON_NVCC_FLAGS, words["cuda_cflags"]
    capability = RUNTIME.device.capability
    words["cuda_cflags"] = with_own_flags((*common, *torchs_options(own, capability), *own))
    words["include_paths"] = (*words["include_paths"], *own_include_paths())
    images = nvccs_images(words["cuda_cflags"], capability)
    return Request(given["name"], tuple(sources), images, capability, **words)


def _joined(sources: list[str], caller: Path) -> str:
    """Return the sources joined, each with #line directives for its lines in the caller's file."""
    return "\n".join(in_file(each, caller) for each in sources) + "\n"


def _bindings(functions: str | Iterable[str] | dict[str, str] | None, guarded: bool) -> str:
    """Return the text of a PYBIND11_MODULE for functions that C++ declares."""
    if functions is None:
        return ""
    if isinstance(functions, str):
        functions = [functions]
    documented = functions if isinstance(functions, dict) else {each: each for each in functions}
    lines = []
    for function, text in documented.items():
        value = f"torch::wrap_pybind_function({function})" if guarded else f"&{function}"
        lines.append(f'm.def("{function}", {value}, "{text}");')
    bound = " ".join(lines)
    return f'\n#line 1 "functions"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {bound} }}\n'


def _load(request: Request, is_python_module: bool, caller: Path) -> Any:
    built = build(request)
    with _loading:  # kernels are registered meanwhile, and a thread that waits for another hangs
        return _load_once(request, built, is_python_module, caller)


def _load_once(request: Request, built: Built, is_python_module: bool, caller: Path) -> Any:
    if built.library not in _loaded:
        texts, with_suffix = (
            tuple(text.replace(SHOWN_AS, f"{caller.parent}{CXX_IN_PYTHON}") for text in each)
            for each in (built.ptx, built.with_suffix)
        )
        built = replace(built, ptx=texts, with_suffix=with_suffix)
        RUNTIME.loading(built)
        try:
            if is_python_module:
                opened: Any = _import(request.name, built.library)
            else:  # it registers operators for torch.ops when it is opened
                ctypes.CDLL(opened := str(built.library))
        except (ImportError, OSError) as error:
            unknown = _OF_CUDA.search(str(error))
            if unknown is not None:
                message = f"host code calls {unknown[1]} of a CUDA library, which is not emulated"
                raise UnsupportedCall(message, hint=WHAT_WORKS) from error
            raise LoadError(request.name, error) from error
        finally:
            RUNTIME.loading(None)
        RUNTIME.raise_pending()
        _loaded[built.library] = opened
    return _loaded[built.library]


def _import(name: str, library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    for attribute, value in list(vars(module).items()):
        if callable(value) and not isinstance(value, type):
            setattr(module, attribute, checked(value))
    return module
