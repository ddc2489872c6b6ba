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
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from nvfp4.emulator.arithmetic.formats import FORMATS, Format, decode
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array

ZERO = -126
"""The exponent of zero; nothing is aligned to it."""
BLOCK = 16
"""Elements of FP4 whose products are summed exactly."""
F32_NAN = np.uint32(0x7FFFFFFF)
F16_NAN = np.uint32(0x7FFF)
_FRACTION, _BLOCK_FRACTION = 25, 35
_IN_F32 = ~((1 << 29) - 1)
"""The bits of a float64 that a float32 has, too."""
_LEAST_NORMAL = 2.0**-126
_HALVES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int64)
"""Values of the 16 E2M1 codes, in halves."""
_NO_SCALE = 1000
"""The exponent of a scale that is NaN."""
_COLUMNS_AT_ONCE = 4
_VECTOR_BYTES = 128 if binding.get_host_cpu_features().get("avx512f") else 64
"""Sums that `_multiply` keeps in vector registers: so many columns of this many bytes of rows. With
AVX2 alone there are 16 registers of 32 bytes, and sums that spill take 2.5 times as long."""


@lru_cache(maxsize=16)
def _table(name: str) -> tuple[Array, Array, Array]:
    """Return (significands, exponents, whether finite) of all codes of a format of up to 16
    bits."""
    fmt = FORMATS[name]
    return _split(np.arange(2 << (fmt.exponent + fmt.mantissa)), fmt)


def _split(codes: Array, fmt: Format) -> tuple[Array, Array, Array]:
    fraction = codes & ((1 << fmt.mantissa) - 1)
    biased = (codes >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
    size = codes & (fmt.sign - 1)
    significand = np.where(biased > 0, fraction | (1 << fmt.mantissa), fraction)
    exponent = np.maximum(biased, 1) + fmt.lowest_exponent - 1
    exponent = np.where(significand == 0, ZERO, exponent)
    significand = np.where(codes & fmt.sign, -significand, significand)
    return significand.astype(np.int32), exponent.astype(np.int32), size <= fmt.largest


@loop
def _look_up(codes, significands, exponents, finite, significand, exponent):  # type: ignore[no-untyped-def]
    """The parts of each code, from tables; whether all are finite."""
    every = True
    for i in range(codes.shape[0]):
        for j in range(codes.shape[1]):
            code = codes[i, j]
            significand[i, j], exponent[i, j] = significands[code], exponents[code]
            every &= finite[code]
    return every


def elements(codes: Array, name: str) -> tuple[Array, Array, bool]:
    """Return (significands, exponents, whether all are finite) of codes [rows, k] in the format
    `name`."""
    if name == "tf32":  # in the upper bits of a word
        parts = _split((codes >> 13).astype(np.int64), FORMATS["tf32"])
        return parts[0], parts[1], bool(parts[2].all())
    significand, exponent = np.empty((2, *codes.shape), np.int32)
    return significand, exponent, _look_up(codes, *_table(name), significand, exponent)


@loop
def _split_f32(bits, significand, exponent):  # type: ignore[no-untyped-def]
    """The parts of each float32, in units of 2^-23; whether all are finite."""
    special = 0
    for i in range(bits.shape[0]):
        for j in range(bits.shape[1]):
            biased = np.int32(bits[i, j] >> np.uint32(23)) & np.int32(255)
            size = np.int32(bits[i, j] & np.uint32(0x7FFFFF))
            size |= np.int32(0x800000) if biased != 0 else np.int32(0)
            special += biased == 255
            exponent[i, j] = max(biased, np.int32(1)) - 127 if size != 0 else ZERO
            significand[i, j] = -size if bits[i, j] >> np.uint32(31) != 0 else size
    return special == 0


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
    """Return the number of bits of a positive integer."""
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
def _put_f32(totals, largest, bits, out):  # type: ignore[no-untyped-def]
    """Store totals * 2^(largest - bits) as float32, cut off towards zero."""
    tiny = 0
    for m in range(totals.shape[0]):
        power = (np.int64(largest[m]) - bits + 1023) << 52
        value = np.float64(totals[m]) * np.int64(power).view(np.float64)
        tiny += np.int64(abs(value) < _LEAST_NORMAL)
        cut_off = np.int64(np.float64(value).view(np.int64) & _IN_F32).view(np.float64)
        out[m] = np.float32(cut_off).view(np.uint32)
    if tiny:
        for m in range(totals.shape[0]):
            out[m] = _f32(totals[m], largest[m] - bits)


@loop
def _sums(  # type: ignore[no-untyped-def]
    a, a_exp, b, b_exp, unit, a_scale, b_scale, c, c_exp, c_unit, half, bits, out
):
    """out[n, m] = sum over k of a[k, m] * b[n, k] + c[n, m]. unit: products are in units of
    2^-unit, c in those of 2^-c_unit. a_scale, b_scale: exponents of whole rows. bits: terms are cut
    off so many below the largest exponent."""
    depth, rows = a.shape
    largest = np.empty(rows, np.int32)
    totals = np.empty(rows, np.int64)
    exponents = np.empty((depth, rows), np.int32)
    for k in range(depth):
        for m in range(rows):
            exponents[k, m] = a_exp[k, m] + a_scale[m]
    for n in range(b.shape[0]):
        for m in range(rows):
            largest[m] = c_exp[n, m]
        for k in range(depth):
            exponent = b_exp[n, k] + b_scale[n]
            for m in range(rows):
                largest[m] = max(largest[m], exponents[k, m] + exponent)
        for m in range(rows):
            totals[m] = _shifted(np.int64(c[n, m]), bits - c_unit + c_exp[n, m] - largest[m])
        for k in range(depth):
            factor = b[n, k]
            exponent = np.int32(b_exp[n, k] + b_scale[n] + bits - unit)
            for m in range(rows):
                # A product has at most 22 bits, and at most 27 once it is shifted.
                product = np.int32(a[k, m] * factor)
                by = np.int32(exponents[k, m] + exponent - largest[m])
                size = np.int32(abs(product) << max(by, np.int32(0)))
                size = np.int32(size >> min(max(np.int32(-by), np.int32(0)), np.int32(31)))
                totals[m] += size if product > 0 else np.int32(-size)
        if half:
            for m in range(rows):
                out[n, m] = _f16(totals[m], largest[m] - bits)
        else:
            _put_f32(totals, largest, bits, out[n])


@loop
def _scaled_elements(packed, codes, values, scales, out):  # type: ignore[no-untyped-def]
    """Write rows of pairs of E2M1 codes as values times their blocks' scales to out[k, row]."""
    rows, width = packed.shape[0], packed.shape[1] // codes.shape[1]
    factors = np.empty(rows, scales.dtype)
    for i in range(packed.shape[1]):
        if i % width == 0:
            for row in range(rows):
                factors[row] = scales[codes[row, i // width]]
        low, high = out[2 * i], out[2 * i + 1]
        for row in range(rows):
            pair = packed[row, i]
            low[row] = values[pair & 15] * factors[row]
            high[row] = values[pair >> 4] * factors[row]


@loop
def _exponent_range(codes, exponents, low, high):  # type: ignore[no-untyped-def]
    """The least and the largest exponent of each row's scales that are not zero."""
    for row in range(codes.shape[0]):
        low[row], high[row] = _NO_SCALE, ZERO
        for block in range(codes.shape[1]):
            exponent = exponents[codes[row, block]]
            if exponent != ZERO:
                low[row], high[row] = min(low[row], exponent), max(high[row], exponent)
        if low[row] == _NO_SCALE or high[row] == _NO_SCALE:
            low[row] = 0


@loop
def _block_sum(a, b, a_codes, b_codes, significands, exponents, negate, bits):  # type: ignore[no-untyped-def]
    """Add the scaled products of two rows of pairs of E2M1 codes to a float32, given and returned
    as bits."""
    biased = np.int32(bits >> 23) & 255
    fraction = np.int32(bits & 0x7FFFFF)
    blocks = 2 * a.shape[0] // BLOCK
    repeats = blocks // a_codes.shape[0]
    bad = biased == 255 and fraction != 0
    for i in range(a_codes.shape[0]):
        bad |= exponents[a_codes[i]] == _NO_SCALE or exponents[b_codes[i]] == _NO_SCALE
    if bad:
        return np.uint32(F32_NAN)
    if biased == 255:
        return bits
    start = np.int64(fraction | (0x800000 if biased else 0))
    start_exp = max(biased, 1) - 127 if start else ZERO
    if bits >> 31:
        start = -start
    largest = start_exp
    for i in range(a_codes.shape[0]):
        largest = max(largest, exponents[a_codes[i]] + exponents[b_codes[i]])
    total = _shifted(start, _BLOCK_FRACTION - 23 + start_exp - largest)
    for block in range(blocks):
        dot = np.int64(0)
        for i in range(block * BLOCK // 2, block * BLOCK // 2 + BLOCK // 2):
            dot += _HALVES[a[i] & 15] * _HALVES[b[i] & 15] + _HALVES[a[i] >> 4] * _HALVES[b[i] >> 4]
        one, other = a_codes[block // repeats], b_codes[block // repeats]
        term = (-dot if negate else dot) * significands[one] * significands[other]
        total += _shifted(term, _BLOCK_FRACTION - 8 + exponents[one] + exponents[other] - largest)
    return _f32(total, largest - _BLOCK_FRACTION)


@intrinsic
def _multiply(typing_context: Any, left: Any, right: Any, n: Any, m: Any, out: Any) -> Any:
    """out[i, m:] = sum over k of right[k, n + i] * left[k, m:], for as many columns n and rows m as
    are multiplied at once, in any order of the sums."""
    dtype = left.dtype

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one, other, into = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 4)
        )
        size = _VECTOR_BYTES * 8 // dtype.bitwidth
        vector, index = ir.VectorType(context.get_value_type(dtype), size), args[2].type

        def place(array: Any, row: Any, column: Any) -> Any:
            before = builder.mul(row, builder.extract_value(array.shape, 1))
            return builder.gep(array.data, [builder.add(before, column)])

        def rows_at(array: Any, row: Any) -> Any:
            return builder.bitcast(place(array, row, args[3]), vector.as_pointer())

        sums = [cgutils.alloca_once(builder, vector) for _ in range(_COLUMNS_AT_ONCE)]
        for each in sums:
            builder.store(ir.Constant(vector, None), each)
        with cgutils.for_range(builder, builder.extract_value(one.shape, 0)) as each_k:
            own = builder.load(rows_at(one, each_k.index), align=4)
            for i, each in enumerate(sums):
                column = builder.add(args[2], ir.Constant(index, i))
                factor = builder.load(place(other, each_k.index, column))
                unset = ir.Constant(vector, ir.Undefined)
                first = builder.insert_element(unset, factor, ir.Constant(ir.IntType(32), 0))
                same = ir.Constant(ir.VectorType(ir.IntType(32), size), None)
                factors = builder.shuffle_vector(first, first, same)
                product = builder.fmul(own, factors, flags=("contract",))
                total = builder.fadd(builder.load(each), product, flags=("contract",))
                builder.store(total, each)
        for i, each in enumerate(sums):
            builder.store(builder.load(each), rows_at(into, ir.Constant(index, i)), align=4)
        return context.get_dummy_value()

    return types.void(left, right, types.int64, types.int64, out), generate


@loop
def _exponents(words):  # type: ignore[no-untyped-def]
    """The least exponent of the float32 words that are not zero, and the largest of all."""
    least, largest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(words.shape[0]):
        size = np.uint32(words[i] << np.uint32(1))
        least = min(least, np.uint32(size - np.uint32(1)))
        largest = max(largest, size)
    return max(np.int64(least) + 1 >> 24, 1) - 127, max(np.int64(largest) >> 24, 1) - 127


@loop
def _block_products(  # type: ignore[no-untyped-def]
    a, b, a_codes, b_codes, values, scales, significands, exponents, exact, negate, words, where,
    column, accumulate
):  # fmt: skip
    """words[where[i], column + n, m] = sum over k of a[i, m, k] * b[i, n, k], plus what is there.

    a, b: pairs of E2M1 codes. values, scales: of codes, both float32 or float64. exact: whether
    numbers of this type hold the sums of the products. Then the sum is as if nothing was cut off,
    unless exponents differ so much that something is: that is computed term by term."""
    rows, columns, depth = a.shape[1], b.shape[1], 2 * a.shape[2]
    at_once = _VECTOR_BYTES // scales.itemsize
    padded = (rows + at_once - 1) // at_once * at_once
    left = np.zeros((depth, padded), scales.dtype)
    right = np.zeros((depth, columns + _COLUMNS_AT_ONCE - 1), scales.dtype)
    a_low, a_high = np.empty(rows, np.int32), np.empty(rows, np.int32)
    b_low, b_high = np.empty(columns, np.int32), np.empty(columns, np.int32)
    products = np.empty((_COLUMNS_AT_ONCE, padded), scales.dtype)
    cut, exactly = np.empty(rows, np.uint8), np.empty(rows, np.uint32)
    for i in range(a.shape[0]):
        _scaled_elements(a[i], a_codes[i], -values if negate else values, scales, left)
        _exponent_range(a_codes[i], exponents, a_low, a_high)
        # CTAs side by side often have the same columns.
        if i == 0 or (b[i] != b[i - 1]).any() or (b_codes[i] != b_codes[i - 1]).any():
            _scaled_elements(b[i], b_codes[i], values, scales, right)
            _exponent_range(b_codes[i], exponents, b_low, b_high)
        highest, lowest, widest = a_high.max(), a_low.min(), (a_high - a_low).max()
        for n in range(columns):
            sums = words[where[i], column + n]
            some = 0
            # Where the whole column has no extremes, nothing in it is cut off.
            least, largest = _exponents(sums[:rows]) if accumulate else (ZERO, ZERO)
            above = largest - lowest > b_low[n] + _BLOCK_FRACTION - 8
            below = least < highest + b_high[n] - (_BLOCK_FRACTION - 23)
            wide = widest + b_high[n] - b_low[n] > _BLOCK_FRACTION - 8
            if wide or not exact or (accumulate and (above or below or largest == 128)):
                for m in range(rows):
                    bits = sums[m] if accumulate else np.uint32(0)
                    biased = np.int32(bits >> np.uint32(23)) & np.int32(255)
                    exponent = max(biased, np.int32(1)) - np.int32(127)
                    high = a_high[m] + b_high[n]
                    spread = max(high, exponent) - a_low[m] - b_low[n]
                    below = (bits << np.uint32(1) != 0) & (exponent < high - (_BLOCK_FRACTION - 23))
                    cut[m] = below | (spread > _BLOCK_FRACTION - 8) | (biased == 255) | (not exact)
                    some += cut[m]
            if some:
                for m in range(rows):
                    if cut[m]:
                        exactly[m] = _block_sum(
                            a[i, m], b[i, n], a_codes[i, m], b_codes[i, n], significands,
                            exponents, negate, sums[m] if accumulate else np.uint32(0),
                        )  # fmt: skip
            if n % _COLUMNS_AT_ONCE == 0:
                for m in range(0, rows, at_once):
                    _multiply(left, right, n, m, products)
            own = products[n % _COLUMNS_AT_ONCE]
            for m in range(rows):
                before = np.uint32(sums[m]).view(np.float32) if accumulate else np.float32(0)
                total = np.float64(own[m]) + np.float64(before)
                cut_off = np.int64(np.float64(total).view(np.int64) & _IN_F32).view(np.float64)
                sums[m] = np.float32(cut_off).view(np.uint32)
            if some:
                for m in range(rows):
                    if cut[m]:
                        sums[m] = exactly[m]


def dots(
    a: Array, b: Array, types: tuple[str, str], c: Array, half: bool,
    scales: tuple[Array, Array] | None = None, negate: bool = False,
) -> Array:  # fmt: skip
    """Return a * b + c, uint32[n, m], for codes a [m, k] and b [n, k]; c is uint32[n, m], too.

    half: accumulators are f16. scales: UE8M0 codes of the rows of a and of b. negate: whether
    products are negated.
    """
    a_sig, a_exp, a_finite = elements(np.ascontiguousarray(a.T), types[0])
    b_sig, b_exp, b_finite = elements(b, types[1])
    if half:
        c_sig, c_exp, c_finite = elements(c & np.uint32(0xFFFF), "f16")
    else:
        c_sig, c_exp = np.empty((2, *c.shape), np.int32)
        c_finite = _split_f32(np.ascontiguousarray(c), c_sig, c_exp)
    if negate:
        a_sig = -a_sig
    a_scale, b_scale = (
        np.zeros(rows.shape[0], np.int32) if scales is None else scales[i].astype(np.int32) - 127
        for i, rows in enumerate((a, b))
    )
    out = np.empty(c.shape, np.uint32)
    unit = FORMATS[types[0]].mantissa + FORMATS[types[1]].mantissa
    c_unit = 10 if half else 23
    _sums(
        a_sig, a_exp, b_sig, b_exp, unit, a_scale, b_scale, c_sig, c_exp, c_unit, half, _FRACTION,
        out
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
    """Put infinities and NaNs into `out` where the exact sum is one."""
    one, other = (
        decode(codes >> 13 if name == "tf32" else codes, FORMATS[name])
        for codes, name in zip((a, b), types, strict=True)
    )
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
    negative, positive = (0xFC00, 0x7C00) if half else (0xFF800000, 0x7F800000)
    out[infinite] = np.where(total < 0, negative, positive)[infinite]


@lru_cache(maxsize=2)
def _scale_tables(name: str) -> tuple[Array, Array, Array, Array]:
    """Return tables that the code of a scale indexes: value, unit that it is a multiple of,
    significand in eighths, exponent.

    The first three are 0 for NaN and zero. The sign is ignored.
    """
    codes = np.arange(256)
    if name == "ue8m0":
        significand, exponent = np.full(256, 8), codes - 127
        nan = codes == 255
    else:
        significand, exponent, finite = _table("e4m3")
        significand, nan = np.abs(significand), ~finite  # their sign bit does not count
    significand, exponent = np.where(nan, 0, significand), np.where(nan, _NO_SCALE, exponent)
    power = np.where(significand == 0, 0.0, np.exp2(np.minimum(exponent, 127) - 3.0))
    lowest = significand & -significand
    return (
        significand * power, lowest * power, significand.astype(np.int32),
        exponent.astype(np.int32)
    )  # fmt: skip


@loop
def _mark(codes, used):  # type: ignore[no-untyped-def]
    """Set used[code] for each of these codes."""
    for i in range(codes.shape[0]):
        used[codes[i]] = True


def add_block_products(
    words: Array, where: Array, column: int, accumulate: bool, operands: tuple[Array, Array],
    scales: tuple[Array, Array], scale_type: str, negate: bool,
) -> None:  # fmt: skip
    """Add products of FP4 with block scales to tiles of tensor memory, or store them there.

    words: uint32[CTAs, columns, lanes]. where, column: the CTA of each tile, and the first column.
    operands: pairs of E2M1 codes a [tiles, m, k / 2] and b [tiles, n, k / 2]. scales: their codes,
    [tiles, rows, blocks], ue4m3 or ue8m0. negate: whether products are negated.
    """
    values, units, significands, exponents = _scale_tables(scale_type)
    used = np.zeros((2, 256), np.bool_)
    for each, codes in zip(used, scales, strict=True):
        _mark(codes.reshape(-1), each)
    sides = [6 * values[each].max(initial=0) for each in used]
    most = float(np.prod(sides))
    some = [units[each] for each in used]
    least = float(np.prod([0.5 * each[each > 0].min(initial=np.inf) for each in some]))
    depth = 2 * operands[0].shape[2]
    bits = 0.0 if np.isinf(least) else np.log2(depth * most / least)
    exact = bits < 53 and (bits == 0 or (least > 2.0**-100 and most < 2.0**100))
    dtype = np.float32 if exact and bits < 24 and max(sides) < 2.0**127 else np.float64
    halves, factors = (_HALVES / 2).astype(dtype), values.astype(dtype)

    _block_products(
        *operands, *scales, halves, factors, significands, exponents, exact, negate, words, where,
        column, accumulate
    )  # fmt: skip


def integer_dots(a: Array, b: Array, c: Array, saturates: bool) -> Array:
    """Return a * b + c, uint32[n, m], for integers a [m, k] and b [n, k] (int8 or uint8) and int32
    accumulators c, uint32[n, m]."""
    whole = (b.astype(np.float64) @ a.astype(np.float64).T).astype(np.int64)
    whole += c.view(np.int32)
    if saturates:
        whole = whole.clip(-(2**31), 2**31 - 1)
    return whole.astype(np.uint32)
