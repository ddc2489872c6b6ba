"""The Python functions that C++ calls by name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from nvfp4.capture.cuda.runtime import CudaRuntime

Function = Callable[..., "int | None"]

_functions: dict[str, tuple[Function, int]] = {}
# What may be called after a fault; all else fails as on a lost device.
_ALWAYS = {
    *("register_module", "register_function", "register_variable", "register_managed"),
    *("error_text", "error_name", "cudaGetLastError", "cudaPeekAtLastError", "cudaFree"),
    *("device_number", "device_name", "cudaMemGetInfo", "cudaDeviceGetAttribute", "new_handle"),
    *("driver_error_name", "module_unload", "destroy"),
}


def entry(name: str | None = None) -> Callable[[Function], Function]:
    """A function that C++ can call: it takes the runtime and 64-bit words, addresses among them.

    It returns an error code, None being success, or raises CudaError. name: other than its own.
    """

    def register(function: Function) -> Function:
        count = function.__code__.co_argcount - 1
        _functions[name or function.__name__] = (function, count)
        return function

    return register


def call(runtime: CudaRuntime, name: str, words: int) -> int:
    """Carry out a function whose arguments are 64-bit words at an address; its error code."""
    function, count = _functions[name]
    if name not in _ALWAYS:
        runtime.raise_if_lost()
    return function(runtime, *(ctypes.c_uint64 * count).from_address(words)) or 0


def store(address: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    """Write a result where C++ wants it."""
    kind.from_address(address).value = value
