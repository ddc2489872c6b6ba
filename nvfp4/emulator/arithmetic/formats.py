"""Binary floating-point formats narrower than float64: their bits, values and rounding."""

import numpy as np

from nvfp4.emulator.ptx.types import Array, Type
from nvfp4.records.base import Record


class Format(Record):
    """A float with a sign, `exponent` bits and `mantissa` bits."""

    name: str
    exponent: int
    mantissa: int
    largest: int
    """Bits of the largest finite value."""
    nan: int | None
    """Bits of the canonical NaN; None without one."""
    infinite: bool
    """Whether the code after `largest` is infinity."""

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def lowest_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - (1 << (self.exponent - 1))

    @property
    def smallest_normal(self) -> int:
        """Bits of the smallest normal number."""
        return 1 << self.mantissa

    @property
    def one(self) -> int:
        """Bits of 1."""
        return ((1 << (self.exponent - 1)) - 1) << self.mantissa


F16 = Format("f16", 5, 10, 0x7BFF, 0x7FFF, True)
BF16 = Format("bf16", 8, 7, 0x7F7F, 0x7FFF, True)
F32 = Format("f32", 8, 23, 0x7F7FFFFF, 0x7FFFFFFF, True)
TF32 = Format("tf32", 8, 10, 0x3FBFF, 0x3FFFF, True)
E4M3 = Format("e4m3", 4, 3, 0x7E, 0x7F, False)
E5M2 = Format("e5m2", 5, 2, 0x7B, 0x7F, True)
E2M3 = Format("e2m3", 2, 3, 0x1F, None, False)
E3M2 = Format("e3m2", 3, 2, 0x1F, None, False)
E2M1 = Format("e2m1", 2, 1, 0x7, None, False)
FORMATS = {f.name: f for f in (F16, BF16, F32, TF32, E4M3, E5M2, E2M3, E3M2, E2M1)}

_FRACTION = np.uint64(2**52 - 1)
_ONE = np.uint64(1)


def encode(value: Array, target: Format, mode: str = "rn", *, saturate: bool = False) -> Array:
    """Round float64 values to `target` in one step; returns its bits as uint64.

    mode: rn (nearest even), rna (nearest, ties away), rz, rm, rp. saturate: beyond the
    largest finite value give that value, not infinity. NaN gives the canonical NaN, or the
    largest finite value where the format has none.
    """
    raw = np.asarray(value, dtype=np.float64).view(np.uint64)
    negative = (raw >> np.uint64(63)) != 0
    magnitude = raw & np.uint64(2**63 - 1)
    exponent = (magnitude >> np.uint64(52)).astype(np.int64)
    hidden = np.minimum(exponent, 1).astype(np.uint64) << np.uint64(52)
    significand = (magnitude & _FRACTION) | hidden
    exponent = np.maximum(exponent, 1) - 1023

    below = np.maximum(target.lowest_exponent - exponent, 0)
    dropped = np.minimum(52 - target.mantissa + below, 54).astype(np.uint64)
    kept = significand >> dropped
    rest = significand - (kept << dropped)
    half = _ONE << (dropped - _ONE)
    if mode == "rn":
        up = (rest > half) | ((rest == half) & ((kept & _ONE) != 0))
    elif mode == "rna":
        up = rest >= half
    elif mode == "rz":
        up = np.zeros_like(negative)
    else:
        up = (rest != 0) & (negative == (mode == "rm"))
    # A normal significand carries its hidden bit, which adds one to the exponent field.
    above = np.maximum(exponent - target.lowest_exponent, 0).astype(np.uint64)
    code = (above << np.uint64(target.mantissa)) + kept + up

    largest = np.uint64(target.largest)
    infinite = magnitude == np.uint64(0x7FF << 52)
    over = (code > largest) | infinite
    if saturate or not target.infinite:
        code = np.where(over, largest, code)
    else:
        stays = (mode == "rz") | ((mode == "rp") & negative) | ((mode == "rm") & ~negative)
        code = np.where(over, np.where(stays & ~infinite, largest, largest + _ONE), code)
    code = np.where(negative, code | np.uint64(target.sign), code)
    nan = largest if target.nan is None else np.uint64(target.nan)
    return np.where(magnitude > np.uint64(0x7FF << 52), nan, code)


def decode(code: Array, source: Format) -> Array:
    """The float64 values of `source`'s bits; exact."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if source is F32:
            return code.view(np.float32).astype(np.float64)
        if source is BF16:
            return (code.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        if source is F16:
            return code.astype(np.uint16).view(np.float16).astype(np.float64)
    code = np.asarray(code).astype(np.int64)
    magnitude = code & (source.sign - 1)
    field = magnitude >> source.mantissa
    fraction = magnitude & (source.smallest_normal - 1)
    significand = np.where(field == 0, fraction, fraction + source.smallest_normal)
    scale = np.maximum(field, 1) - 1 + source.lowest_exponent - source.mantissa
    value = np.ldexp(significand.astype(np.float64), scale.astype(np.int32))
    if source.infinite:
        value = np.where(magnitude == source.largest + 1, np.inf, value)
        value = np.where(magnitude > source.largest + 1, np.nan, value)
    elif source.nan is not None:
        value = np.where(magnitude > source.largest, np.nan, value)
    return np.where((code & source.sign) != 0, -value, value)


def to_float64(word: Array, type_: Type) -> Array:
    """The value of one scalar float; exact."""
    return word.view(np.float64) if type_.name == "f64" else decode(word, FORMATS[type_.name])


def odd_sum(product: Array, addend: Array) -> Array:
    """product + addend in float64, rounded to odd.

    A value rounded to odd and then to a format of at most 51 bits is rounded as if once: the
    last bit remembers that something was lost. Knuth's two-sum gives the lost part exactly.
    """
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    raw = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & ((raw & 1) == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return (raw + np.where(inexact, step, 0)).view(np.float64)
