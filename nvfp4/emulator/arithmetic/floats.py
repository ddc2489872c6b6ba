"""Floating-point arithmetic in f16, bf16, f32 and f64; division, roots and the special functions.

The .rn, .rz, .rm and .rp forms are exact. The .approx and .full forms are computed in float64
and rounded once to the format: the device's own results differ in the last bits, by at most
what docs/emulator-fidelity.md lists.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import compiled, formats
from nvfp4.emulator.arithmetic.table import Modifiers, Op, instruction
from nvfp4.emulator.ptx.types import TYPES, Array, Type, on_each_lane

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
FLOATS = (*HALVES, "f32", "f32x2", "f64")
SOURCES = {"add": 2, "sub": 2, "mul": 2, "fma": 3}


def kind(type_: Type) -> str:
    """The counter class of arithmetic in `type_`."""
    return {1: "fp16", 2: "fp16", 4: "fp32", 8: "fp64"}[type_.value.itemsize]


def format_of(type_: Type) -> formats.Format:
    """Return the format of one lane of f16, bf16, f32 or a pair of them."""
    if type_.value.itemsize != 2:
        return formats.F32
    return formats.F16 if type_.name.startswith("f16") else formats.BF16


def flush(word: Array, form: formats.Format) -> Array:
    """Subnormal numbers replaced by the zero of their sign."""
    if form is formats.F32:
        return compiled.kernel("flush.f32")(word)
    exponent = word.dtype.type(form.sign - form.smallest_normal)
    return np.where((word & exponent) == 0, word & word.dtype.type(form.sign), word)


def flush_result(
    result: Array, exact: Callable[[], Array] | None, form: formats.Format, mode: str
) -> Array:
    """`result` with subnormal numbers flushed, those included that rounding made normal.

    The device decides after rounding to the format's precision, but with an exponent without
    bounds. So the smallest normal number is flushed if the exact result lies so far below it
    that, rounded there, it stays below. exact: gives that result in float64, rounded to odd if
    at all; None if no rounding can have led to the smallest normal number.
    """
    result = flush(result, form)
    if exact is None:
        return result
    smallest = (result & result.dtype.type(form.sign - 1)) == form.smallest_normal
    if not smallest.any():
        return result
    normal = 2.0**form.lowest_exponent
    # The two largest numbers below `normal` that matter: halfway to it, and one step below.
    step = 2.0 ** (form.lowest_exponent - form.mantissa - 1)
    size = np.abs(exact())
    tiny = size < normal - step / 2 if mode == "rn" else size <= normal - step
    return np.where(smallest & tiny, result & result.dtype.type(form.sign), result)


# Results in float64, exact or rounded to odd.
EXACT: dict[str, Callable[..., Array]] = {
    "mul": np.multiply,
    "fma": lambda x, y, z: formats.odd_sum(np.multiply(x, y), z),
    "div": np.divide,
    "add": formats.odd_sum,
    "sub": lambda x, y: formats.odd_sum(x, -y),
}


def _exact(name: str, words: tuple[Array, ...], form: formats.Format) -> Array:
    with np.errstate(all="ignore"):
        return EXACT[name](*(formats.decode(word, form) for word in words))


def saturate(word: Array, form: formats.Format) -> Array:
    """Clamp to [0, 1]; NaN and -0 give +0."""
    inside = np.minimum(word, word.dtype.type(form.one))
    infinity = word.dtype.type(form.sign - form.smallest_normal)
    return np.where(word <= infinity, inside, word.dtype.type(0))


def rectify(word: Array, form: formats.Format) -> Array:
    """Replace negative numbers and -0 by +0; NaN, canonical by then, stays."""
    return np.where((word & word.dtype.type(form.sign)) != 0, word.dtype.type(0), word)


def _f64(name: str) -> Callable[..., Array]:
    if name == "fma":
        fused = compiled.kernel("fma.f64")
        return lambda a, b, c: keep_nan(fused(a, b, c), b, c, a)
    operate = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]

    def function(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            result = operate(a.view(np.float64), b.view(np.float64)).view(np.uint64)
        return keep_nan(result, b, a)

    return function


def keep_nan(result: Array, *sources: Array) -> Array:
    """Replace f64 results by the first NaN among the sources, made quiet.

    The f64 unit passes NaNs on; which of several wins is fixed for each instruction.
    """
    for word in reversed(sources):
        result = np.where(np.isnan(word.view(np.float64)), word | QUIET_F64, result)
    return result


QUIET_F64 = np.uint64(1 << 51)


def lane_function(name: str, type_: Type) -> Callable[..., Array]:
    """`name` (add, sub, mul, fma) on the raw bits of one lane of `type_`."""
    base = type_.name.removesuffix("x2")
    if base == "bf16":
        form = formats.BF16  # through float64, where a product of two is exact
        return lambda *words: formats.encode(_exact(name, words, form), form).astype(np.uint16)
    return _f64(name) if base == "f64" else compiled.kernel(f"{name}.{base}")


def finish(
    function: Callable[..., Array],
    type_: Type,
    name: str,
    *,
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
    mode: str = "rn",
) -> Callable[..., Array]:
    """Return `function` (of mnemonic `name`) on one lane's bits, with the modifiers applied."""
    form = format_of(type_)
    if ftz and form is formats.F32 and mode == "rn" and name in SOURCES:
        function, ftz = compiled.kernel(f"{name}.f32.ftz"), False
    plain = name in SOURCES and mode == "rn" and not (ftz or sat or relu)

    def lane(*words: Array) -> Array:
        if ftz:
            words = tuple(flush(word, form) for word in words)
        with compiled.rounding(mode):
            result = function(*words)
        if ftz:
            exact = partial(_exact, name, words, form) if name in EXACT else None
            result = flush_result(result, exact, form, mode)
        if sat:
            result = saturate(result, form)
        if relu:
            result = rectify(result, form)
        return result

    return on_each_lane(function if plain else lane, type_)


def widen(word: Array, type_: Type) -> Array:
    """Convert f16 or bf16 bits to f32 bits, exactly."""
    if type_.name == "bf16":
        return word.astype(np.uint32) << np.uint32(16)
    with np.errstate(all="ignore"):
        return compiled.kernel("f16.to.f32")(word)


@instruction("add", "sub", "mul", types=FLOATS)
@instruction("mad", types=("f32", "f64"))
@instruction("fma")
def _arithmetic(m: Modifiers) -> Op:
    name = "fma" if m.mnemonic == "mad" else m.mnemonic
    mode = m.choice("rn", "rz", "rm", "rp", default="rn")
    ftz, sat, relu = m.flag("ftz"), m.flag("sat"), m.flag("relu")
    type_ = m.type(*FLOATS)
    lane = finish(lane_function(name, type_), type_, name, ftz=ftz, sat=sat, relu=relu, mode=mode)
    sources = [type_.register] * SOURCES[name]
    if m.has_type():
        return _mixed(m, type_, m.type("f16", "bf16"), sources, lane)
    return m.op(kind(type_), sources, [type_.register], lane)


def _mixed(
    m: Modifiers, type_: Type, narrow: Type, sources: list[str], lane: Callable[..., Any]
) -> Op:
    """An f32 operation whose factors (all sources but the last) are f16 or bf16."""

    def function(*words: Array) -> Array:
        return lane(*(widen(word, narrow) for word in words[:-1]), words[-1])

    registers = [narrow.register] * (len(sources) - 1) + sources[-1:]
    return m.op(kind(type_), registers, [type_.register], function)


def sign_and_magnitude(type_: Type) -> tuple[np.unsignedinteger[Any], np.unsignedinteger[Any]]:
    """Return the sign bit of a lane of a type, and all of its other bits."""
    sign = np.dtype(f"u{type_.value.itemsize}").type(1 << (type_.bits - 1))
    return sign, ~sign


@instruction("abs", "neg", types=FLOATS)
def _sign_only(m: Modifiers) -> Op:
    """abs and neg. A NaN becomes canonical; in f64 it keeps its sign and becomes quiet."""
    ftz, type_ = m.flag("ftz"), m.type(*FLOATS)
    sign, clear = sign_and_magnitude(type_)

    def lane(word: Array) -> Array:
        if ftz:
            word = flush(word, format_of(type_))
        result = word & clear if m.mnemonic == "abs" else word ^ sign
        if type_.name == "f64":
            return keep_nan(result, word)
        form = format_of(type_)
        infinity = form.sign - form.smallest_normal
        return np.where((word & clear) > infinity, clear, result)

    compiles = type_.name == "f32" and not ftz
    function = compiled.kernel(f"{m.mnemonic}.f32") if compiles else on_each_lane(lane, type_)
    return m.op(kind(type_), [type_.register], [type_.register], function)


@instruction("copysign")
def _copysign(m: Modifiers) -> Op:
    type_ = m.type("f32", "f64")
    sign, clear = sign_and_magnitude(type_)
    sources = [type_.register] * 2
    return m.op(kind(type_), sources, [type_.register], lambda a, b: a & sign | b & clear)


Function = Callable[..., Any]


def _correctly_rounded(m: Modifiers, function: Function, count: int, mode: str) -> Op:
    """Return a correctly rounded operation of the host's FPU in f32 or f64."""
    ftz, type_ = m.flag("ftz"), m.type("f32", "f64")

    def operate(*words: Array) -> Array:
        result = function(*(word.view(type_.value) for word in words)).view(type_.raw)
        if type_.name == "f64":
            return keep_nan(result, *words)
        return np.where(np.isnan(result.view(np.float32)), np.uint32(0x7FFFFFFF), result)

    lane = finish(operate, type_, m.mnemonic, ftz=ftz, mode=mode)
    return m.op(kind(type_), [type_.register] * count, [type_.register], lane)


def _approximate(m: Modifiers, function: Function, count: int, *types: str) -> Op:
    """Return a function of float64 values that is rounded to the nearest value of the type."""
    ftz, type_ = m.flag("ftz"), m.type(*types)
    base = TYPES[type_.name.removesuffix("x2")]
    form = formats.FORMATS.get(base.name)

    def lane(*words: Array) -> Array:
        if ftz and form is not None:
            words = tuple(flush(word, form) for word in words)
        with np.errstate(all="ignore"):
            value = function(*(formats.to_float64(word, base) for word in words))
        if form is None:
            return value.view(np.uint64)
        result = formats.encode(value, form).astype(base.raw)
        return flush(result, form) if ftz else result

    return m.op("special", [type_.register] * count, [type_.register], on_each_lane(lane, type_))


def _divide(a: Array, b: Array) -> Array:
    """a / b, where the reciprocal of b of more than 2**126 is flushed to zero."""
    return np.multiply(a, np.where(np.abs(b) > 2.0**126, np.copysign(0.0, b), 1.0 / b))


_ROUNDED: dict[str, np.ufunc] = {"div": np.divide, "rcp": np.reciprocal, "sqrt": np.sqrt}


@instruction("div", "sqrt", types=("f32", "f64"))
@instruction("rcp", types=("f32",))
def _rounded_or_approximate(m: Modifiers) -> Op:
    function = _ROUNDED[m.mnemonic]
    divides = m.mnemonic == "div"
    mode = m.choice("approx", "rn", "rz", "rm", "rp", *["full"] * divides)
    if mode in ("approx", "full"):
        approximate = _divide if divides and mode == "approx" else function
        return _approximate(m, approximate, function.nin, "f32")
    return _correctly_rounded(m, function, function.nin, mode)


@instruction("rsqrt", types=("f32",))
def _rsqrt(m: Modifiers) -> Op:
    m.choice("approx")
    return _approximate(m, lambda x: 1.0 / np.sqrt(x), 1, "f32")


def upper_word(function: Function) -> Callable[[Array], Array]:
    """Return `function` on f64 bits with the precision of the device's approximation, which reads
    and writes only the upper 32 bits.

    Subnormal arguments and results are flushed; all NaN results are the same.
    """
    infinity = np.uint64(0x7FF << 52)

    def lane(word: Array) -> Array:
        with np.errstate(all="ignore"):
            upper = _flush_f64(word & np.uint64(0xFFFFFFFF00000000))
            raw = function(upper.view(np.float64)).view(np.uint64)
        half = np.uint64(1 << 31)
        rounded = np.where((raw << np.uint64(1)) < infinity << np.uint64(1), raw + half, raw)
        result = _flush_f64(rounded & np.uint64(0xFFFFFFFF00000000))
        return np.where(np.isnan(raw.view(np.float64)), np.uint64(0x7FFFFFFF00000000), result)

    return lane


def _flush_f64(word: Array) -> Array:
    return np.where((word & np.uint64(0x7FF << 52)) == 0, word & np.uint64(1 << 63), word)


@instruction("rsqrt", "rcp", types=("f64",))
def _upper_word(m: Modifiers) -> Op:
    if m.mnemonic == "rcp" and not m.flag("approx"):
        return _correctly_rounded(m, np.reciprocal, 1, m.choice("rn", "rz", "rm", "rp"))
    m.flag("approx")
    function = np.reciprocal if m.mnemonic == "rcp" else lambda x: 1.0 / np.sqrt(x)
    if m.mnemonic == "rsqrt" and not m.flag("ftz"):
        return _approximate(m, function, 1, "f64")
    m.flag("ftz")
    m.type("f64")
    return m.op("special", ["b64"], ["b64"], upper_word(function))


def _register_function(mnemonic: str, function: Function, *types: str) -> None:
    @instruction(mnemonic)
    def build(m: Modifiers) -> Op:
        m.choice("approx")
        return _approximate(m, function, 1, *types)


_register_function("lg2", np.log2, "f32")
_register_function("ex2", np.exp2, "f32", "f16", "f16x2", "bf16", "bf16x2")
_register_function("tanh", np.tanh, "f32", "f16", "f16x2", "bf16", "bf16x2")


def _of_turns(function: Function) -> Function:
    """Return sin or cos as the device computes it: the angle is first rounded to float32 turns."""
    turn = np.float64(np.float32(0.5 / np.pi))

    def in_turns(x: Array) -> Array:
        turns = np.multiply(x, turn).astype(np.float32).astype(np.float64)
        return function(2.0 * np.pi * np.remainder(turns, 1.0))

    return in_turns


_register_function("sin", _of_turns(np.sin), "f32")
_register_function("cos", _of_turns(np.cos), "f32")
