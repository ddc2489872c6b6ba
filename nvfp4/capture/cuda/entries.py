"""The Python functions that C++ calls by name: what each takes from 64-bit words and gives back.

RUNTIME and DRIVER: the addresses that C++ calls, for functions of the CUDA runtime and for those of
the driver, whose codes differ.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nvfp4.capture.codes import Code, CudaError, in_the_driver
from nvfp4.capture.cuda import runtime


@dataclass(frozen=True)
class _Entry:
    """gives: the C type of the result, which goes to the address in the first word; None for a
    function that returns an error code, where it does not return None. texts: the indices of
    arguments that are addresses of C strings.
    """

    function: Callable[..., Any]
    count: int
    texts: tuple[int, ...]
    gives: Any

    def __call__(self, words: int) -> int:
        target = ctypes.c_uint64.from_address(words).value if self.gives else 0
        start = words + 8 if self.gives else words
        given: list[Any] = list((ctypes.c_uint64 * self.count).from_address(start))
        for index in self.texts:
            given[index] = text_at(given[index])
        result = self.function(runtime.RUNTIME, *given)
        if not self.gives:
            return result or 0
        if target:
            store(target, result, self.gives)
        return 0


class Returned(Exception):
    """Ends a function of another library than the runtime; the argument is its code."""


_entries: dict[str, _Entry] = {}
# What may be called after a fault; all else fails as on a lost device.
_ALWAYS = {
    *("register_module", "register_function", "register_variable", "register_managed"),
    *("error_text", "error_name", "cudaGetLastError", "cudaPeekAtLastError", "cudaFree"),
    *("device_number", "device_name", "cudaMemGetInfo", "cudaDeviceGetAttribute", "new_handle"),
    *("driver_error_name", "module_unload", "destroy"),
}


def entry(name: str | None = None, gives: Any = None) -> Callable[[Any], Any]:
    """A function that C++ can call. It takes the runtime, numbers, and strings where it says so;
    more words than it takes are not looked at. It raises CudaError for what CUDA refuses.

    name: other than its own. gives: see `_Entry`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        code = function.__code__
        parameters = code.co_varnames[1 : code.co_argcount]
        texts = [i for i, each in enumerate(parameters) if _is_text(function, each)]
        made = _Entry(function, len(parameters), tuple(texts), gives)
        _entries[name or function.__name__] = made
        return function

    return register


def _is_text(function: Callable[..., Any], parameter: str) -> bool:
    return function.__annotations__.get(parameter) in (str, "str")


def _call(name: bytes, words: int) -> int:
    """Carry out a function whose arguments are 64-bit words at an address; its error code."""
    if name.decode() not in _ALWAYS:
        runtime.RUNTIME.raise_if_lost()
    try:
        return _entries[name.decode()](words)
    except Returned as returned:
        return int(returned.args[0])


def text_at(address: int) -> str:
    """A C string."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def store(address: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    """Write a result where C++ wants it."""
    kind.from_address(address).value = value


_KIND = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)


@_KIND
def _runtime(name: bytes, words: int) -> int:
    try:
        return _call(name, words)
    except CudaError as error:
        return runtime.RUNTIME.fail(error, name.startswith(b"launch"))
    except BaseException as error:
        return runtime.RUNTIME.keep(error)


@_KIND
def _driver(name: bytes, words: int) -> int:
    if not runtime.RUNTIME.is_on:
        return Code.NO_DEVICE  # packages keep the library beyond the emulation
    try:
        return _call(name, words)
    except CudaError as error:
        return runtime.RUNTIME.refuse(in_the_driver(error.code), error.message)
    except BaseException as error:
        return runtime.RUNTIME.keep(error)


RUNTIME = ctypes.cast(_runtime, ctypes.c_void_p).value
DRIVER = ctypes.cast(_driver, ctypes.c_void_p).value
