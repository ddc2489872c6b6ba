"""Modules that a submission gives to the driver itself, as it does with what NVRTC has compiled for
it: by cuda.bindings, or by libcuda through ctypes, as torch.cuda._compile_kernel does.

PTX that this GPU does not run is rewritten as it is loaded; all else reaches the driver untouched.
"""

import ctypes
import functools
import re
from collections.abc import Callable
from typing import Any

from nvfp4.capture.device import runs_on
from nvfp4.capture.imports import when_imported
from nvfp4.retarget.errors import DriverError

Translate = Callable[[str], str]

LOADING = ("cuModuleLoadData", "cuModuleLoadDataEx", "cuLibraryLoadData")
"""Functions of the driver that take a module's text or machine code."""

_POINTERS = ctypes.c_void_p | ctypes.c_char_p | ctypes._Pointer | type(ctypes.byref(ctypes.c_int()))
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\w+)", re.MULTILINE)
_ELF = b"\x7fELF"
_NO_BINARY = 209  # CUDA_ERROR_NO_BINARY_FOR_GPU


def start_loading(translate: Translate, capability: Callable[[], tuple[int, int]]) -> None:
    """From now on these functions load ``translate(ptx)`` in place of PTX for another GPU.

    capability: this GPU's, asked for at the first such call. What `translate` raises surfaces in
    the caller, and so does DriverError for machine code of another GPU, which nothing rewrites.
    """

    def fitting(image: bytes) -> bytes | None:
        """What is to be loaded in place of an image; None where it may stay."""
        target = _TARGET.search(image)
        if target is None or runs_on(f"compute_{target[1].decode()}", capability()):
            return None
        return translate(image.partition(b"\0")[0].decode()).encode() + b"\0"

    when_imported("cuda.bindings.driver", functools.partial(_take_bindings, fitting))
    _take_ctypes(fitting)


def _take_bindings(fitting: Callable[[bytes], bytes | None]) -> None:
    from cuda.bindings import driver

    def taken(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(image: Any, *rest: Any, **named: Any) -> Any:
            content = _content(image)
            answer = original(fitting(content) or image, *rest, **named)
            _refuse_machine_code(content, int(answer[0]))
            return answer

        return load

    for name in LOADING:
        if hasattr(driver, name):
            setattr(driver, name, taken(getattr(driver, name)))


def _take_ctypes(fitting: Callable[[bytes], bytes | None]) -> None:
    original = ctypes.CDLL.__getitem__

    def look_up(self: ctypes.CDLL, name: Any) -> Any:
        function = original(self, name)
        return _Loading(function, fitting) if name in LOADING else function

    ctypes.CDLL.__getitem__ = look_up  # type: ignore[method-assign]


class _Loading:
    """A function of libcuda with its second argument, an image, replaced where need be."""

    def __init__(self, function: Any, fitting: Callable[[bytes], bytes | None]) -> None:
        self.__dict__.update(_function=function, _fitting=fitting)

    def __call__(self, handle: Any, image: Any, *rest: Any) -> Any:
        content = _content(image)
        status = self._function(handle, self._fitting(content) or image, *rest)
        _refuse_machine_code(content, status)
        return status

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __setattr__(self, name: str, value: Any) -> None:  # argtypes, restype
        setattr(self._function, name, value)


def _content(image: Any) -> bytes:
    """The bytes of an image, up to a zero where only its address is known."""
    if not isinstance(image, int | _POINTERS):
        return bytes(memoryview(image))
    address = image if isinstance(image, int) else ctypes.cast(image, ctypes.c_void_p).value
    return ctypes.string_at(address) if address else b""


def _refuse_machine_code(content: bytes, status: int) -> None:
    if status == _NO_BINARY and content.startswith(_ELF):
        raise DriverError(
            "the submission loads machine code of another GPU, which cannot be rewritten",
            hint="compile to PTX (nvrtcGetPTX), which can, or judge without the GPU: --device cpu",
        )
