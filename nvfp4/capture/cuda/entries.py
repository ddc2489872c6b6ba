"""The Python functions that C++ calls by name: what each takes from 64-bit words and gives back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nvfp4.capture.cuda.runtime import CudaRuntime


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

    def __call__(self, runtime: CudaRuntime, words: int) -> int:
        target = ctypes.c_uint64.from_address(words).value if self.gives else 0
        start = words + 8 if self.gives else words
        given: list[Any] = list((ctypes.c_uint64 * self.count).from_address(start))
        for index in self.texts:
            given[index] = text_at(given[index])
        result = self.function(runtime, *given)
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
    return function.__annotations__.get(parameter) == "str"


def call(runtime: CudaRuntime, name: str, words: int) -> int:
    """Carry out a function whose arguments are 64-bit words at an address; its error code."""
    if name not in _ALWAYS:
        runtime.raise_if_lost()
    try:
        return _entries[name](runtime, words)
    except Returned as returned:
        return int(returned.args[0])


def text_at(address: int) -> str:
    """A C string."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def store(address: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    """Write a result where C++ wants it."""
    kind.from_address(address).value = value
