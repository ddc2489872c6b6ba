"""Floating-point instructions against exact rational numbers."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import softfloat as sf
from hypothesis import given
from hypothesis import strategies as st
from lane_operands import agree, both_halves, call, operands

from nvfp4.emulator.arithmetic import compiled as host_fpu
from nvfp4.emulator.arithmetic import resolve
from nvfp4.emulator.errors import UnsupportedInstruction

Oracle = Callable[..., int]
SCALARS = {"f16": sf.F16, "bf16": sf.BF16, "f32": sf.F32, "f64": sf.F64}
MODES = ("rn", "rz", "rm", "rp")


def magnitude(form: sf.Binary, bits: int) -> int:
    return bits & (form.sign_bit - 1)


def flushed(form: sf.Binary, function: Oracle) -> Oracle:
    return lambda *words: sf.flush(form, function(*(sf.flush(form, w) for w in words)))


def saturated(form: sf.Binary, function: Oracle) -> Oracle:
    one = form.round(Fraction(1))

    def within(bits: int) -> int:
        return 0 if sf.is_nan(form, bits) or form.negative(bits) else min(bits, one)

    return lambda *words: within(function(*words))


def rectified(form: sf.Binary, function: Oracle) -> Oracle:
    def kept(bits: int) -> int:
        return bits if sf.is_nan(form, bits) or not form.negative(bits) else 0

    return lambda *words: kept(function(*words))


def extreme(form: sf.Binary, name: str, nan_wins: bool = False) -> Oracle:
    def oracle(a: int, b: int) -> int:
        nans = [sf.is_nan(form, w) for w in (a, b)]
        if all(nans) or (nan_wins and any(nans)):
            return sf.handed_on(form, b)
        if any(nans):
            return b if nans[0] else a
        order = sorted((a, b), key=lambda w: (form.value(w), not form.negative(w)))
        return order[0] if name == "min" else order[1]

    return oracle


def on_numbers(form: sf.Binary, function: Oracle) -> Oracle:
    return lambda a: sf.handed_on(form, a) if sf.is_nan(form, a) else function(a)


CASES: dict[str, Oracle] = {}
for _name, _form in SCALARS.items():
    for _mode in MODES if _name in ("f32", "f64") else ("rn",):
        CASES |= {
            f"add.{_mode}.{_name}": lambda a, b, f=_form, m=_mode: sf.add(f, a, b, m),
            f"sub.{_mode}.{_name}": lambda a, b, f=_form, m=_mode: sf.sub(f, a, b, m),
            f"mul.{_mode}.{_name}": lambda a, b, f=_form, m=_mode: sf.mul(f, a, b, m),
            f"fma.{_mode}.{_name}": lambda a, b, c, f=_form, m=_mode: sf.fma(f, a, b, c, m),
        }
        if _name in ("f32", "f64"):
            CASES |= {
                f"div.{_mode}.{_name}": lambda a, b, f=_form, m=_mode: sf.divide(f, a, b, m),
                f"rcp.{_mode}.{_name}": lambda a, f=_form, m=_mode: sf.divide(
                    f, f.round(Fraction(1)), a, m
                ),
                f"sqrt.{_mode}.{_name}": lambda a, f=_form, m=_mode: sf.square_root(f, a, m),
            }
    CASES |= {
        f"min.{_name}": extreme(_form, "min"),
        f"max.{_name}": extreme(_form, "max"),
        f"abs.{_name}": on_numbers(_form, lambda a, f=_form: a & ~f.sign_bit),
        f"neg.{_name}": on_numbers(_form, lambda a, f=_form: a ^ f.sign_bit),
    }

for _name in ("f16", "bf16"):
    _form = SCALARS[_name]
    _fma = CASES[f"fma.rn.{_name}"]
    CASES |= {
        f"fma.rn.relu.{_name}": rectified(_form, _fma),
        f"fma.rn.{_name}x2": both_halves(_fma),
        f"add.{_name}x2": both_halves(CASES[f"add.rn.{_name}"]),
        f"mul.{_name}x2": both_halves(CASES[f"mul.rn.{_name}"]),
        f"max.NaN.{_name}x2": both_halves(extreme(_form, "max", nan_wins=True)),
    }
_f16, _f32 = (CASES[f"fma.rn.{name}"] for name in ("f16", "f32"))
CASES |= {
    "fma.rn.ftz.f16": lambda a, b, c: sf.fma(sf.F16, a, b, c, ftz=True),
    "mul.ftz.f16": lambda a, b: sf.mul(sf.F16, a, b, ftz=True),
    "fma.rn.sat.f16": saturated(sf.F16, _f16),
    "add.ftz.f16x2": both_halves(flushed(sf.F16, CASES["add.rn.f16"])),
    "fma.rn.ftz.f32": lambda a, b, c: sf.fma(sf.F32, a, b, c, ftz=True),
    "fma.rp.ftz.f32": lambda a, b, c: sf.fma(sf.F32, a, b, c, "rp", ftz=True),
    "fma.rn.sat.f32": saturated(sf.F32, _f32),
    "add.ftz.f32": flushed(sf.F32, CASES["add.rn.f32"]),
    "mul.ftz.sat.f32": saturated(sf.F32, lambda a, b: sf.mul(sf.F32, a, b, ftz=True)),
    "min.ftz.f32": lambda a, b: extreme(sf.F32, "min")(sf.flush(sf.F32, a), sf.flush(sf.F32, b)),
    "max.NaN.f32": extreme(sf.F32, "max", nan_wins=True),
    "copysign.f32": lambda a, b: a & 2**31 | b & (2**31 - 1),
    "copysign.f64": lambda a, b: a & 2**63 | b & (2**63 - 1),
    "fma.rn.f32x2": lambda a, b, c: (
        _f32(*(w % 2**32 for w in (a, b, c))) | _f32(*(w >> 32 for w in (a, b, c))) << 32
    ),
}


def widened(form: sf.Binary, bits: int) -> int:
    value = form.value(bits)
    if isinstance(value, Fraction):
        return sf.F32.round(value, negative_zero=form.negative(bits))
    return sf.F32.infinity(value < 0) if math.isinf(value) else 0x7FC00000


for _name in ("f16", "bf16"):
    _form = SCALARS[_name]
    CASES[f"add.f32.{_name}"] = lambda a, c, f=_form: sf.add(sf.F32, widened(f, a), c)
    CASES[f"fma.rn.f32.{_name}"] = lambda a, b, c, f=_form: sf.fma(
        sf.F32, widened(f, a), widened(f, b), c
    )


def ordered(form: sf.Binary, name: str) -> Callable[[int, int], bool]:
    def oracle(a: int, b: int) -> bool:
        x, y = form.value(a), form.value(b)
        unordered = sf.is_nan(form, a) or sf.is_nan(form, b)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u")
        base = name.removesuffix("u") if name != "equ" else "eq"
        return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[
            base
        ]

    return oracle


for _name, _form in SCALARS.items():
    for _test in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu"):
        CASES[f"setp.{_test}.{_name}"] = ordered(_form, _test)
    CASES[f"setp.num.{_name}"] = ordered(_form, "num")
    CASES[f"setp.nan.{_name}"] = ordered(_form, "nan")
    CASES[f"set.lt.f32.{_name}"] = lambda a, b, f=_form: 0x3F800000 * ordered(f, "lt")(a, b)


@pytest.mark.parametrize("opcode", CASES)
def test_a_float_instruction_agrees_with_exact_arithmetic(opcode: str) -> None:
    op = resolve(opcode)
    columns = operands(op, 150)
    keep = np.r_[0:150, 150 + np.random.default_rng(7).permutation(len(columns[0]) - 150)[:450]]
    agree(op, [column[keep] for column in columns], CASES[opcode])


@given(st.tuples(*[st.integers(0, 2**16 - 1)] * 3))
def test_a_half_precision_fma_rounds_once(words: tuple[int, int, int]) -> None:
    assert call("fma.rn.f16", *words) == sf.fma(sf.F16, *words)


@given(st.integers(0, 254), st.integers(0, 2**24), st.integers(0, 2**24), st.integers(-60, 60))
def test_a_single_precision_fma_rounds_once(exponent: int, x: int, y: int, distance: int) -> None:
    # c near the product's last bits: where a sum in float64 would round twice.
    a, b = 0x3F800000 | x & 0x7FFFFF, 0x3F800000 | y & 0x7FFFFF
    c = min(max(127 + distance, 0), 254) << 23 | exponent
    assert call("fma.rn.f32", a, b, c) == sf.fma(sf.F32, a, b, c)


def test_a_product_is_flushed_if_it_rounds_below_the_normal_numbers_there() -> None:
    # Results of an H100. The first stays below with 24 bits, the second only grows to normal.
    assert call("mul.ftz.f32", 0x00800000, 0xBF7FFFFF) == 0x80000000
    assert call("fma.rn.ftz.f32", 0x066DEC07, 0x9E48BB27, 0x00800000) == 0x00800000
    assert call("mul.ftz.f16", 0x346F, 0x0B37) == 0
    assert call("mul.ftz.f16", 0x0860, 0x3750) == 0x0400


def test_xorsign_takes_the_smaller_magnitude_and_both_signs() -> None:
    one, two, minus = 0x3F800000, 0x40000000, 0x80000000
    assert call("min.xorsign.abs.f32", one | minus, two) == one | minus
    assert call("max.xorsign.abs.f32", one | minus, two | minus) == two
    assert call("min.xorsign.abs.f16x2", 0xBC00_3C00, 0x4000_C000) == 0xBC00_BC00


def test_a_minimum_of_three_or_of_their_magnitudes_takes_the_least() -> None:
    assert call("min.f32", 0x40400000, 0x3F800000, 0x40000000, count=3) == 0x3F800000
    assert call("min.abs.f32", 0xC0400000, 0xBF800000, 0x40000000, count=3) == 0x3F800000
    assert call("max.NaN.abs.f32", 0xC0400000, 0x3F800000, 0xFFC00000, count=3) == 0x7FFFFFFF
    assert call("max.abs.f32", 0xC0400000, 0x3F800000, 0xFFC00000, count=3) == 0x40400000
    with pytest.raises(UnsupportedInstruction, match="three sources"):
        resolve("min.abs.f32")


def test_rounding_leaves_the_host_as_it_was() -> None:
    with pytest.raises(KeyError), host_fpu.rounding("rz"):
        raise KeyError
    assert np.float32(1) / np.float32(3) == np.float32(0.33333334)


APPROXIMATIONS: dict[str, Callable[[float], float]] = {
    "ex2.approx.f32": lambda x: 2.0**x,
    "lg2.approx.f32": math.log2,
    "rcp.approx.ftz.f32": lambda x: 1 / x,
    "rsqrt.approx.f32": lambda x: 1 / math.sqrt(x),
    "sqrt.approx.f32": math.sqrt,
    "sin.approx.f32": math.sin,
    "cos.approx.f32": math.cos,
    "tanh.approx.f32": math.tanh,
}


@pytest.mark.parametrize("opcode", APPROXIMATIONS)
def test_an_approximation_is_the_rounded_value(opcode: str) -> None:
    for x in (0.1, 0.5, 1.0, 1.7, 2.9):
        word = int(np.float32(x).view(np.uint32))
        want = np.float32(APPROXIMATIONS[opcode](float(np.float32(x))))
        got = np.array(call(opcode, word), dtype=np.uint32).view(np.float32)
        if opcode.startswith(("sin", "cos")):
            assert abs(float(got) - float(want)) < 4e-7
        else:
            assert abs(int(got.view(np.int32)) - int(want.view(np.int32))) <= 1
    assert call("ex2.approx.f16x2", 0x4000_3C00) == 0x4400_4000
    assert call("rcp.approx.ftz.f32", 1) == 0x7F800000
    assert call("rcp.approx.ftz.f64", 0x4008 << 48) == 0x3FD55555 << 32
    four, half = 0x4010 << 48, 0x3FE0 << 48
    assert call("rsqrt.approx.f64", four) == half
    assert call("rsqrt.approx.f64", 1 << 63) == 0xFFF0 << 48
    assert call("div.approx.f32", 0x3F800000, 0x7F000001) == 0
    assert call("div.full.f32", 0x40C00000, 0x40000000) == 0x40400000
