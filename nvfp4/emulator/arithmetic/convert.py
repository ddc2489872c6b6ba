"""cvt: conversions among integers, floats, and packed narrow floats."""

from collections.abc import Callable
from functools import cache

import numpy as np

from nvfp4.emulator.arithmetic import compiled
from nvfp4.emulator.arithmetic.floats import flush, rectify, saturate, widen
from nvfp4.emulator.arithmetic.formats import (
    F16,
    F32,
    FORMATS,
    TF32,
    Format,
    decode,
    encode,
    to_float64,
)
from nvfp4.emulator.arithmetic.table import Modifiers, Op, instruction
from nvfp4.emulator.ptx.types import TYPES, Array, Type, common_shape

INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
SCALAR_FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
INTEGER_NAMES = tuple(f"{kind}{width}" for kind in "us" for width in (8, 16, 32, 64))


class Rules:
    """The modifiers of one cvt: rounding mode ("" if none), .ftz .sat .relu .satfinite."""

    def __init__(self, m: Modifiers) -> None:
        self.mode = m.choice(*INTEGRAL, "rn", "rz", "rm", "rp", "rna", default="")
        self.float_mode = self.mode or "rn"  # of a narrowing
        self.ftz, self.sat = m.flag("ftz"), m.flag("sat")
        self.relu, self.satfinite = m.flag("relu"), m.flag("satfinite")


@instruction("cvt")
def _cvt(m: Modifiers) -> Op:
    rules = Rules(m)
    target, source = m.type(), m.type()
    if target.lanes == 2:
        return _packed(m, rules, target, source)
    integer_target, integer_source = target.name in INTEGER_NAMES, source.name in INTEGER_NAMES
    if not integer_target and target.name not in SCALAR_FLOATS:
        raise m.refuse(f"no conversion to .{target.name}")
    if not integer_source and source.name not in SCALAR_FLOATS:
        raise m.refuse(f"no conversion of one .{source.name}")
    if integer_target and integer_source:
        function = integer_to_integer(source, target, rules.sat)
    elif integer_target:
        if rules.mode not in INTEGRAL:
            raise m.refuse("a float becomes an integer by .rni, .rzi, .rmi or .rpi")
        function = float_to_integer(source, target, rules)
    elif integer_source:
        function = integer_to_float(source, target, rules)
    else:
        function = float_to_float(source, target, rules)
    signed = integer_target and target.name[0] == "s"
    return m.op("convert", [source.register], [target.register], function, signed=signed)


def integer_to_integer(source: Type, target: Type, clamp: bool) -> Callable[[Array], Array]:
    """Return a conversion by truncation, extension with the sign, or with `clamp` saturation."""
    low = max(np.iinfo(source.value).min, np.iinfo(target.value).min)
    high = min(np.iinfo(source.value).max, np.iinfo(target.value).max)

    def function(a: Array) -> Array:
        value = a.view(source.value)
        if clamp:
            value = np.clip(value, source.value.type(low), source.value.type(high))
        return value.astype(target.value).view(target.raw)

    return function


def float_to_integer(source: Type, target: Type, rules: Rules) -> Callable[[Array], Array]:
    """Round to an integer and saturate.

    NaN gives 0 in targets of up to 32 bits; a 64-bit target, or any from f64, gets its top bit.
    """
    bits = 8 * target.value.itemsize
    limits = np.iinfo(target.value)
    round_to_integer = INTEGRAL[rules.mode]
    # 2**63 - 1 is not a float64: the first value above the range decides.
    above = float(limits.max) + 1.0 if bits < 64 else float(2 ** (64 - (limits.min < 0)))
    nan_code = 1 << (bits - 1) if bits == 64 or source.name == "f64" else 0
    raw = target.raw

    def function(a: Array) -> Array:
        if rules.ftz and source.name == "f32":
            a = flush(a, F32)
        with np.errstate(all="ignore"):
            value = round_to_integer(to_float64(a, source))
        too_high, too_low, nan = value >= above, value <= float(limits.min), np.isnan(value)
        result = np.where(too_high | too_low | nan, 0.0, value).astype(target.value)
        result = np.where(too_high, target.value.type(limits.max), result)
        result = np.where(too_low, target.value.type(limits.min), result).view(raw)
        return np.where(nan, raw.type(nan_code), result)

    return function


def integer_to_float(source: Type, target: Type, rules: Rules) -> Callable[[Array], Array]:
    """Round an integer to a float."""
    if target.name in ("f32", "f64"):

        def direct(a: Array) -> Array:
            with compiled.rounding(rules.float_mode):
                result = a.view(source.value).astype(target.value).view(target.raw)
            return saturate(result, F32) if rules.sat and target.name == "f32" else result

        return direct

    form = FORMATS[target.name]

    def narrow(a: Array) -> Array:
        value = a.view(source.value)
        if source.value.itemsize == 8:
            # 64 bits do not fit float64: keep the upper ones and a sticky bit for the rest.
            far = np.abs(value.astype(np.float64)) >= 2.0**52
            sticky = (value | source.value.type(0xFFF)) ^ source.value.type(0x7FF)
            exact = (value & source.value.type(0x7FF)) == 0
            value = np.where(far & ~exact, sticky, value)
        result = encode(value.astype(np.float64), form, rules.float_mode).astype(target.raw)
        return saturate(result, form) if rules.sat else result

    return narrow


def float_to_float(source: Type, target: Type, rules: Rules) -> Callable[[Array], Array]:
    """Widen, narrow, or round to an integral value within a format."""
    narrowing = rules.mode in INTEGRAL or source.value.itemsize >= target.value.itemsize
    convert = _narrow(source, target, rules) if narrowing else _widen(source, target)
    form = FORMATS.get(target.name)

    def function(a: Array) -> Array:
        if rules.ftz and source.name == "f32":
            a = flush(a, F32)
            a = np.where(np.isnan(a.view(np.float32)), np.uint32(F32.nan or 0), a)
        result = convert(a)
        if form is None:
            return saturate_f64(result) if rules.sat else result
        if rules.ftz and target.name == "f32":
            result = flush(result, form)
        if rules.sat:
            result = saturate(result, form)
        return rectify(result, F32 if form is TF32 else form) if rules.relu else result

    return function


def saturate_f64(word: Array) -> Array:
    """Clamp float64 bits to [0, 1]; NaN and -0 give +0."""
    value = word.view(np.float64)
    with np.errstate(all="ignore"):
        return np.where(value > 0, np.minimum(value, 1.0), 0.0).view(np.uint64)


def _widen(source: Type, target: Type) -> Callable[[Array], Array]:
    if target.name == "f32":
        return lambda a: widen(a, source)
    if source.name == "f16":
        return _f16_to_f64
    return lambda a: to_float64(a, source).view(np.uint64)


def _f16_to_f64(a: Array) -> Array:
    """Convert exactly; a NaN keeps its sign and payload, as in other conversions with f64."""
    result = to_float64(a, TYPES["f16"]).view(np.uint64)
    sign = (a & np.uint16(0x8000)).astype(np.uint64) << np.uint64(48)
    payload = (a & np.uint16(0x3FF)).astype(np.uint64) << np.uint64(42)
    nan = sign | np.uint64(0x7FF8 << 48) | payload
    return np.where(np.isnan(result.view(np.float64)), nan, result)


def _narrow_nan(word: Array, form: Format) -> Array:
    """Cut f64 NaN bits to f16 or bf16: the sign and the upper payload stay, and the quiet bit is
    set."""
    sign = (word >> np.uint64(63)) * np.uint64(form.sign)
    payload = (word & np.uint64(2**52 - 1)) >> np.uint64(52 - form.mantissa)
    quiet = np.uint64(form.largest + 1 | form.smallest_normal >> 1)
    return sign | quiet | payload


_without_warnings = np.errstate(all="ignore")


def _narrow(source: Type, target: Type, rules: Rules) -> Callable[[Array], Array]:
    raw = target.raw
    if rules.mode in INTEGRAL:
        integral = _without_warnings(INTEGRAL[rules.mode])
        if target.name == "f64":
            return lambda a: integral(a.view(np.float64)).view(np.uint64)
        form = FORMATS[target.name]
        return lambda a: encode(integral(to_float64(a, source)), form).astype(raw)
    if source.name == target.name:
        return np.copy
    mode = rules.float_mode
    if target.name == "f32":
        # The host, like the device, keeps a NaN's sign and upper payload.
        def to_f32(a: Array) -> Array:
            with compiled.rounding(mode):
                return to_float64(a, source).astype(np.float32).view(np.uint32)

        return to_f32
    if source.name == "f32" and target.name == "f16" and mode == "rn" and not rules.satfinite:
        return _without_warnings(compiled.kernel("f32.to.f16"))
    form = FORMATS[target.name]
    # tf32 is in the upper bits of a 32-bit word.
    shift = raw.type(13 if target.name == "tf32" else 0)

    def narrow(a: Array) -> Array:
        value = to_float64(a, source)
        code = encode(value, form, mode, saturate=rules.satfinite)
        if source.name == "f64":
            code = np.where(np.isnan(value), _narrow_nan(a, form), code)
        word = code.astype(raw) << shift
        if mode == "rna":
            # A NaN keeps its sign and payload; saturation takes one step off that, too.
            kept = a & np.uint32(0xFFFFE000)
            nan = np.subtract(kept, np.uint32(0x2000 if rules.satfinite else 0))
            word = np.where(np.isnan(value), nan, word)
        return word

    return narrow


def _packed(m: Modifiers, rules: Rules, target: Type, source: Type) -> Op:
    """Return the Op that makes a pair, from two f32 (the first becomes the upper lane) or from
    another pair."""
    form = FORMATS.get(target.name.removesuffix("x2"))  # None for ue8m0
    two = source.name == "f32"
    if not two and source.lanes != 2:
        raise m.refuse(f"no conversion of .{source.name} to a pair")
    widens = target.name == "f16x2" and target.value.itemsize > source.value.itemsize
    if widens and not rules.relu:
        if source.name == "ue8m0x2":
            raise m.refuse(".ue8m0x2 becomes .bf16x2 only")
        return m.op("convert", [source.register], ["b32"], table_conversion(source.name))
    to_lane = _scale_lane(source, rules) if form is None else _narrow_lane(source, form, rules)

    def function(*words: Array) -> Array:
        low, high = reversed(words) if two else _lanes(words[0], source)
        return _join(to_lane(low), to_lane(high), target)

    return m.op("convert", [source.register] * (1 + two), [target.register], function)


def _lanes(word: Array, type_: Type) -> tuple[Array, Array]:
    """Return the low and high lane of a packed word, each in the smallest integer dtype that holds
    it."""
    width = 4 if type_.name == "e2m1x2" else 8 * type_.value.itemsize
    mask = word.dtype.type(2**width - 1)
    low, high = word & mask, (word >> word.dtype.type(width)) & mask
    return low.astype(type_.value), high.astype(type_.value)


def _join(low: Array, high: Array, type_: Type) -> Array:
    width = 4 if type_.name == "e2m1x2" else 8 * type_.value.itemsize
    raw = type_.raw
    return low.astype(raw) | (high.astype(raw) << raw.type(width))


def _lane_value(source: Type) -> Callable[[Array], Array]:
    """Return a conversion of lane bits to float64: of a scalar float, a pair, or ue8m0."""
    if source.name == "ue8m0x2":
        return lambda a: np.where(a == 0xFF, np.nan, np.ldexp(1.0, a.astype(np.int32) - 127))
    form = FORMATS[source.name.removesuffix("x2")]
    return lambda a: decode(a, form)


def _narrow_lane(source: Type, form: Format, rules: Rules) -> Callable[[Array], Array]:
    value_of = _lane_value(source)

    def code(a: Array) -> Array:
        return encode(value_of(a), form, rules.float_mode, saturate=rules.satfinite)

    if source.name == "f32" and form is F16 and rules.float_mode == "rn" and not rules.satfinite:
        code = _without_warnings(compiled.kernel("f32.to.f16"))
    return (lambda a: rectify(code(a), form)) if rules.relu else code


def _scale_lane(source: Type, rules: Rules) -> Callable[[Array], Array]:
    """Return a conversion of magnitudes to powers of two: rounded down (rz) or up (rp), and limited
    to 2**-127 .. 2**127."""
    value_of = _lane_value(source)

    def lane(a: Array) -> Array:
        value = np.abs(value_of(a))
        fraction, exponent = np.frexp(np.where(np.isfinite(value), value, 1.0))
        exponent = exponent - 1 + ((rules.mode == "rp") & (fraction > 0.5))
        code = np.clip(np.where(value == 0, -127, exponent), -127, 127) + 127
        code = np.where(np.isinf(value), 254, code)
        return np.where(np.isnan(value), 255, code).astype(np.uint64)

    return lane


@cache
def table_conversion(name: str) -> Callable[[Array], Array]:
    """A pair of 4-, 6- or 8-bit floats (`name`) to f16x2, by looking up every byte."""
    form = FORMATS[name.removesuffix("x2")]
    if name == "e2m1x2":
        byte = np.arange(256, dtype=np.int64)
        low, high = (encode(decode(nibble, form), F16) for nibble in (byte & 15, byte >> 4))
        return compiled.lookup((low | (high << np.uint64(16))).astype(np.uint32))
    # The upper two bits of a 6-bit code's byte are zero by the ISA; they are ignored here.
    code = np.arange(256) & (2 * form.sign - 1)
    one = compiled.lookup(encode(decode(code, form), F16).astype(np.uint16))

    def function(pair: Array) -> Array:
        shape = common_shape((pair,))
        codes = np.ascontiguousarray(pair).reshape(-1).view(np.uint8)
        return one(codes).view(np.uint32).reshape(shape)

    return function
