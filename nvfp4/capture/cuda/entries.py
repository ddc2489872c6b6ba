"""The Python functions that C++ calls by name, and how their arguments and results are passed as
64-bit words.

RUNTIME: the address that C++ calls.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from nvfp4.capture.codes import CudaError
from nvfp4.capture.cuda import runtime
from nvfp4.records.base import Record


class _Entry(Record):
    """A function that compiled host code can call."""

    function: Callable[..., Any]
    count: int
    texts: tuple[int, ...]
    """Indices of the arguments that are addresses of C strings."""
    gives: Any
    """C type of the result, which is written to the address in the first word; None for a function
    that returns an error code."""
    handles: tuple[int, ...]
    """Indices of the arguments that are handles of streams."""
    events: tuple[int, ...]
    """Indices of those that are handles of events, or of streams that can be destroyed."""

    def __call__(self, words: int) -> int:
        target = ctypes.c_uint64.from_address(words).value if self.gives else 0
        start = words + 8 if self.gives else words
        given: list[Any] = list((ctypes.c_uint64 * self.count).from_address(start))
        for index in self.texts:
            text = ctypes.string_at(given[index]) if given[index] else b""
            given[index] = text.decode(errors="replace")
        for least, indices in ((0, self.handles), (_FIRST_EVENT, self.events)):
            for index in indices:
                runtime.RUNTIME.require_handle(given[index], least)
        result = self.function(runtime.RUNTIME, *given)
        if not self.gives:
            return result or 0
        if target:
            store(target, result, self.gives)
        return 0


_HANDLES = ("stream", "event")
"""Names of the parameters that take handles."""
_FIRST_EVENT = 3  # behind the handles of the default stream
_entries: dict[str, _Entry] = {}
# Functions that work after a fault; all others fail as on a lost device.
_ALWAYS = {
    *("register_module", "register_function", "register_variable"),
    *("error_text", "error_name", "take_last_error", "cudaFree", "cudaFreeAsync", "destroy"),
    *("device_number", "device_name", "cudaMemGetInfo", "cudaDeviceGetAttribute", "new_handle"),
}


def entry(name: str | None = None, gives: Any = None, count: int = 0) -> Callable[[Any], Any]:
    """Decorate a function so that C++ can call it.

    The function takes the runtime, numbers, and strings where its annotations say so; further words
    are ignored. It raises CudaError for what CUDA refuses. name: its name in C++ if different.
    gives: see `_Entry`. count: how many numbers it takes, where it takes them as one tuple.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        code = function.__code__
        parameters = code.co_varnames[1 : code.co_argcount]
        kinds = [function.__annotations__.get(each) for each in parameters]
        texts = [i for i, kind in enumerate(kinds) if kind in (str, "str")]
        handles = (tuple(i for i, n in enumerate(parameters) if n == of) for of in _HANDLES)
        made = _Entry(function, count or len(parameters), tuple(texts), gives, *handles)
        _entries[name or function.__name__] = made
        return function

    return register


def store(address: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    """Write a result where C++ wants it."""
    kind.from_address(address).value = value


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)
def _call(name: bytes, words: int) -> int:
    """Carry out a function whose arguments are 64-bit words; return its error code."""
    try:
        if name.decode() not in _ALWAYS:
            runtime.RUNTIME.raise_if_lost()
        return _entries[name.decode()](words)
    except CudaError as error:
        return runtime.RUNTIME.fail(error, name.startswith(b"launch"))
    except BaseException as error:
        return runtime.RUNTIME.keep(error)


RUNTIME = ctypes.cast(_call, ctypes.c_void_p).value
