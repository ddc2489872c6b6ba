"""The few lane functions compiled to machine code, where NumPy would need many passes.

Each is a scalar function of register bits, compiled by Numba into a NumPy ufunc the first
time an instruction needs it (about 0.1 s, half of it with what Numba's cache keeps on disk). LLVM
vectorises them; the host's own fused multiply-add and half-precision conversions do the rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

from nvfp4.emulator.ptx.types import Array

Ufunc = Callable[..., Any]


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


def _cast(llvm_type: ir.Type, source: types.Type, target: types.Type) -> Any:
    """An intrinsic that reads the bits of `source` as `target` (same width)."""

    @intrinsic
    def cast(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], llvm_type)

        return target(source), generate

    return cast


_f32 = _cast(ir.FloatType(), types.uint32, types.float32)
_u32 = _cast(ir.IntType(32), types.float32, types.uint32)
_f64 = _cast(ir.DoubleType(), types.uint64, types.float64)
_u64 = _cast(ir.IntType(64), types.float64, types.uint64)


@intrinsic
def _fused(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once, in the type of a."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return a(a, a, a), generate


@intrinsic
def _from_half(typing_context: Any, half: Any) -> Any:
    """The float32 value of f16 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def _to_half(typing_context: Any, value: Any) -> Any:
    """The f16 bits of a float32, rounded to nearest even."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


def _fma_f32(a, b, c):  # type: ignore[no-untyped-def]
    result = _fused(_f32(a), _f32(b), _f32(c))
    return np.uint32(0x7FFFFFFF) if result != result else _u32(result)


def _add_f32(a, b):  # type: ignore[no-untyped-def]
    result = _f32(a) + _f32(b)
    return np.uint32(0x7FFFFFFF) if result != result else _u32(result)


def _sub_f32(a, b):  # type: ignore[no-untyped-def]
    result = _f32(a) - _f32(b)
    return np.uint32(0x7FFFFFFF) if result != result else _u32(result)


def _mul_f32(a, b):  # type: ignore[no-untyped-def]
    result = _f32(a) * _f32(b)
    return np.uint32(0x7FFFFFFF) if result != result else _u32(result)


def _fma_f64(a, b, c):  # type: ignore[no-untyped-def]
    return _u64(_fused(_f64(a), _f64(b), _f64(c)))


def _fma_f16(a, b, c):  # type: ignore[no-untyped-def]
    # The product is exact in float32. The sum is rounded to odd there (its error, exact by
    # Knuth's two-sum, decides the last bit), so that the step to f16 is the only rounding.
    product, addend = _from_half(a) * _from_half(b), _from_half(c)
    total = product + addend
    if total != total:
        return np.uint16(0x7FFF)
    part = total - product
    error = (product - (total - part)) + (addend - part)
    raw = _u32(total)
    # An infinite total has a NaN for its error and stays.
    if (error > 0 or error < 0) and raw & np.uint32(1) == 0:
        raw += np.uint32(1) if (error > 0) == (total > 0) else np.uint32(0xFFFFFFFF)
    return _to_half(_f32(raw))


# float32 has 24 bits, two more than twice the 11 of f16: rounding a sum or a product of two
# halves there first never changes the half it ends up at.
def _add_f16(a, b):  # type: ignore[no-untyped-def]
    result = _from_half(a) + _from_half(b)
    return np.uint16(0x7FFF) if result != result else _to_half(result)


def _sub_f16(a, b):  # type: ignore[no-untyped-def]
    result = _from_half(a) - _from_half(b)
    return np.uint16(0x7FFF) if result != result else _to_half(result)


def _mul_f16(a, b):  # type: ignore[no-untyped-def]
    result = _from_half(a) * _from_half(b)
    return np.uint16(0x7FFF) if result != result else _to_half(result)


def _flush_f32(word):  # type: ignore[no-untyped-def]
    return word & np.uint32(0x80000000) if word & np.uint32(0x7F800000) == 0 else word


# With .ftz subnormal operands and results count as zeros. The device decides after rounding to
# the format's precision with an exponent without bounds: the smallest normal number is flushed
# too, if the exact result lies so far below it that, rounded there, it stays below
# (floats.flush_result).
_SMALLEST_NORMAL = 2.0**-126
_ROUNDS_TO_LESS = _SMALLEST_NORMAL - 2.0**-151


def _add_f32_ftz(a, b):  # type: ignore[no-untyped-def]
    # A sum is exact down there.
    return _flush(_add(_flush(a), _flush(b)))


def _sub_f32_ftz(a, b):  # type: ignore[no-untyped-def]
    return _flush(_sub(_flush(a), _flush(b)))


def _mul_f32_ftz(a, b):  # type: ignore[no-untyped-def]
    x, y = _flush(a), _flush(b)
    result = _mul(x, y)
    if result & np.uint32(0x7FFFFFFF) == np.uint32(0x00800000):
        exact = np.float64(_f32(x)) * np.float64(_f32(y))
        if abs(exact) < _ROUNDS_TO_LESS:
            return result & np.uint32(0x80000000)
    return _flush(result)


def _fma_f32_ftz(a, b, c):  # type: ignore[no-untyped-def]
    x, y, z = _flush(a), _flush(b), _flush(c)
    result = _fma(x, y, z)
    if result & np.uint32(0x7FFFFFFF) == np.uint32(0x00800000):
        product, addend = np.float64(_f32(x)) * np.float64(_f32(y)), np.float64(_f32(z))
        total = product + addend
        # The error of the sum, exact by Knuth's two-sum, decides at the boundary.
        part = total - product
        error = (product - (total - part)) + (addend - part)
        size = abs(total)
        inwards = error if total < 0 else -error
        if size < _ROUNDS_TO_LESS or (size == _ROUNDS_TO_LESS and inwards > 0):
            return result & np.uint32(0x80000000)
    return _flush(result)


def _f16_to_f32(half):  # type: ignore[no-untyped-def]
    value = _from_half(half)
    return np.uint32(0x7FFFFFFF) if value != value else _u32(value)


def _f32_to_f16(word):  # type: ignore[no-untyped-def]
    value = _f32(word)
    return np.uint16(0x7FFF) if value != value else _to_half(value)


def _prmt(a, b, selector):  # type: ignore[no-untyped-def]
    pool = (np.uint64(b) << np.uint64(32)) | np.uint64(a)
    result = np.uint32(0)
    for i in range(4):
        nibble = (selector >> np.uint32(4 * i)) & np.uint32(15)
        byte = np.uint32(pool >> np.uint64((nibble & np.uint32(7)) << np.uint32(3)))
        byte &= np.uint32(255)
        if nibble & np.uint32(8):
            byte = np.uint32(255) if byte & np.uint32(128) else np.uint32(0)
        result |= byte << np.uint32(8 * i)
    return result


def _dp4a(a_type: Any, b_type: Any) -> Callable[..., Any]:
    def dp4a(a, b, c):  # type: ignore[no-untyped-def]
        total = c
        for i in range(4):
            left = np.int32(a_type((a >> np.uint32(8 * i)) & np.uint32(255)))
            right = np.int32(b_type((b >> np.uint32(8 * i)) & np.uint32(255)))
            total += np.uint32(left * right)
        return total

    return dp4a


# The same functions for the compiled ones to call.
_flush, _add, _sub, _mul, _fma = (
    numba.njit(each) for each in (_flush_f32, _add_f32, _sub_f32, _mul_f32, _fma_f32)
)

_SCALARS: dict[str, tuple[Callable[..., Any], str]] = {
    "fma.f32": (_fma_f32, "uint32(uint32,uint32,uint32)"),
    "add.f32": (_add_f32, "uint32(uint32,uint32)"),
    "sub.f32": (_sub_f32, "uint32(uint32,uint32)"),
    "mul.f32": (_mul_f32, "uint32(uint32,uint32)"),
    "fma.f32.ftz": (_fma_f32_ftz, "uint32(uint32,uint32,uint32)"),
    "add.f32.ftz": (_add_f32_ftz, "uint32(uint32,uint32)"),
    "sub.f32.ftz": (_sub_f32_ftz, "uint32(uint32,uint32)"),
    "mul.f32.ftz": (_mul_f32_ftz, "uint32(uint32,uint32)"),
    "fma.f64": (_fma_f64, "uint64(uint64,uint64,uint64)"),
    "fma.f16": (_fma_f16, "uint16(uint16,uint16,uint16)"),
    "add.f16": (_add_f16, "uint16(uint16,uint16)"),
    "sub.f16": (_sub_f16, "uint16(uint16,uint16)"),
    "mul.f16": (_mul_f16, "uint16(uint16,uint16)"),
    "flush.f32": (_flush_f32, "uint32(uint32)"),
    "f16.to.f32": (_f16_to_f32, "uint32(uint16)"),
    "f32.to.f16": (_f32_to_f16, "uint16(uint32)"),
    "prmt": (_prmt, "uint32(uint32,uint32,uint32)"),
}


@cache
def kernel(name: str) -> Ufunc:
    """The compiled ufunc `name`, on raw bits. NaN results of f16 and f32 are canonical."""
    function, signature = _SCALARS[name]
    compiled: Ufunc = numba.vectorize([signature], cache=True)(function)
    return compiled


def compile_all() -> Iterator[None]:
    """Every ufunc that has a name, one a step, for a process that has nothing else to do."""
    for name in _SCALARS:
        kernel(name)
        yield


@cache
def dp4a(a_signed: bool, b_signed: bool) -> Ufunc:
    """c plus the dot product of four bytes of a and b, modulo 2**32."""
    byte = {False: np.uint8, True: np.int8}
    function = _dp4a(byte[a_signed], byte[b_signed])
    compiled: Ufunc = numba.vectorize(["uint32(uint32,uint32,uint32)"], cache=True)(function)
    return compiled


@loop
def take(table, codes, out):  # type: ignore[no-untyped-def]
    """Writes table[codes[i]] to out[i]."""
    for i in range(codes.shape[0]):
        out[i] = table[codes[i]]


def lookup(table: Array) -> Ufunc:
    """A function of uint8 lanes: `table[i]`, of 256 entries."""

    def looked_up(lanes: Array) -> Array:
        out = np.empty(lanes.size, table.dtype)
        take(table, np.ascontiguousarray(lanes).reshape(-1), out)
        return out.reshape(lanes.shape)

    return looked_up
