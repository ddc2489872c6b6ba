"""Division, roots and the special functions.

The .rn, .rz, .rm and .rp forms are exact. The .approx and .full forms are computed in float64
and rounded once to the format: the device's own results differ in the last bits, by at most
what docs/emulator-fidelity.md lists.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic.convert import to_float64
from nvfp4.emulator.arithmetic.floats import finish, flush, keep_nan, kind
from nvfp4.emulator.arithmetic.formats import FORMATS, encode
from nvfp4.emulator.arithmetic.table import Modifiers, Op, instruction
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, TYPES, Array, on_lanes

Function = Callable[..., Any]


def _exact(m: Modifiers, function: Function, count: int, mode: str) -> Op:
    """A correctly rounded operation of the host's FPU in f32 or f64."""
    ftz, type_ = m.flag("ftz"), m.type("f32", "f64")
    raw = REGISTER_DTYPES[type_.register]

    def operate(*words: Array) -> Array:
        result = function(*(word.view(type_.value) for word in words)).view(raw)
        if type_.name == "f64":
            return keep_nan(result, *words)
        return np.where(np.isnan(result.view(np.float32)), raw.type(0x7FFFFFFF), result)

    lane = finish(operate, type_, m.mnemonic, ftz=ftz, mode=mode)
    return m.op(kind(type_), [type_.register] * count, [type_.register], lane)


def _approximate(m: Modifiers, function: Function, count: int, *types: str) -> Op:
    """A function of float64 values, rounded to the nearest value of the type."""
    ftz, type_ = m.flag("ftz"), m.type(*types)
    base = TYPES[type_.name.removesuffix("x2")]
    form = FORMATS.get(base.name)
    raw = REGISTER_DTYPES[base.register]

    def lane(*words: Array) -> Array:
        if ftz and form is not None:
            words = tuple(flush(word, form) for word in words)
        with np.errstate(all="ignore"):
            value = function(*(to_float64(word, base) for word in words))
        if form is None:
            return value.view(np.uint64)
        result = encode(value, form).astype(raw)
        return flush(result, form) if ftz else result

    operate: Function = lane
    if type_.lanes > 1:
        operate = on_lanes(lane, raw, REGISTER_DTYPES[type_.register])
    return m.op("special", [type_.register] * count, [type_.register], operate)


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
    return _exact(m, function, function.nin, mode)


@instruction("rsqrt", types=("f32",))
def _rsqrt(m: Modifiers) -> Op:
    m.choice("approx")
    return _approximate(m, lambda x: 1.0 / np.sqrt(x), 1, "f32")


def upper_word(function: Function) -> Callable[[Array], Array]:
    """`function` on f64 bits as the device approximates it: from upper to upper 32 bits.

    Subnormal numbers are flushed on both sides; a NaN result has one form.
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
    tiny = (word & np.uint64(0x7FF << 52)) == 0
    return np.where(tiny, word & np.uint64(1 << 63), word)


@instruction("rsqrt", "rcp", types=("f64",))
def _upper_word(m: Modifiers) -> Op:
    if m.mnemonic == "rcp" and not m.flag("approx"):
        return _exact(m, np.reciprocal, 1, m.choice("rn", "rz", "rm", "rp"))
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
    """sin or cos as the device takes them: of an angle that float32 first holds in turns."""
    turn = np.float64(np.float32(0.5 / np.pi))

    def in_turns(x: Array) -> Array:
        turns = np.multiply(x, turn).astype(np.float32).astype(np.float64)
        return function(2.0 * np.pi * np.remainder(turns, 1.0))

    return in_turns


_register_function("sin", _of_turns(np.sin), "f32")
_register_function("cos", _of_turns(np.cos), "f32")
