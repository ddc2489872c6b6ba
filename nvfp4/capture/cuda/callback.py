"""The addresses that compiled host code calls, with a function's name and its arguments.

RUNTIME: for functions of the CUDA runtime. DRIVER: for those of the driver, whose codes differ.
"""

from __future__ import annotations

import ctypes

from nvfp4.capture.codes import Code, CudaError, in_the_driver
from nvfp4.capture.cuda import calls, driver_calls, entries, nvrtc_calls
from nvfp4.capture.cuda.runtime import RUNTIME as _RUNTIME

_ENTRIES = calls, driver_calls, nvrtc_calls  # imported, they are registered
_KIND = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)


@_KIND
def _runtime(name: bytes, words: int) -> int:
    function = name.decode()
    try:
        return entries.call(_RUNTIME, function, words)
    except CudaError as error:
        return _RUNTIME.fail(error, function.startswith("launch"))
    except BaseException as error:
        return _RUNTIME.keep(error)


@_KIND
def _driver(name: bytes, words: int) -> int:
    if not _RUNTIME.is_on:
        return Code.NO_DEVICE  # packages keep the library beyond the emulation
    try:
        return entries.call(_RUNTIME, name.decode(), words)
    except CudaError as error:
        return _RUNTIME.refuse(in_the_driver(error.code), error.message)
    except BaseException as error:
        return _RUNTIME.keep(error)


RUNTIME = ctypes.cast(_runtime, ctypes.c_void_p).value
DRIVER = ctypes.cast(_driver, ctypes.c_void_p).value
