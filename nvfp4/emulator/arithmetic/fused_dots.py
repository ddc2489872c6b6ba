"""Sums of products as tensor cores round them: every term is cut off at a number of bits below the
largest exponent, and the sum is normalised once.

The model is that of Xie et al., MMA-Sim (arXiv 2511.10909, github.com/microsoft/MMA-Sim), who
report it bit for bit equal to the hardware: 25 fractional bits, and for FP4 with block scales 35,
where each term is an exact sum of 16 products times the significands of both scales. Where every
term fits, the sum is exact.

An element is (significand, exponent) with integer significands in units of 2^-mantissa bits; zero
has the exponent ZERO.
"""

from functools import lru_cache

import numpy as np

from nvfp4.emulator.arithmetic.formats import FORMATS, Format
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array

ZERO = -126
"""The exponent of zero; nothing is aligned to it."""
BLOCK = 16
"""Elements of FP4 whose products are summed exactly."""
F32_NAN = np.uint32(0x7FFFFFFF)
F16_NAN = np.uint32(0x7FFF)
_FRACTION, _BLOCK_FRACTION = 25, 35


@lru_cache(maxsize=16)
def _table(name: str) -> tuple[Array, Array, Array]:
    """(significands, exponents, whether it is neither infinite nor NaN) of the codes of a format of
    up to 16 bits."""
    fmt = FORMATS[name]
    codes = np.arange(2 << (fmt.exponent + fmt.mantissa))
    return _split(codes, fmt)


def _split(codes: Array, fmt: Format) -> tuple[Array, Array, Array]:
    fraction = codes & ((1 << fmt.mantissa) - 1)
    biased = (codes >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
    size = codes & (fmt.sign - 1)
    significand = np.where(biased > 0, fraction | (1 << fmt.mantissa), fraction)
    exponent = np.maximum(biased, 1) + fmt.lowest_exponent - 1
    exponent = np.where(significand == 0, ZERO, exponent)
    significand = np.where(codes & fmt.sign, -significand, significand)
    return significand.astype(np.int32), exponent.astype(np.int32), size <= fmt.largest


def elements(codes: Array, name: str) -> tuple[Array, Array, bool]:
    """(significands, exponents, whether all are finite) of codes of a format."""
    if name == "tf32":  # in the upper bits of a word
        parts = _split((codes >> 13).astype(np.int64), FORMATS["tf32"])
        return parts[0], parts[1], bool(parts[2].all())
    significand, exponent, finite = _table(name)
    return significand[codes], exponent[codes], bool(finite[codes].all())


def mantissa_bits(name: str) -> int:
    """Bits of the fraction of a format."""
    return FORMATS[name].mantissa


@loop
def _shifted(value, by):  # type: ignore[no-untyped-def]
    """value * 2^by, cut off towards zero."""
    if by >= 0:
        return value << by
    if by < -62:
        return np.int64(0)
    return -((-value) >> -by) if value < 0 else value >> -by


@loop
def _length(value):  # type: ignore[no-untyped-def]
    """How many bits a positive integer has."""
    bits = 0
    while value:
        value >>= 1
        bits += 1
    return bits


@loop
def _f32(total, exponent):  # type: ignore[no-untyped-def]
    """The bits of total * 2^exponent as float32, cut off towards zero."""
    if total == 0:
        return np.uint32(0)
    sign = np.uint32(0x80000000) if total < 0 else np.uint32(0)
    size = -total if total < 0 else total
    top = _length(size) - 1 + exponent
    if top > 127:
        return sign | np.uint32(0x7F800000)
    lowest = max(top, -126) - 23
    whole = _shifted(size, exponent - lowest)
    if whole < 1 << 23:
        return sign | np.uint32(whole)
    return sign | np.uint32(((lowest + 150) << 23) | (whole & 0x7FFFFF))


@loop
def _f16(total, exponent):  # type: ignore[no-untyped-def]
    """The bits of total * 2^exponent as float16, rounded to nearest even."""
    if total == 0:
        return np.uint32(0)
    sign = np.uint32(0x8000) if total < 0 else np.uint32(0)
    size = -total if total < 0 else total
    top = _length(size) - 1 + exponent
    lowest = max(top, -14) - 10
    by = lowest - exponent
    whole = size << -by if by <= 0 else np.int64(0)
    if 0 < by < 62:
        whole = size >> by
        rest = size - (whole << by)
        half = np.int64(1) << (by - 1)
        if rest > half or (rest == half and whole & 1):
            whole += 1
    if whole >= 1 << 11:
        whole >>= 1
        lowest += 1
    if whole < 1 << 10:
        return sign | np.uint32(whole)
    if lowest + 10 > 15:
        return sign | np.uint32(0x7C00)
    return sign | np.uint32(((lowest + 25) << 10) | (whole & 0x3FF))


@loop
def _sums(  # type: ignore[no-untyped-def]
    a, a_exp, b, b_exp, unit, a_scale, b_scale, c, c_exp, c_unit, half, bits, out
):
    """out[n, m] = sum over k of a[m, k] * b[n, k] + c[n, m]. unit: products are in units of
    2^-unit, c in those of 2^-c_unit. a_scale, b_scale: exponents of whole rows. bits: terms are cut
    off so many below the largest exponent."""
    columns, rows, depth = b.shape[0], a.shape[0], a.shape[1]
    for n in range(columns):
        for m in range(rows):
            scale = a_scale[m] + b_scale[n]
            largest = c_exp[n, m]
            for k in range(depth):
                largest = max(largest, a_exp[m, k] + b_exp[n, k] + scale)
            total = _shifted(np.int64(c[n, m]), bits - c_unit + c_exp[n, m] - largest)
            for k in range(depth):
                product = np.int64(a[m, k]) * np.int64(b[n, k])
                if product:
                    by = bits - unit + a_exp[m, k] + b_exp[n, k] + scale - largest
                    total += _shifted(product, by)
            exponent = largest - bits
            out[n, m] = _f16(total, exponent) if half else _f32(total, exponent)


@loop
def _halves(packed, table, out):  # type: ignore[no-untyped-def]
    """Pairs of E2M1 codes, [rows, bytes], as halves."""
    for row in range(packed.shape[0]):
        for i in range(packed.shape[1]):
            pair = packed[row, i]
            out[row, 2 * i] = table[pair & 15]
            out[row, 2 * i + 1] = table[pair >> 4]


@loop
def _scale_parts(codes, repeats, is_ue8m0, sig, exp, bad):  # type: ignore[no-untyped-def]
    """Scales [rows, blocks / repeats] as (significand in eighths, exponent) of each block of 16."""
    for row in range(codes.shape[0]):
        bad[row] = False
        for block in range(sig.shape[1]):
            code = np.int32(codes[row, block // repeats])
            if is_ue8m0:
                sig[row, block], exp[row, block] = 8, code - 127
                bad[row] |= code == 255
                continue
            code &= 127  # the sign is ignored
            bad[row] |= code == 127
            whole = (code & 7) | (8 if code >= 8 else 0)
            sig[row, block] = whole
            exp[row, block] = max(code >> 3, 1) - 7 if whole else ZERO


@loop
def _block_sums(a, b, a_sig, a_exp, a_bad, b_sig, b_exp, b_bad, negate, c, out):  # type: ignore[no-untyped-def]
    """out[n, m] = sum over k of a[m, k] * b[n, k] + c[n, m], of halves with scales in eighths."""
    columns, rows, blocks = b.shape[0], a.shape[0], a_sig.shape[1]
    terms = np.zeros(blocks, np.int64)
    for n in range(columns):
        for m in range(rows):
            bits = c[n, m]
            biased = np.int32(bits >> 23) & 255
            fraction = np.int32(bits & 0x7FFFFF)
            if a_bad[m] or b_bad[n] or (biased == 255 and fraction):
                out[n, m] = np.uint32(0x7FFFFFFF)
                continue
            if biased == 255:
                out[n, m] = bits
                continue
            start = np.int64(fraction | (0x800000 if biased else 0))
            start_exp = max(biased, 1) - 127 if start else ZERO
            if bits >> 31:
                start = -start
            largest = start_exp
            for block in range(blocks):
                dot = 0
                for k in range(block * BLOCK, block * BLOCK + BLOCK):
                    dot += np.int32(a[m, k]) * np.int32(b[n, k])
                terms[block] = np.int64(-dot if negate else dot) * a_sig[m, block] * b_sig[n, block]
                largest = max(largest, a_exp[m, block] + b_exp[n, block])
            total = _shifted(start, _BLOCK_FRACTION - 23 + start_exp - largest)
            for block in range(blocks):
                if terms[block]:
                    by = _BLOCK_FRACTION - 8 + a_exp[m, block] + b_exp[n, block] - largest
                    total += _shifted(terms[block], by)
            out[n, m] = _f32(total, largest - _BLOCK_FRACTION)


def _accumulators(c: Array, half: bool) -> tuple[Array, Array, bool]:
    """Parts of uint32[n, m] with f32, or f16 in the lower halves."""
    if half:
        return elements(c & np.uint32(0xFFFF), "f16")
    if not c.any():
        return c.view(np.int32), np.full(c.shape, ZERO, np.int32), True
    parts = _split(c.astype(np.int64), FORMATS["f32"])
    return parts[0], parts[1], bool(parts[2].all())


def dots(
    a: Array, b: Array, types: tuple[str, str], c: Array, half: bool,
    scales: tuple[Array, Array] | None = None, negate: bool = False,
) -> Array:  # fmt: skip
    """Codes a [m, k] and b [n, k] and accumulators c, uint32[n, m], to the same of a * b + c.

    half: accumulators are f16. scales: UE8M0 codes of the rows of a and of b. negate: the products.
    """
    a_sig, a_exp, a_finite = elements(a, types[0])
    b_sig, b_exp, b_finite = elements(b, types[1])
    c_sig, c_exp, c_finite = _accumulators(c, half)
    if negate:
        a_sig = -a_sig
    none = np.zeros(1, np.int32)
    a_scale = (
        np.broadcast_to(none, a.shape[0]) if scales is None else scales[0].astype(np.int32) - 127
    )
    b_scale = (
        np.broadcast_to(none, b.shape[0]) if scales is None else scales[1].astype(np.int32) - 127
    )
    out = np.empty(c.shape, np.uint32)
    unit = mantissa_bits(types[0]) + mantissa_bits(types[1])
    c_unit = 10 if half else 23
    _sums(
        a_sig, a_exp, b_sig, b_exp, unit, np.ascontiguousarray(a_scale),
        np.ascontiguousarray(b_scale), c_sig, c_exp, c_unit, half, _FRACTION, out
    )  # fmt: skip
    if not (a_finite and b_finite and c_finite):
        _put_specials(out, a, b, types, c, half, negate)
    if scales is not None:
        bad = (scales[1] == 0xFF)[:, None] | (scales[0] == 0xFF)[None, :]
        out[bad] = F16_NAN if half else F32_NAN
    return out


def _put_specials(
    out: Array, a: Array, b: Array, types: tuple[str, str], c: Array, half: bool, negate: bool
) -> None:
    """Infinities and NaNs, where the exact sum is one."""
    one, other = (_special_values(codes, name) for codes, name in zip((a, b), types, strict=True))
    with np.errstate(invalid="ignore"):
        start = c.view(np.float32)
        if half:
            start = (c & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)
        total = np.zeros(out.shape)
        for k in range(a.shape[1]):
            total += np.outer(other[:, k], -one[:, k] if negate else one[:, k])
        total += start.astype(np.float64)
    out[np.isnan(total)] = F16_NAN if half else F32_NAN
    infinite = np.isinf(total)
    bits = (
        np.where(total < 0, 0xFC00, 0x7C00) if half else np.where(total < 0, 0xFF800000, 0x7F800000)
    )
    out[infinite] = bits[infinite]


def _special_values(codes: Array, name: str) -> Array:
    """float64 whose infinities, NaNs, zeros and signs are right."""
    fmt = FORMATS[name]
    plain = (codes >> 13 if name == "tf32" else codes).astype(np.int64)
    significand, _, finite = _split(plain, fmt)
    values = np.sign(significand).astype(np.float64)
    size = plain & (fmt.sign - 1)
    infinite = (size == fmt.largest + 1) if fmt.infinite else np.zeros(size.shape, np.bool_)
    values = np.where(finite, values, np.nan)
    return np.where(infinite, np.where(plain & fmt.sign, -np.inf, np.inf), values)


_E2M1_HALVES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def block_dots(
    a: Array, b: Array, a_scales: Array, b_scales: Array, scale_type: str, c: Array, negate: bool
) -> Array:
    """Pairs of E2M1 codes a [m, k / 2] and b [n, k / 2], codes of their scales [row, blocks], ue4m3
    or ue8m0, and f32 accumulators c, uint32[n, m], to the same of the scaled products and c."""
    parts = []
    for packed, scales in ((a, a_scales), (b, b_scales)):
        rows, blocks = packed.shape[0], 2 * packed.shape[1] // BLOCK
        halves = np.empty((rows, 2 * packed.shape[1]), np.int8)
        _halves(packed, _E2M1_HALVES, halves)
        sig, exp = np.empty((2, rows, blocks), np.int32)
        bad = np.empty(rows, np.bool_)
        _scale_parts(scales, blocks // scales.shape[1], scale_type == "ue8m0", sig, exp, bad)
        parts.append((halves, sig, exp, bad))
    (one, *of_a), (other, *of_b) = parts
    out = np.empty(c.shape, np.uint32)
    _block_sums(one, other, *of_a, *of_b, negate, c, out)
    return out


def integer_dots(a: Array, b: Array, c: Array, saturates: bool) -> Array:
    """Integers a [m, k] and b [n, k] (int8 or uint8) and int32 accumulators c, uint32[n, m]."""
    whole = (b.astype(np.float64) @ a.astype(np.float64).T).astype(np.int64)
    whole += c.view(np.int32)
    if saturates:
        whole = whole.clip(-(2**31), 2**31 - 1)
    return whole.astype(np.uint32)
