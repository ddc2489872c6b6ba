"""Operands and one call for tests of lane instructions."""

from itertools import product
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import REGISTER_DTYPES, Op, resolve

WIDTHS = {"b8": 8, "b16": 16, "b32": 32, "b64": 64}


def call(opcode: str, *sources: Any, results: int = 1, count: int | None = None) -> Any:
    """The results of one lane, as Python ints (one alone, else a tuple). Sources are ints."""
    op = resolve(opcode, results, count)
    kinds = op.sources
    arrays = [
        np.array([source], dtype=REGISTER_DTYPES[kind])
        for source, kind in zip(sources, kinds, strict=True)
    ]
    out = tuple(int(result[0]) for result in op.function(*arrays))
    return out[0] if len(out) == 1 else out


def special(kind: str) -> list[int]:
    """Values of a register class at which something happens, as integer or as float."""
    if kind == "pred":
        return [0, 1]
    width = WIDTHS[kind]
    top = 1 << (width - 1)
    values = {
        0,
        1,
        2,
        3,
        5,
        31,
        32,
        33,
        63,
        64,
        65,
        255,
        top - 1,
        top,
        top + 1,
        2 * top - 1,
        2 * top - 2,
    }
    for mantissa, exponent in {16: [(10, 5), (7, 8)], 32: [(23, 8)], 64: [(52, 11)]}.get(width, []):
        one = ((1 << (exponent - 1)) - 1) << mantissa
        infinity = ((1 << exponent) - 1) << mantissa
        sizes = [1, (1 << mantissa) - 1, 1 << mantissa, one - 1, one, one + 1, 2 * one]
        sizes += [infinity - 1, infinity, infinity + 1, infinity | 1 << (mantissa - 1)]
        values |= set(sizes) | {size | top for size in sizes}
    return sorted(value % (2 * top) for value in values)


def operands(op: Op, count: int, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """`count` random operand sets, then special ones in every combination (at most 4096)."""
    rng = np.random.default_rng(seed)
    kinds = op.sources
    chosen = [special(kind) for kind in kinds]
    combinations = list(product(*chosen))
    if len(combinations) > 4096:
        picks = rng.choice(len(combinations), 4096, replace=False)
        combinations = [combinations[i] for i in picks]
    columns = []
    for i, kind in enumerate(kinds):
        dtype = REGISTER_DTYPES[kind]
        if kind == "pred":
            drawn = rng.random(count) < 0.5
        else:
            drawn = rng.integers(0, np.iinfo(dtype).max, count, dtype=dtype, endpoint=True)
            # A quarter of them small, so that amounts, lengths and equal values occur.
            drawn = np.where(rng.random(count) < 0.25, drawn % dtype.type(70), drawn)
        column = [combination[i] for combination in combinations]
        columns.append(np.concatenate([drawn, np.array(column, dtype=dtype)]).astype(dtype))
    return columns
