"""The few lane functions compiled to machine code, where NumPy would need many passes.

Each is an expression of the register bits a, b and c in `_LANES`, from which a loop over all lanes
is generated. Numba compiles it the first time an instruction needs it and keeps it on disk. LLVM
vectorises them; the host's own fused multiply-add and half-precision conversions do the rounding.
Loops stand in this file with what they call: Numba compiles one again where its own file has
changed, and only then.
"""

import ctypes
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array, common_shape, flat

Unsigned = np.unsignedinteger[Any]

LaneFunction = Callable[..., Any]
"""Maps arrays of register bits, which broadcast, to a new array."""


@numba.njit
def _bits_f32(value):  # type: ignore[no-untyped-def]
    return np.uint32(0x7FFFFFFF) if value != value else as_u32(value)


@numba.njit
def _bits_f16(value):  # type: ignore[no-untyped-def]
    return np.uint16(0x7FFF) if value != value else to_half(value)


@numba.njit
def _flush_f32(word):  # type: ignore[no-untyped-def]
    return word & np.uint32(0x80000000) if word & np.uint32(0x7F800000) == 0 else word


@numba.njit
def _fma_f16(a, b, c):  # type: ignore[no-untyped-def]
    # The product is exact in float32. The sum is rounded to odd there (its error, exact by
    # Knuth's two-sum, decides the last bit), so that the step to f16 is the only rounding.
    product, addend = from_half(a) * from_half(b), from_half(c)
    total = product + addend
    if total != total:
        return np.uint16(0x7FFF)
    part = total - product
    error = (product - (total - part)) + (addend - part)
    raw = as_u32(total)
    # An infinite total has a NaN for its error and stays.
    if (error > 0 or error < 0) and raw & np.uint32(1) == 0:
        raw += np.uint32(1) if (error > 0) == (total > 0) else np.uint32(0xFFFFFFFF)
    return to_half(as_f32(raw))


# With .ftz subnormal operands and results count as zeros. The device decides after rounding to
# the format's precision with an exponent without bounds: the smallest normal number is flushed
# too, if the exact result lies so far below it that, rounded there, it stays below
# (floats.flush_result).
_SMALLEST_NORMAL = 2.0**-126
_ROUNDS_TO_LESS = _SMALLEST_NORMAL - 2.0**-151


@numba.njit
def _mul_f32_ftz(a, b):  # type: ignore[no-untyped-def]
    x, y = _flush_f32(a), _flush_f32(b)
    result = _bits_f32(as_f32(x) * as_f32(y))
    if result & np.uint32(0x7FFFFFFF) == np.uint32(0x00800000):
        exact = np.float64(as_f32(x)) * np.float64(as_f32(y))
        if abs(exact) < _ROUNDS_TO_LESS:
            return result & np.uint32(0x80000000)
    return _flush_f32(result)


@numba.njit
def _fma_f32_ftz(a, b, c):  # type: ignore[no-untyped-def]
    x, y, z = _flush_f32(a), _flush_f32(b), _flush_f32(c)
    result = _bits_f32(fused(as_f32(x), as_f32(y), as_f32(z)))
    if result & np.uint32(0x7FFFFFFF) == np.uint32(0x00800000):
        product, addend = np.float64(as_f32(x)) * np.float64(as_f32(y)), np.float64(as_f32(z))
        total = product + addend
        # The error of the sum, exact by Knuth's two-sum, decides at the boundary.
        part = total - product
        error = (product - (total - part)) + (addend - part)
        size = abs(total)
        inwards = error if total < 0 else -error
        if size < _ROUNDS_TO_LESS or (size == _ROUNDS_TO_LESS and inwards > 0):
            return result & np.uint32(0x80000000)
    return _flush_f32(result)


@numba.njit
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


@numba.njit
def _byte(word, i, signed):  # type: ignore[no-untyped-def]
    byte = (word >> np.uint32(8 * i)) & np.uint32(255)
    return np.int32(np.int8(byte)) if signed else np.int32(byte)


@loop
def _dp4a(a, b, c, a_signed, b_signed, out):  # type: ignore[no-untyped-def]
    for lane in range(out.size):
        total = c[lane]
        for i in range(4):
            total += np.uint32(_byte(a[lane], i, a_signed) * _byte(b[lane], i, b_signed))
        out[lane] = total


@loop
def _lop3(a, b, c, table, out):  # type: ignore[no-untyped-def]
    for lane in range(out.size):
        found = np.uint32(0)
        for case in range(8):
            if table >> case & 1:
                x = a[lane] if case & 4 else ~a[lane]
                y = b[lane] if case & 2 else ~b[lane]
                found |= x & y & (c[lane] if case & 1 else ~c[lane])
        out[lane] = found


NAN = MAGNITUDE = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)

_LANES = {
    "fma.f32": "_bits_f32(fused(as_f32(a), as_f32(b), as_f32(c)))",
    "add.f32": "_bits_f32(as_f32(a) + as_f32(b))",
    "sub.f32": "_bits_f32(as_f32(a) - as_f32(b))",
    "mul.f32": "_bits_f32(as_f32(a) * as_f32(b))",
    "neg.f32": "NAN if a & MAGNITUDE > INFINITY else a ^ np.uint32(0x80000000)",
    "abs.f32": "NAN if a & MAGNITUDE > INFINITY else a & MAGNITUDE",
    "fma.f32.ftz": "_fma_f32_ftz(a, b, c)",
    "mul.f32.ftz": "_mul_f32_ftz(a, b)",
    # A sum is exact down there.
    "add.f32.ftz": "_flush_f32(_bits_f32(as_f32(_flush_f32(a)) + as_f32(_flush_f32(b))))",
    "sub.f32.ftz": "_flush_f32(_bits_f32(as_f32(_flush_f32(a)) - as_f32(_flush_f32(b))))",
    "fma.f64": "as_u64(fused(as_f64(a), as_f64(b), as_f64(c)))",
    "fma.f16": "_fma_f16(a, b, c)",
    # float32 has 24 bits, two more than twice the 11 of f16: rounding a sum or a product of two
    # halves there first never changes the half it ends up at.
    "add.f16": "_bits_f16(from_half(a) + from_half(b))",
    "sub.f16": "_bits_f16(from_half(a) - from_half(b))",
    "mul.f16": "_bits_f16(from_half(a) * from_half(b))",
    "flush.f32": "_flush_f32(a)",
    "f16.to.f32": "_bits_f32(from_half(a))",
    "f32.to.f16": "_bits_f16(as_f32(a))",
    "prmt": "_prmt(a, b, c)",
}
"""The expression for one lane, by a name that ends in the type of the result or in a modifier."""

_WORDS: dict[str, type[Unsigned]] = {"f16": np.uint16, "f64": np.uint64}
"""By such an end: the words of results. All others have 32 bits."""


def _loop_of(name: str) -> Any:
    """Return the loop of an entry of `_LANES`, compiled under this file's name, by which Numba
    finds its cache."""
    expression = _LANES[name]
    words = sorted(set(re.findall(r"\b[abc]\b", expression)))
    lane = re.sub(r"\b([abc])\b", r"\1[i]", expression)
    function = f"lanes_{name.replace('.', '_')}"
    text = f"def {function}({', '.join(words)}, out):\n"
    text += f"    for i in range(out.size):\n        out[i] = {lane}\n"
    exec(compile(text, __file__, "exec"), globals())
    return loop(globals()[function])


_LOOPS = {name: _loop_of(name) for name in _LANES}


@cache
def kernel(name: str) -> LaneFunction:
    """Return the compiled function `name` on raw bits. NaN results of f16 and f32 are canonical."""
    return _on_lanes(_LOOPS[name], _WORDS.get(name.rpartition(".")[2], np.uint32))


def _on_lanes(compiled: Any, dtype: type[Unsigned], *flags: int) -> LaneFunction:
    """Turn a loop over flat arrays, flags and the result into a function of arrays of any shape."""

    def function(*words: Array) -> Array:
        shape = common_shape(words)
        out = np.empty(shape, dtype)
        compiled(*(flat(word, shape) for word in words), *flags, out.reshape(-1))
        return out

    return function


@cache
def dp4a(a_signed: bool, b_signed: bool) -> LaneFunction:
    """c plus the dot product of four bytes of a and b, modulo 2**32."""
    return _on_lanes(_dp4a, np.uint32, a_signed, b_signed)


def lop3(a: Array, b: Array, c: Array, table: Array) -> Array:
    """The three-input function whose truth table (bit 4a + 2b + c) is the immediate `table`."""
    return _on_lanes(_lop3, np.uint32, int(table.flat[0]) & 0xFF)(a, b, c)


_MODES = {
    "x86": {"rn": 0x000, "rm": 0x400, "rp": 0x800, "rz": 0xC00},
    "arm": {"rn": 0x000000, "rp": 0x400000, "rm": 0x800000, "rz": 0xC00000},
}[("arm" if platform.machine().lower() in ("aarch64", "arm64") else "x86")]
_LIBM = ctypes.CDLL(None)


@contextmanager
def rounding(mode: str) -> Iterator[None]:
    """Run the body with the thread's FPU rounding as PTX `mode` says (rn, rz, rm, rp).

    NumPy and the compiled functions use the FPU's own add, multiply, divide, square root and
    fused multiply-add, so they round that way too. NumPy's floating-point warnings are off.
    """
    with np.errstate(all="ignore"):
        if mode == "rn":
            yield
            return
        if _LIBM.fesetround(_MODES[mode]) != 0:
            raise RuntimeError(f"this machine's FPU cannot round as .{mode}")
        try:
            yield
        finally:
            _LIBM.fesetround(_MODES["rn"])


def _unary(source: types.Type, target: types.Type, build: Callable[[Any, Any], Any]) -> Any:
    """Return an intrinsic of one value. build: makes the result from LLVM's builder and the
    value."""

    @intrinsic
    def function(typing_context: Any, value: Any) -> Any:
        return target(source), lambda context, builder, signature, args: build(builder, args[0])

    return function


def _bitcast(source: types.Type, target: types.Type, to: ir.Type) -> Any:
    """Return an intrinsic that gives the same bits another type, which LLVM calls ``to``."""
    return _unary(source, target, lambda make, value: make.bitcast(value, to))


_HALF, _FLOAT = ir.HalfType(), ir.FloatType()
as_f32 = _bitcast(types.uint32, types.float32, _FLOAT)
as_u32 = _bitcast(types.float32, types.uint32, ir.IntType(32))
as_f64 = _bitcast(types.uint64, types.float64, ir.DoubleType())
as_u64 = _bitcast(types.float64, types.uint64, ir.IntType(64))
from_half = _unary(
    *(types.uint16, types.float32), lambda make, half: make.fpext(make.bitcast(half, _HALF), _FLOAT)
)
"""The float32 value of f16 bits."""
to_half = _unary(
    *(types.float32, types.uint16),
    lambda make, value: make.bitcast(make.fptrunc(value, _HALF), ir.IntType(16)),
)
"""The f16 bits of a float32, rounded to nearest even."""


@intrinsic
def fused(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once, in the type of a."""
    return a(a, a, a), lambda context, builder, signature, args: builder.fma(*args)


@loop
def _select(chosen, new, old, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = new[i] if chosen[i] else old[i]


def select(chosen: Array, new: Array, old: Array) -> Array:
    """Return `new` where `chosen` holds, else `old`; both have the same dtype, and all shapes
    broadcast.

    NumPy takes ten times as long if the choices are irregular.
    """
    return _on_lanes(_select, new.dtype)(chosen, new, old)


@loop
def take(table, codes, out):  # type: ignore[no-untyped-def]
    """Write table[codes[i]] to out[i]."""
    for i in range(codes.shape[0]):
        out[i] = table[codes[i]]


def lookup(table: Array) -> Callable[[Array], Array]:
    """Return a function of uint8 lanes that looks up `table[i]` among 256 entries."""

    def looked_up(lanes: Array) -> Array:
        out = np.empty(lanes.size, table.dtype)
        take(table, np.ascontiguousarray(lanes).reshape(-1), out)
        return out.reshape(lanes.shape)

    return looked_up
