"""Operands for one instruction: random bits, numbers that meet, and special values."""

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import REGISTER_DTYPES, Op

Array = np.ndarray[Any, Any]

_FLOATS = {"b16": [(10, 5), (7, 8)], "b32": [(23, 8)], "b64": [(52, 11)]}
_MOST_COMBINATIONS = 1 << 16


def special_values(kind: str) -> Array:
    """Edges of integers and of the floats of a width: zeros, subnormals, ones, infinities, NaNs."""
    dtype = REGISTER_DTYPES[kind]
    if kind == "pred":
        return np.array([False, True])
    width = 8 * dtype.itemsize
    top = 1 << (width - 1)
    values = {0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 255, top - 1, top, top + 1}
    values |= {2 * top - 2, 2 * top - 1}
    for mantissa, exponent in _FLOATS.get(kind, []):
        one = ((1 << (exponent - 1)) - 1) << mantissa
        infinity = ((1 << exponent) - 1) << mantissa
        normal = 1 << mantissa
        sizes = [1, 2, normal // 2, normal - 1, normal, normal + 1, one - normal, one - 1, one]
        sizes += [one + 1, one + normal, one + 3 * normal // 2, 2 * one, infinity - 1, infinity]
        sizes += [infinity + 1, infinity + normal // 2, infinity + normal - 1]
        # Values at which integer conversions saturate: 2**7 to 2**64.
        sizes += [one + bits * normal for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
        values |= {size for size in sizes if 0 <= size < top}
        values |= {size | top for size in sizes if 0 <= size < top}
    return np.array(sorted(value % (2 * top) for value in values), dtype=np.uint64).astype(dtype)


def _near_floats(rng: np.random.Generator, kind: str, count: int) -> Array:
    """Floats with exponents so close that sums cancel and round."""
    dtype = REGISTER_DTYPES[kind]
    width = 8 * dtype.itemsize
    mantissa, exponent = _FLOATS[kind][0]
    if kind == "b32" and rng.random() < 0.25:
        halves = _near_floats(rng, "b16", 2 * count)
        return halves.view(np.uint32)
    bias = (1 << (exponent - 1)) - 1
    # Half of all draws lie near 1, half near the smallest normal number.
    centre = np.where(rng.random(count) < 0.5, bias, 3)
    field = np.maximum(centre + rng.integers(-3, 4, count), 0).astype(np.uint64)
    fraction = rng.integers(0, 1 << mantissa, count, dtype=np.uint64)
    few = rng.random(count) < 0.5
    fraction = np.where(few, fraction & np.uint64(~((1 << (mantissa - 5)) - 1) % 2**64), fraction)
    sign = rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(width - 1)
    return (sign | field << np.uint64(mantissa) | fraction).astype(dtype)


def _random(rng: np.random.Generator, kind: str, count: int) -> Array:
    """A third each: uniform bits, close floats, small integers of both signs."""
    dtype = REGISTER_DTYPES[kind]
    if kind == "pred":
        return rng.random(count) < 0.5
    parts = [rng.integers(0, np.iinfo(dtype).max, count, dtype=dtype, endpoint=True)]
    if kind in _FLOATS:
        parts.append(_near_floats(rng, kind, count))
    parts.append(rng.integers(-70, 70, count).astype(dtype))
    return np.choose(rng.integers(0, len(parts), count), parts).astype(dtype)


def operands(op: Op, count: int, seed: int = 2026) -> list[Array]:
    """At least `count` random operand sets, then combinations of special values.

    One array a source. All combinations unless they
    are more than 65536; then that many of them at random.
    """
    kinds = op.sources
    return list(_columns(kinds, count, seed))


@lru_cache(maxsize=16)
def _columns(kinds: tuple[str, ...], count: int, seed: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    specials = [special_values(kind) for kind in kinds]
    total = int(np.prod([len(values) for values in specials]))
    if total <= _MOST_COMBINATIONS:
        picks = np.array(list(product(*(range(len(values)) for values in specials))))
    else:
        picks = np.stack([rng.integers(0, len(v), _MOST_COMBINATIONS) for v in specials], axis=1)
    return tuple(
        np.concatenate([_random(rng, kind, count), values[picks[:, i]]])
        for i, (kind, values) in enumerate(zip(kinds, specials, strict=True))
    )
