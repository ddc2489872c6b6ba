"""SIMD video instructions: arithmetic on the halves or bytes of a register.

Without masks and selectors, so that every lane of a takes part with that of b in its place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nvfp4.emulator.arithmetic.lanes import common_shape, split
from nvfp4.emulator.arithmetic.table import Modifiers, Op, instruction
from nvfp4.emulator.ptx.types import Array


def _average(a: Array, b: Array) -> Array:
    """Halves are rounded away from zero if the sum is positive, else down."""
    total = a + b
    return (total + (total >= 0)) >> 1


_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": _average,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


@instruction(*(f"{name}{lanes}" for name in _OPERATIONS for lanes in (2, 4)))
def _video(m: Modifiers) -> Op:
    """vop{2,4}.dtype.atype.btype{.sat|.add} d, a, b, c: c is added to the sum of the results, or
    not used."""
    signs = ["i" if m.type("u32", "s32").name == "s32" else "u" for _ in range(3)]
    saturates, accumulates = m.flag("sat"), m.flag("add")
    if saturates and accumulates:
        raise m.refuse(".sat and .add exclude each other")
    operate, nbytes = _OPERATIONS[m.mnemonic[:-1]], 4 // int(m.mnemonic[-1])
    d, a, b = (np.dtype(f"{sign}{nbytes}") for sign in signs)

    def function(*words: Array) -> Array:
        shape = common_shape(words)
        left, right = split(words[0], shape, a), split(words[1], shape, b)
        found = operate(left.astype(np.int64), right.astype(np.int64))
        if accumulates:
            total = found.reshape(-1, 4 // nbytes).sum(axis=1).astype(np.uint32)
            return np.add(total.reshape(shape), words[2])
        if saturates:
            found = found.clip(np.iinfo(d).min, np.iinfo(d).max)
        return found.astype(f"u{nbytes}").view(np.uint32).reshape(shape)

    return m.op("integer", ["b32"] * 3, ["b32"], function)
