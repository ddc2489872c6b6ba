"""cvt against exact rational numbers; 4-, 6- and 8-bit floats on every input there is."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import softfloat as sf
from lane_operands import agree, call, operands

from nvfp4.emulator.arithmetic import mnemonics, resolve

FLOATS = {"f16": sf.F16, "bf16": sf.BF16, "f32": sf.F32, "f64": sf.F64}
NARROW = {
    **{"e4m3x2": sf.E4M3, "e5m2x2": sf.E5M2, "e2m3x2": sf.E2M3, "e3m2x2": sf.E3M2},
    "e2m1x2": sf.E2M1,
}
INTEGRAL: dict[str, Callable[[Fraction], int]] = {
    **{"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
}


def convert(
    source: sf.Binary, target: sf.Binary, bits: int, mode: str = "rn", saturate: bool = False
) -> int:
    value = source.value(bits)
    negative = source.negative(bits)
    sign = target.sign_bit if negative else 0
    if isinstance(value, Fraction):
        return target.round(value, mode, negative, saturate)
    if math.isnan(value):
        if source is sf.F64 and target.nan is not None:
            # Sign and upper payload stay, the quiet bit is set.
            payload = (bits & (2**52 - 1)) >> (52 - target.mantissa_bits)
            return sign | target.infinity(False) | 1 << (target.mantissa_bits - 1) | payload
        return target.top if target.nan is None else target.nan
    return sign | target.top if saturate or not target.has_infinity else target.infinity(negative)


def check(opcode: str, oracle: Callable[..., int], count: int = 300) -> None:
    op = resolve(opcode)
    agree(op, [column[:1200] for column in operands(op, count)], oracle)


@pytest.mark.parametrize("name", NARROW)
def test_every_narrow_float_becomes_its_half(name: str) -> None:
    form = NARROW[name]
    codes = 2 * form.sign_bit
    width = 4 if name == "e2m1x2" else 8
    for low in range(codes):
        high = (low * 37 + 11) % codes
        want = [convert(form, sf.F16, code) for code in (low, high)]
        assert call(f"cvt.rn.f16x2.{name}", low | high << width) == want[0] | want[1] << 16
        relu = [0 if w & 0x8000 else w for w in want]
        assert call(f"cvt.rn.relu.f16x2.{name}", low | high << width) == relu[0] | relu[1] << 16


def test_the_e2m1_values_are_the_definition() -> None:
    definition = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    table = resolve("cvt.rn.f16x2.e2m1x2").function(np.arange(256, dtype=np.uint8))[0]
    halves = table.view(np.float16).reshape(256, 2)
    for byte in range(256):
        for half, code in zip(halves[byte], (byte & 15, byte >> 4), strict=True):
            assert abs(float(half)) == definition[code & 7]
            assert np.signbit(half) == bool(code & 8)


@pytest.mark.parametrize("name", NARROW)
def test_single_precision_rounds_once_to_a_narrow_float(name: str) -> None:
    form, width = NARROW[name], 4 if name == "e2m1x2" else 8

    def oracle(a: int, b: int) -> int:
        high, low = (convert(sf.F32, form, w, saturate=True) for w in (a, b))
        return high << width | low

    check(f"cvt.rn.satfinite.{name}.f32", oracle)


@pytest.mark.parametrize("name", ["e4m3x2", "e5m2x2"])
def test_every_half_rounds_once_to_a_narrow_float(name: str) -> None:
    words = np.arange(2**16, dtype=np.uint32)
    (got,) = resolve(f"cvt.rn.satfinite.{name}.f16x2").function(words | 0x3C00 << 16)
    one = NARROW[name].round(Fraction(1))
    for word in range(0, 2**16, 7):
        want = convert(sf.F16, NARROW[name], word, saturate=True)
        assert int(got[word]) == want | one << 8, hex(word)


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_narrowing_rounds_once(target: str, mode: str) -> None:
    form = FLOATS[target]
    check(f"cvt.{mode}.{target}.f32", lambda a: convert(sf.F32, form, a, mode))
    check(
        f"cvt.{mode}.satfinite.{target}.f32",
        lambda a: convert(sf.F32, form, a, mode, saturate=True),
    )
    check(
        f"cvt.{mode}.{target}x2.f32",
        lambda a, b: convert(sf.F32, form, a, mode) << 16 | convert(sf.F32, form, b, mode),
    )


def test_tf32_keeps_ten_bits_of_the_mantissa() -> None:
    def oracle(a: int, mode: str) -> int:
        if mode == "rna" and sf.is_nan(sf.F32, a):
            return a & 0xFFFFE000
        return convert(sf.F32, sf.TF32, a, mode) << 13

    for mode in ("rn", "rz", "rna"):
        check(f"cvt.{mode}.tf32.f32", lambda a, m=mode: oracle(a, m))
    assert call("cvt.rn.relu.tf32.f32", 0x158EEA43) == 0x158EE000
    assert call("cvt.rn.relu.tf32.f32", 0x958EEA43) == 0
    assert call("cvt.rna.satfinite.tf32.f32", 0x7F800001) == 0x7F7FE000


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_double_precision_rounds_once(mode: str) -> None:
    check(f"cvt.{mode}.f32.f64", lambda a: convert(sf.F64, sf.F32, a, mode))
    check(f"cvt.{mode}.f16.f64", lambda a: convert(sf.F64, sf.F16, a, mode))


def test_widening_is_exact() -> None:
    for source, target in (("f16", "f32"), ("f16", "f64"), ("f32", "f64"), ("bf16", "f32")):
        form, wide = FLOATS[source], FLOATS[target]
        op = resolve(f"cvt.{target}.{source}")
        columns = operands(op, 500)
        (got,) = op.function(*columns)
        for word, result in zip(columns[0].tolist(), got.tolist(), strict=True):
            value = form.value(word)
            if isinstance(value, float) and math.isnan(value):
                assert isinstance(wide.value(result), float)
                assert math.isnan(wide.value(result))
            else:
                assert result == convert(form, wide, word)


@pytest.mark.parametrize("target", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_a_float_becomes_an_integer_and_saturates(source: str, target: str) -> None:
    form, width, is_signed = FLOATS[source], int(target[1:]), target[0] == "s"
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if is_signed else (0, 2**width - 1)
    wide_nan = width == 64 or source == "f64"
    for mode, rounding in INTEGRAL.items():

        def oracle(bits: int, r: Callable[[Fraction], int] = rounding) -> int:
            value = form.value(bits)
            if isinstance(value, float):
                if math.isnan(value):
                    return 2 ** (width - 1) if wide_nan else 0
                return (high if value > 0 else low) % 2**width
            return max(low, min(high, r(value))) % 2**width

        check(f"cvt.{mode}.{target}.{source}", oracle, count=100)


@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
def test_an_integer_rounds_once_to_a_float(source: str, target: str) -> None:
    width, form = int(source[1:]), FLOATS[target]
    for mode in ("rn", "rz", "rm", "rp") if target in ("f32", "f64") else ("rn",):

        def oracle(bits: int, m: str = mode) -> int:
            value = bits - 2**width if source[0] == "s" and bits >> (width - 1) else bits
            return form.round(Fraction(value), m)

        check(f"cvt.{mode}.{target}.{source}", oracle, count=200)


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_rounding_to_integral_stays_in_the_format(name: str) -> None:
    form = FLOATS[name]
    for mode, rounding in INTEGRAL.items():
        op = resolve(f"cvt.{mode}.{name}.{name}")
        columns = operands(op, 300)
        (got,) = op.function(*columns)
        for word, result in zip(columns[0].tolist(), got.tolist(), strict=True):
            value = form.value(word)
            if isinstance(value, Fraction):
                negative = form.negative(word)
                assert result == form.round(Fraction(rounding(value)), "rn", negative), hex(word)


def test_a_power_of_two_scale_is_rounded_down_or_up() -> None:
    for x, down, up in ((1.0, 127, 127), (1.5, 127, 128), (0.0, 0, 0), (-6.0, 129, 130)):
        word = int(np.float32(x).view(np.uint32))
        assert call("cvt.rz.satfinite.ue8m0x2.f32", word, word) == down << 8 | down
        assert call("cvt.rp.satfinite.ue8m0x2.f32", word, word) == up << 8 | up
    assert call("cvt.rz.satfinite.ue8m0x2.f32", 0x7F800000, 0x7FC00000) == 254 << 8 | 255
    for code in range(256):
        want = 0x7FFF if code == 255 else sf.BF16.round(Fraction(2) ** (code - 127))
        assert call("cvt.rn.bf16x2.ue8m0x2", code) & 0xFFFF == want


def test_every_instruction_of_the_table_is_tested() -> None:
    import test_arithmetic_floats as floats
    import test_arithmetic_integers as integers

    opcodes = [*integers.CASES, *floats.CASES, *floats.APPROXIMATIONS, "cvt", "lop3"]
    assert {opcode.split(".")[0] for opcode in opcodes} == set(mnemonics())
