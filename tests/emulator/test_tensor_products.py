"""tcgen05.mma against products in Python, for all kinds, layouts and block sizes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tensor_harness import (
    COMMIT,
    TILES,
    WAIT,
    by_one_thread,
    core_matrices,
    descriptor,
    execute,
    read_back,
)

from nvfp4.emulator.arithmetic import fused_dots
from nvfp4.emulator.arithmetic.formats import FORMATS, decode

Array = np.ndarray[Any, Any]

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def nibbles(packed: Array) -> Array:
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(packed.shape[0], -1)


def in_lanes(scales: Array) -> Array:
    """Scales [rows, 4] as the 512 bytes that tcgen05.cp.32x128b.warpx4 takes."""
    rows = np.zeros((128, 4), np.uint8)
    rows[: len(scales)] = scales
    return rows.reshape(4, 32, 4).transpose(1, 0, 2)


def values_of_scales(codes: Array, kind: str) -> Array:
    if kind == "ue8m0":
        return np.exp2(codes.astype(np.float64) - 127)
    return np.abs(decode(codes, FORMATS["e4m3"]))


SCALED = {
    ("mxf4nvf4", "block16", "ue4m3"): 4,
    ("mxf4nvf4", "scale_vec::4X", "ue8m0"): 4,
    ("mxf4nvf4", "scale_vec::2X", "ue8m0"): 2,
    ("mxf4", "block32", "ue8m0"): 2,
}


@pytest.mark.parametrize(("form", "scales"), SCALED.items())
@pytest.mark.parametrize("columns", [8, 72])
def test_a_product_of_fp4_is_scaled_in_blocks(
    form: tuple[str, str, str], scales: int, columns: int
) -> None:
    kind, block, scale_type = form
    rng = np.random.default_rng(columns)
    a, b = (rng.integers(0, 256, (rows, 32), np.uint8) for rows in (128, columns))
    low, high = (126, 129) if scale_type == "ue8m0" else (52, 60)  # the sums fit into f32
    sa, sb = (rng.integers(low, high, (rows, 4), np.uint8) for rows in (128, columns))
    tiles = [core_matrices(a), core_matrices(b), in_lanes(sa), in_lanes(sb)]
    starts = TILES + np.cumsum([0, *(each.size for each in tiles)])
    bits = 1 << 7 | 1 << 10 | columns // 8 << 17 | (scale_type == "ue8m0") << 23 | 1 << 27
    first = 0 if scales == 4 else 2
    bits |= first << 4 | first << 29
    product = f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{block}"
    middle = f"""
mov.b64 %d3, {descriptor(starts[2], 0, 128)}; mov.b64 %d4, {descriptor(starts[3], 0, 128)};
add.u32 %r3, %r1, 96; add.u32 %r4, %r1, 100; setp.ne.u32 %p5, %r0, %r0;
tcgen05.cp.cta_group::1.32x128b.warpx4 [%r3], %d3;
tcgen05.cp.cta_group::1.32x128b.warpx4 [%r4], %d4;
mov.b64 %d5, {descriptor(starts[0], 128, 256)}; mov.b64 %d6, {descriptor(starts[1], 128, 256)};
mov.b32 %r5, {bits}; setp.eq.u32 %p6, %r0, %r0;
{product} [%r1], %d5, %d6, %r5, [%r3], [%r4], %p5;
{product} [%r1], %d5, %d6, %r5, [%r3], [%r4], %p6;
{COMMIT}"""
    out = np.zeros((128, 8), np.uint32)
    report = execute(by_one_thread(middle) + WAIT + read_back(8), tiles, out, columns=128)
    assert not report.findings
    width = 64 // scales
    sa, sb = (each[:, first : first + scales] for each in (sa, sb))
    one = E2M1[nibbles(a)] * np.repeat(values_of_scales(sa, scale_type), width, axis=1)
    other = E2M1[nibbles(b)] * np.repeat(values_of_scales(sb, scale_type), width, axis=1)
    expected = 2 * one @ other.T
    assert np.array_equal(out.view(np.float32), expected[:, :8].astype(np.float32))
    assert report.tensor_instructions == 2


def truncated(terms: list[tuple[Fraction, int]], fraction: int) -> Fraction:
    """The sum of significands at exponents, each cut off below the largest exponent."""
    largest = max(exponent for _, exponent in terms)
    unit = Fraction(2) ** (largest - fraction)
    return sum((Fraction(int(s * Fraction(2) ** e / unit)) for s, e in terms), Fraction(0)) * unit


def cut_to_f32(value: Fraction) -> np.float32:
    """Rounded towards zero."""
    nearest = np.float32(float(value))
    if abs(Fraction(float(nearest))) > abs(value):
        nearest = np.nextafter(nearest, np.float32(0))
    return nearest


def parts(value: float, least: int) -> tuple[Fraction, int]:
    """(significand from 1 to 2, exponent), with an exponent of at least `least`."""
    if value == 0:
        return Fraction(0), fused_dots.ZERO
    exponent = max(int(np.frexp(value)[1]) - 1, least)
    return Fraction(value) / Fraction(2) ** exponent, exponent


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2", "e2m3"])
def test_terms_are_cut_off_25_bits_below_the_largest_exponent(name: str) -> None:
    rng = np.random.default_rng(3)
    fmt = FORMATS[name]
    codes = rng.integers(0, 2 * fmt.sign, (40, 16))
    codes = np.where((codes & (fmt.sign - 1)) > fmt.largest, 1, codes)
    if name == "bf16":  # no product beyond float32
        codes = (codes & 0x9FFF) | 0x2000
    codes = codes.astype(np.uint16 if fmt.mantissa + fmt.exponent > 7 else np.uint8)
    a, b = codes[:20], codes[20:]
    c = (rng.normal(size=(20, 20)) * np.exp2(rng.integers(-30, 30, (20, 20)))).astype(np.float32)
    found = fused_dots.dots(a, b, (name, name), c.view(np.uint32), half=False).view(np.float32)
    least = fmt.lowest_exponent
    left, right = decode(a, fmt), decode(b, fmt)
    for n, m in rng.integers(0, 20, (60, 2)):
        terms = [parts(float(c[n, m]), -126)]
        for k in range(16):
            one, other = parts(left[m, k], least), parts(right[n, k], least)
            terms.append((one[0] * other[0], one[1] + other[1]))
        assert found[n, m] == cut_to_f32(truncated(terms, 25))


def test_sums_of_16_products_of_fp4_are_cut_off_35_bits_below_the_largest_exponent() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0, 256, (16, 32), np.uint8) for _ in range(2))
    sa, sb = (rng.integers(0, 0x7F, (16, 4), np.uint8) for _ in range(2))
    c = (rng.normal(size=(16, 16)) * np.exp2(rng.integers(-30, 30, (16, 16)))).astype(np.float32)
    words = c.view(np.uint32)
    found = fused_dots.block_dots(a, b, sa, sb, "ue4m3", words, negate=False).view(np.float32)
    scale_a, scale_b = (decode(each, FORMATS["e4m3"]) for each in (sa, sb))
    left, right = (E2M1[nibbles(each)] for each in (a, b))
    for n in range(16):
        for m in range(16):
            terms = [parts(float(c[n, m]), -126)]
            for block in range(4):
                some = slice(16 * block, 16 * block + 16)
                dot = Fraction(float(left[m, some] @ right[n, some]))
                one, other = parts(scale_a[m, block], -6), parts(scale_b[n, block], -6)
                terms.append((dot * one[0] * other[0], one[1] + other[1]))
            assert found[n, m] == cut_to_f32(truncated(terms, 35))


def test_infinities_and_nans_come_out_as_such() -> None:
    one, infinity, nan = 0x3C00, 0x7C00, 0x7E00
    a = np.array([[one, one], [infinity, one], [infinity, 0xFC00], [nan, one]], np.uint16)
    b = np.full((1, 2), one, np.uint16)
    c = np.zeros((1, 4), np.uint32)
    found = fused_dots.dots(a, b, ("f16", "f16"), c, half=False).view(np.float32)[0]
    assert found[0] == 2 and found[1] == np.inf and np.isnan(found[2]) and np.isnan(found[3])
    halves = fused_dots.dots(a, b, ("f16", "f16"), c, half=True)[0]
    assert halves.tolist() == [0x4000, 0x7C00, 0x7FFF, 0x7FFF]
    scales = np.array([[0x7F] * 4], np.uint8)
    codes = np.zeros((1, 32), np.uint8)
    bad = fused_dots.block_dots(codes, codes, scales, scales, "ue4m3", c[:, :1], negate=False)
    assert bad.tolist() == [[0x7FFFFFFF]]
