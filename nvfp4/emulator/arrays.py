"""Arrays of numbers: pairs that are compared at once, and which of them are distinct."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Arrays: TypeAlias = Sequence[Array]

_SHIFT, _LOW = np.uint64(48), np.uint64((1 << 48) - 1)


def pairs_of(high: Array, low: Array) -> Array:
    """Return uint64 that hold a number, such as a warp's, above another of at most 48 bits, such as
    an address."""
    return high.astype(np.uint64, copy=False) << _SHIFT | low.astype(np.uint64, copy=False)


def halves_of(pairs: Array) -> tuple[Array, Array]:
    """Return the numbers that pairs hold, int64 and uint64."""
    return (pairs >> _SHIFT).astype(np.int64), pairs & _LOW


def begin_of_runs(numbers: Array) -> Array:
    """Return whether each number differs from the one before it, bool[n]."""
    begins = np.ones(numbers.size, np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=begins[1:])
    return begins


def distinct(numbers: Array) -> Array:
    """Return the distinct numbers, ascending. NumPy's `unique` hashes them, which takes six times
    as long."""
    ordered = np.sort(numbers, axis=None)
    return ordered[begin_of_runs(ordered)]
