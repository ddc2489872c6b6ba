"""Division, roots and the special functions.

The .rn, .rz, .rm and .rp forms are exact. The .approx and .full forms are computed in float64
and rounded once to the format: the device's own results differ in the last bits, by at most
what docs/emulator-fidelity.md lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .convert import to_float64
from .floats import canonical_f64, flush, kind
from .formats import F32, FORMATS, encode
from .host_fpu import rounding
from .lanes import on_lanes
from .table import REGISTER_DTYPES, TYPES, Array, Modifiers, Op, instruction

Function = Callable[..., Any]


def _exact(m: Modifiers, function: Function, count: int, mode: str) -> Op:
    """A correctly rounded operation of the host's FPU in f32 or f64."""
    ftz, type_ = m.flag("ftz"), m.type("f32", "f64")
    raw = REGISTER_DTYPES[type_.register]

    def operate(*words: Array) -> Array:
        if ftz:
            words = tuple(flush(word, F32) for word in words)
        with rounding(mode):
            result = function(*(word.view(type_.value) for word in words)).view(raw)
        if type_.name == "f64":
            return canonical_f64(result)
        result = np.where(np.isnan(result.view(np.float32)), raw.type(0x7FFFFFFF), result)
        return flush(result, F32) if ftz else result

    return m.op(kind(type_), [type_.register] * count, [type_.register], operate)


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
            return canonical_f64(value.view(np.uint64))
        result = encode(value, form).astype(raw)
        return flush(result, form) if ftz else result

    operate: Function = lane
    if type_.lanes > 1:
        operate = on_lanes(lane, raw, REGISTER_DTYPES[type_.register])
    return m.op("special", [type_.register] * count, [type_.register], operate)


def _mode(m: Modifiers) -> str:
    return m.choice("approx", "full", "rn", "rz", "rm", "rp")


@instruction("div", types=("f32", "f64"))
def _div(m: Modifiers) -> Op:
    mode = _mode(m)
    if mode in ("approx", "full"):
        return _approximate(m, np.divide, 2, "f32")
    return _exact(m, np.divide, 2, mode)


@instruction("rcp")
def _rcp(m: Modifiers) -> Op:
    mode = _mode(m)
    if mode == "approx":
        return _approximate(m, np.reciprocal, 1, "f32", "f64")
    return _exact(m, np.reciprocal, 1, mode)


@instruction("sqrt")
def _sqrt(m: Modifiers) -> Op:
    mode = _mode(m)
    if mode == "approx":
        return _approximate(m, np.sqrt, 1, "f32")
    return _exact(m, np.sqrt, 1, mode)


@instruction("rsqrt")
def _rsqrt(m: Modifiers) -> Op:
    m.choice("approx")
    return _approximate(m, lambda x: 1.0 / np.sqrt(x), 1, "f32", "f64")


def _register_function(mnemonic: str, function: Function, *types: str) -> None:
    @instruction(mnemonic)
    def build(m: Modifiers) -> Op:
        m.choice("approx")
        return _approximate(m, function, 1, *types)


_register_function("lg2", np.log2, "f32")
_register_function("ex2", np.exp2, "f32", "f16", "f16x2", "bf16", "bf16x2")
_register_function("tanh", np.tanh, "f32", "f16", "f16x2", "bf16", "bf16x2")
_register_function("sin", np.sin, "f32")
_register_function("cos", np.cos, "f32")
