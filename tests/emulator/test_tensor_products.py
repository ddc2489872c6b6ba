"""tcgen05.mma against products in Python, for all kinds, layouts and block sizes."""

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from ptx_harness import Array
from tensor_harness import (
    COMMIT,
    E2M1,
    TILES,
    WAIT,
    by_one_thread,
    core_matrices,
    descriptor,
    execute,
    in_lanes,
    nibbles,
    read_back,
    scaled,
)

from nvfp4.emulator.arithmetic import fused_dots
from nvfp4.emulator.arithmetic.formats import FORMATS, decode
from nvfp4.emulator.errors import UnsupportedInstruction


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
    bits = 1 << 7 | 1 << 10 | columns // 8 << 17 | (scale_type == "ue8m0") << 23 | 1 << 27
    first = 0 if scales == 4 else 2
    bits |= first << 4 | first << 29
    product = f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{block}"
    middle = f"""{scaled([each.size for each in tiles], bits)} setp.eq.u32 %p6, %r0, %r0;
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
    assert np.array_equal(out.view(np.float32), (2 * one @ other.T)[:, :8].astype(np.float32))
    assert report.tensor_instructions == 2


def truncated(terms: list[tuple[Fraction, int]], fraction: int) -> Fraction:
    """The sum of significands at exponents, each cut off below the largest exponent."""
    unit = Fraction(2) ** (max(exponent for _, exponent in terms) - fraction)
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


def block_sums(operands: Any, scales: Any, c: Array, scale_type: str = "ue4m3") -> Array:
    """Bits of the scaled products and c, uint32[n, m]."""
    words = c[None].copy()
    (a, b), (sa, sb) = operands, scales
    tiles, factors = (a[None], b[None]), (sa[None], sb[None])
    where = np.zeros(1, np.int64)
    fused_dots.add_block_products(words, where, 0, True, tiles, factors, scale_type, negate=False)
    return words[0]


# Of equal scales and products that are 0, or nearly, what is cut off is all that there is.
@pytest.mark.parametrize(
    ("codes", "scale", "powers"),
    [(range(256), (0, 0x7F), (-30, 30))]
    + [((0, 1, 9), (0x38, 0x39), (at, at + 1)) for at in (*range(-16, -9), *range(25, 40, 2))],
)  # fmt: skip
def test_sums_of_16_products_of_fp4_are_cut_off_35_bits_below_the_largest_exponent(
    codes: Sequence[int], scale: tuple[int, int], powers: tuple[int, int]
) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.choice(np.array(codes, np.uint8), (16, 32)) for _ in range(2))
    sa, sb = (rng.integers(*scale, (16, 4), np.uint8) for _ in range(2))
    powers_of_two = np.exp2(rng.integers(*powers, (16, 16)))
    c = (rng.uniform(1, 2, (16, 16)) * rng.choice([-1, 1], (16, 16)) * powers_of_two).astype(
        np.float32
    )
    found = block_sums((a, b), (sa, sb), c.view(np.uint32)).view(np.float32)
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


def test_large_scales_of_one_side_do_not_overflow_before_small_ones_of_the_other() -> None:
    ones, start = np.full((1, 32), 0x22, np.uint8), np.zeros((1, 1), np.uint32)
    scales = np.full((1, 2), 254, np.uint8), np.full((1, 2), 2, np.uint8)
    assert block_sums((7 * ones // 2, ones), scales, start, "ue8m0").view(np.float32) == 64 * 6 * 4


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
    assert block_sums((codes, codes), (scales, scales), c[:, :1]).tolist() == [[0x7FFFFFFF]]


@pytest.mark.parametrize(("columns", "most_s"), [(8, 120 / 1e5), (256, 120 / 1e3)])
def test_a_product_of_fp4_takes_little_time(columns: int, most_s: float) -> None:
    """So that 10^5 of N = 8, or 10^3 of N = 256, take a minute of one core at most, and two of one
    that runs other threads besides."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 256, (rows, 32), np.uint8) for rows in (128, columns))
    scales = [in_lanes(rng.integers(52, 60, (128, 4), np.uint8)) for _ in range(3)]
    tiles = [core_matrices(a), core_matrices(b), *scales]
    starts = TILES + np.cumsum([0, *(each.size for each in tiles)])
    bits = 1 << 7 | 1 << 10 | columns // 8 << 17 | 1 << 27

    def seconds(count: int) -> float:
        copies = "".join(
            f"mov.b64 %d3, {descriptor(start, 0, 128)}; add.u32 %r3, %r1, {column};"
            "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r3], %d3;"
            for start, column in zip(starts[2:5], (256, 260, 264), strict=True)
        )
        middle = f"""{copies} add.u32 %r3, %r1, 256; add.u32 %r4, %r1, 260;
        mov.b64 %d5, {descriptor(starts[0], 128, 256)}; mov.b32 %r5, {bits};
        mov.b64 %d6, {descriptor(starts[1], 128, 256)}; mov.u32 %r30, 0;
        setp.ne.u32 %p5, %r0, %r0;
        AGAIN: tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16
        [%r1], %d5, %d6, %r5, [%r3], [%r4], %p5;
        setp.eq.u32 %p5, %r0, %r0; add.u32 %r30, %r30, 1;
        setp.lt.u32 %p9, %r30, {count}; @%p9 bra AGAIN; {COMMIT}"""
        out = np.zeros((128, 8), np.uint32)
        text, begun_s = by_one_thread(middle) + WAIT + read_back(8), time.process_time()
        assert not execute(text, tiles, out, columns=512).findings
        return time.process_time() - begun_s

    few, more = (1, 101) if columns == 8 else (1, 5)
    seconds(few)
    # Other threads of this process count, too.
    assert (min(seconds(more) for _ in range(3)) - seconds(few)) / (more - few) < most_s


# --- kinds without block scales, layouts ----------------------------------------------------------

WIDTHS = {0: 16, 6: 32, 4: 64, 2: 128}
"""Bytes of a line, by the code of the swizzle."""


def swizzled(rows: Array, swizzle: int) -> Array:
    """Rows of bytes, K-major, uint8[rows, 32], at the start of lines as wide as the swizzle."""
    width = WIDTHS[swizzle]
    lines = np.zeros((len(rows), max(width, 32)), np.uint8)
    lines[:, :32] = rows
    if not swizzle:
        return core_matrices(rows)
    flat = np.zeros(lines.size, np.uint8)
    for start in range(0, flat.size, 16):
        row, byte = divmod(start, width)
        flat[start ^ ((start >> 7) & (width // 16 - 1)) << 4 :][:16] = lines[row, byte : byte + 16]
    return flat


def aligned_to(tiles: list[Array], nbytes: int) -> tuple[list[Array], list[int]]:
    """The tiles with gaps, and where they start."""
    padded = [np.pad(each, (0, -each.size % nbytes)) for each in tiles]
    return padded, (TILES + np.cumsum([0, *(each.size for each in padded)])).tolist()


KINDS = {
    "f16": ("f16", np.float16, 0, 0),
    "bf16": ("f16", np.uint16, 1, 1),
    "tf32": ("tf32", np.float32, 2, 2),
    "e4m3": ("f8f6f4", np.uint8, 0, 0),
    "e5m2": ("f8f6f4", np.uint8, 1, 1),
    "i8": ("i8", np.int8, 1, 1),
    "u8": ("i8", np.uint8, 0, 0),
}


def drawn(name: str, rows: int, seed: int) -> tuple[Array, Array]:
    """(bytes, uint8[rows, 32], values) of small integers, which every type holds."""
    rng = np.random.default_rng(seed)
    dtype = KINDS[name][1]
    size = np.dtype(dtype).itemsize
    values = rng.integers(0 if name == "u8" else -4, 5, (rows, 32 // size)).astype(np.float64)
    if name == "bf16":
        codes = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif name in FORMATS and size == 1:
        table = decode(np.arange(256, dtype=np.uint8), FORMATS[name])
        codes = np.array([int(np.flatnonzero(table == each)[0]) for each in values.flat], np.uint8)
        codes = codes.reshape(values.shape)
    else:
        codes = values.astype(dtype)
    return np.ascontiguousarray(codes).view(np.uint8).reshape(rows, 32), values


def instruction_bits(name: str, rows: int, columns: int, half: bool = False) -> int:
    d = 2 if KINDS[name][0] == "i8" else 0 if half else 1
    _, _, a, b = KINDS[name]
    return d << 4 | a << 7 | b << 10 | columns // 8 << 17 | rows // 16 << 24


def product(kind: str, a: int, b: int, bits: int, more: str = "", first: str = "") -> str:
    return by_one_thread(f"""
mov.b64 %d5, {a}; mov.b64 %d6, {b}; mov.b32 %r5, {bits};
setp.ne.u32 %p5, %r0, %r0; setp.eq.u32 %p6, %r0, %r0; {first}
tcgen05.mma.cta_group::1.kind::{kind} [%r1], %d5, %d6, %r5, {more}; {COMMIT}""")


def words_of(text: str, tiles: list[Array], read: str = read_back(16)) -> Array:
    """Run a product in whose kernel nothing is found: what each thread reads, uint32[128, 16]."""
    out = np.zeros((128, 16), np.uint32)
    assert not execute(text + WAIT + read, tiles, out).findings
    return out


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("swizzle", WIDTHS)
def test_a_product_of_any_kind_reads_any_swizzle(name: str, swizzle: int) -> None:
    (a, left), (b, right) = drawn(name, 128, 1), drawn(name, 16, 2)
    tiles, starts = aligned_to([swizzled(a, swizzle), swizzled(b, swizzle)], 1024)
    leading, stride = (128, 256) if not swizzle else (16, 8 * WIDTHS[swizzle])
    of_a, of_b = (descriptor(each, leading, stride, swizzle) for each in starts[:2])
    kind = KINDS[name][0]
    words = words_of(product(kind, of_a, of_b, instruction_bits(name, 128, 16), "%p5"), tiles)
    assert np.array_equal(words.view(np.int32 if kind == "i8" else np.float32), left @ right.T)


@pytest.mark.parametrize("name", ["f16", "e4m3", "i8", "tf32"])
def test_a_transposed_matrix_is_read_along_the_other_side(name: str) -> None:
    (a, left), (b, right) = drawn(name, 128, 1), drawn(name, 16, 2)
    kind, dtype = KINDS[name][:2]
    size = np.dtype(dtype).itemsize

    def along_rows(rows: Array) -> Array:
        """Chunks of 16 bytes along M or N, 8 of them along K next to each other."""
        elements = rows.reshape(len(rows), -1, size).transpose(1, 0, 2).reshape(32 // size, -1)
        if name == "tf32":  # lines of 128 bytes, 4 along K, in atoms of 32 bytes
            width = elements.shape[1]
            flat = np.zeros(8 * max(width, 128), np.uint8)
            for k in range(8):
                for byte in range(0, width, 16):
                    at = byte // 128 * 1024 + k // 4 * 512 + k % 4 * 128 + byte % 128
                    flat[at ^ ((at >> 7) & 3) << 5 :][:16] = elements[k, byte : byte + 16]
            return flat
        chunks = elements.reshape(elements.shape[0] // 8, 8, -1, 16)
        return np.ascontiguousarray(chunks.transpose(2, 0, 1, 3)).reshape(-1)

    tiles, starts = aligned_to([along_rows(a), along_rows(b)], 1024)
    # Without a swizzle: leading to the next 8 of K, stride to the next chunk of M or N.
    form = (1024, 512, 1) if name == "tf32" else (128, 128 * (32 // size // 8), 0)
    of_a, of_b = (descriptor(each, *form) for each in starts[:2])
    bits = instruction_bits(name, 128, 16) | 1 << 15 | 1 << 16
    words = words_of(product(kind, of_a, of_b, bits, "%p5"), tiles)
    assert np.array_equal(words.view(np.int32 if kind == "i8" else np.float32), left @ right.T)


def plain(name: str = "f16", rows: int = 128, columns: int = 16) -> tuple[Any, ...]:
    (a, left), (b, right) = drawn(name, rows, 1), drawn(name, columns, 2)
    tiles = [core_matrices(a), core_matrices(b)]
    of_a = descriptor(TILES, 128, 256)
    return tiles, of_a, descriptor(TILES + tiles[0].size, 128, 256), left, right


@pytest.mark.parametrize("half", [False, True])
def test_a_matrix_may_be_negated_and_sums_in_f16_stand_in_the_lower_halves(half: bool) -> None:
    tiles, of_a, of_b, left, right = plain()
    bits = instruction_bits("f16", 128, 16, half) | (not half) << 13
    words = words_of(product("f16", of_a, of_b, bits, "%p5"), tiles)
    found = words.astype(np.uint16).view(np.float16) if half else -words.view(np.float32)
    assert np.array_equal(found, left @ right.T)


def test_a_mask_of_disabled_lanes_is_empty_or_refused() -> None:
    tiles, of_a, of_b, left, right = plain()
    first = "mov.b32 %r7, 0; mov.b32 %r8, 0;"
    bits = instruction_bits("f16", 128, 16)
    text = product("f16", of_a, of_b, bits, "{%r7, %r7, %r7, %r8}, %p5", first)
    assert np.array_equal(words_of(text, tiles).view(np.float32), left @ right.T)
    with pytest.raises(UnsupportedInstruction, match="with disabled lanes is not"):
        words_of(text.replace("%r8, 0;", "%r8, 1;"), tiles)


def test_with_m_64_rows_are_the_first_16_lanes_of_each_32() -> None:
    tiles, of_a, of_b, left, right = plain(rows=64)
    bits = instruction_bits("f16", 64, 16)
    read = read_back(16).replace("mul.wide", "shr.u32 %r9, %r0, 4; and.b32 %r9, %r9, 1;"
                                 "setp.eq.u32 %p9, %r9, 0; mul.wide")  # fmt: skip
    read = read.replace("st.global", "@%p9 st.global")
    words = words_of(product("f16", of_a, of_b, bits, "%p5"), tiles, read)
    expected = np.zeros((128, 16))
    expected[np.arange(64) // 16 * 32 + np.arange(64) % 16] = left @ right.T
    assert np.array_equal(words.view(np.float32), expected)


@pytest.mark.parametrize("name", ["f16", "e4m3", "tf32"])
def test_a_may_stand_in_tensor_memory(name: str) -> None:
    tiles, _, of_b, left, right = plain(name)
    first = f"mov.b64 %d3, {descriptor(TILES, 128, 256)}; add.u32 %r3, %r1, 16;"
    first += "tcgen05.cp.cta_group::1.128x256b [%r3], %d3;"
    bits = instruction_bits(name, 128, 16)
    kind = KINDS[name][0]
    text = product(kind, 0, of_b, bits, "%p5", first).replace(" [%r1], %d5,", " [%r1], [%r3],")
    assert np.array_equal(words_of(text, tiles).view(np.float32), left @ right.T)


def test_narrow_elements_stand_16_to_a_chunk() -> None:
    """kind::f8f6f4 with E2M1 and E3M2: 8 and 12 bytes of data, then padding, which may be unset."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 16, (128, 32), np.uint8), rng.integers(0, 64, (16, 32), np.uint8)

    def packed(codes: Array, bits: int) -> Array:
        flat = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits]
        data = np.packbits(flat.reshape(len(codes), 2, -1), axis=-1, bitorder="little")
        return np.pad(data, ((0, 0), (0, 0), (0, 16 - 2 * bits))).reshape(len(codes), 32)

    tiles = [core_matrices(packed(a, 4)), core_matrices(packed(b, 6))]
    of_a, of_b = (descriptor(each, 128, 256) for each in (TILES, TILES + tiles[0].size))
    bits = 1 << 4 | 5 << 7 | 4 << 10 | 16 // 8 << 17 | 128 // 16 << 24
    padding = TILES + 8, TILES + tiles[0].size + 12
    unset = f"st.shared.u32 [{padding[0]}], %r9; st.shared.u32 [{padding[1]}], %r9;"
    first = f"{unset} fence.proxy.async;"
    words = words_of(product("f8f6f4", of_a, of_b, bits, "%p5", first), tiles)
    expected = decode(a, FORMATS["e2m1"]) @ decode(b, FORMATS["e3m2"]).T
    assert np.array_equal(words.view(np.float32), expected.astype(np.float32))


def test_a_product_of_fp8_has_a_scale_for_32_elements() -> None:
    (a, left), (b, right) = drawn("e4m3", 128, 1), drawn("e4m3", 16, 2)
    rng = np.random.default_rng(6)
    sa, sb = (rng.integers(120, 132, (rows, 4), np.uint8) for rows in (128, 16))
    tiles = [core_matrices(a), core_matrices(b), in_lanes(sa), in_lanes(sb)]
    bits = 16 // 8 << 17 | 1 << 23 | 1 << 27 | 3 << 29 | 1 << 4
    middle = by_one_thread(f"""{scaled([each.size for each in tiles], bits, column=16)}
tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r1], %d5, %d6, %r5, [%r3], [%r4], %p5;
{COMMIT}""")
    one = left * np.exp2(sa[:, 3:].astype(float) - 127)
    expected = (one @ (right * np.exp2(sb[:, 1:2].astype(float) - 127)).T).astype(np.float32)
    assert np.array_equal(words_of(middle, tiles).view(np.float32), expected)
