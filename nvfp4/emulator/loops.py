"""Loops over lanes and bytes, compiled to machine code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's nopython mode without the GIL, cached on disk where that is possible."""
    try:
        result: Any = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)
    cache = result._cache

    def save(*arguments: Any) -> None:
        with contextlib.suppress(OSError):  # the folder is not ours to write, or the disk is full
            type(cache).save_overload(cache, *arguments)

    cache.save_overload = save
    return result
