"""Values chosen by a condition or an index, compiled: NumPy takes ten times as long where the next
choice cannot be foreseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nvfp4.emulator.arithmetic.lanes import common_shape, flat
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array


@loop
def _select(chosen, new, old, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = new[i] if chosen[i] else old[i]


def select(chosen: Array, new: Array, old: Array) -> Array:
    """`new` where `chosen` holds, else `old`; both of one dtype, in shapes that broadcast."""
    shape = common_shape((chosen, new, old))
    out = np.empty(shape, new.dtype)
    _select(flat(chosen, shape), flat(new, shape), flat(old, shape), out.reshape(-1))
    return out


@loop
def take(table, codes, out):  # type: ignore[no-untyped-def]
    """Writes table[codes[i]] to out[i]."""
    for i in range(codes.shape[0]):
        out[i] = table[codes[i]]


def lookup(table: Array) -> Callable[[Array], Array]:
    """A function of uint8 lanes: `table[i]`, of 256 entries."""

    def looked_up(lanes: Array) -> Array:
        out = np.empty(lanes.size, table.dtype)
        take(table, np.ascontiguousarray(lanes).reshape(-1), out)
        return out.reshape(lanes.shape)

    return looked_up


def compile_all() -> Iterator[None]:
    """`select` for every kind of register, one a step."""
    for word in (np.bool_, np.uint16, np.uint32, np.uint64):
        select(np.empty(0, np.bool_), np.empty(0, word), np.empty(0, word))
        yield
