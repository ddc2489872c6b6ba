"""The one address that compiled host code calls, with a function's name and its arguments."""

from __future__ import annotations

import ctypes

from nvfp4.capture.cuda import calls
from nvfp4.capture.cuda.runtime import RUNTIME, CudaError


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)
def _callback(name: bytes, words: int) -> int:
    function = name.decode()
    try:
        return calls.call(RUNTIME, function, words)
    except CudaError as error:
        return RUNTIME.fail(error, function.startswith("launch"))
    except BaseException as error:
        return RUNTIME.keep(error)


ADDRESS = ctypes.cast(_callback, ctypes.c_void_p).value
