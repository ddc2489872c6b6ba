"""Loops over lanes and bytes, compiled to machine code."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba

LOOPS: dict[str, Any] = {}
"""The loops of all loaded modules, by module and name."""

COMPILED: list[tuple[str, tuple[Any, ...]]] = []
"""Loops that this process compiled because no cache held them: name and types of arguments."""


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop in Numba's nopython mode without the GIL, cached on disk if possible."""
    result: Any = numba.njit(nogil=True)(function)
    name = f"{function.__module__}.{function.__name__}"
    LOOPS[name] = result
    with contextlib.suppress(RuntimeError):  # no folder is writable
        result.enable_caching()
    cache = result._cache

    def save(types: tuple[Any, ...], code: Any) -> None:
        COMPILED.append((name, types))
        with contextlib.suppress(OSError):  # the folder is read-only, or the disk is full
            type(cache).save_overload(cache, types, code)

    cache.save_overload = save
    return result


background = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
"""Two threads for loops, each of which runs what it gets one after the other."""
