"""cvt with floats of 4 and 8 bits, by integer code and exact products.

Each row gives the bits of the instruction: round to nearest even, saturate, and the canonical NaN
where the format has one (else its largest number), which is what the emulator does.
"""

from collections.abc import Callable

from nvfp4.records.base import Record
from nvfp4.retarget.sequence import Impossible, Sequence, Text, rule
from nvfp4.retarget.targets import Target, tensor_memory

# Truth tables of lop3 over a, b, c.
_AND_OR = 0xEA  # (a & b) | c
_SELECT = 0xD8  # c ? b : a, bit by bit

_EACH_SIGN = 0x80008000
_CANONICAL_NAN = 0x7FFF7FFF


class Narrow(Record):
    """A float of `bits` bits, 4 or 8: sign, exponent, `mantissa` bits."""

    bits: int
    mantissa: int
    lowest: int
    """Exponent of the smallest normal number."""
    largest: int
    """f32 bits of the largest number."""
    nan: int | None = None
    """Its code; None if there is none."""


NARROW = {
    "e2m1x2": Narrow(4, 1, 0, 0x40C00000),
    "e4m3x2": Narrow(8, 3, -6, 0x43E00000, 0x7F),
    "e5m2x2": Narrow(8, 2, -14, 0x47600000, 0x7F),
}
_BYTES = ("e4m3x2", "e5m2x2")
_SMALLER = ("e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")


@rule("cvt")
def narrow_conversion(s: Sequence, target: Target) -> bool:
    """Rewrite conversions of pairs of narrow floats: to f16x2, from two f32, from f16x2 or
    bf16x2."""
    narrow = [t for t in s.types if t in _BYTES or t in _SMALLER]
    if s.has("rs"):
        if tensor_memory(target):
            return False
        raise Impossible("stochastic rounding exists on sm_100a only")
    if target.number >= max((100 if t in _SMALLER else 89 for t in narrow), default=0):
        return False
    if len(s.types) == 2 and not s.has("scaled::n2::ue8m0"):
        into, source = s.types
        if into == "f16x2" and source in NARROW:
            return _to_halves(s, source)
        if into in NARROW and source in ("f32", "f16x2", "bf16x2"):
            return _from_floats(s, NARROW[into], source)
    raise Impossible("this conversion is not in the table of rewrites")


# --- to f16x2 ------------------------------------------------------------------------------


def _to_halves(s: Sequence, source: str) -> bool:
    """Move the bits of each lane to where f16 has them; a product corrects the exponent's bias."""
    opcode, *sources = _DECODERS[source](s)
    if not s.has("relu"):
        return s.perform(opcode, s.operand(0), *sources)
    halves = s.value(opcode, *sources)
    return s.perform("max.NaN.f16x2", s.operand(0), halves, s.value("mov.b32", 0))


def _e2m1(s: Sequence) -> tuple[Text, ...]:
    # Exponent and mantissa at bits 9 to 11 of each half.
    placed = s.value("mul.lo.u32", s.value("cvt.u32.u8", s.operand(1)), 1 << 9 | 1 << 21)
    return _scaled(s, _joined(s, placed, 0x0E000E00, s.value("shl.b32", placed, 3)), 14)


def _e4m3(s: Sequence) -> tuple[Text, ...]:
    spread = _spread(s)
    low = s.value("shr.u32", spread, 1)
    halves = s.value(*_scaled(s, _joined(s, low, 0x3F803F80, spread), 8))
    size = s.value("and.b32", halves, 0x7FFF7FFF)
    # 480, which E4M3 has no code for, comes from that of its NaN.
    return _with_nan(halves, s.value("set.eq.u32.f16x2", size, s.value("mov.b32", 0x5F805F80)))


def _e5m2(s: Sequence) -> tuple[Text, ...]:
    spread = _spread(s)
    return _with_nan(spread, s.value("set.nan.u32.f16x2", spread, spread))


_DECODERS: dict[str, Callable[[Sequence], tuple[Text, ...]]] = {
    "e2m1x2": _e2m1,
    "e4m3x2": _e4m3,
    "e5m2x2": _e5m2,
}
"""Decoders of a pair to f16x2. Each emits instructions and returns the last one, which sets the
result."""


def _spread(s: Sequence) -> str:
    """Put each code in the upper byte of its half, with zeros below."""
    return s.value("prmt.b32", s.value("cvt.u32.u16", s.operand(1)), 0, 0x1404)


def _joined(s: Sequence, magnitude: str, mask: int, signs: str) -> str:
    """Give the masked magnitudes the top bit of each half of `signs`."""
    return s.value("lop3.b32", magnitude, mask, s.value("and.b32", signs, _EACH_SIGN), _AND_OR)


def _scaled(s: Sequence, halves: str, exponent: int) -> tuple[Text, ...]:
    """Multiply both halves by a power of two; exact, signs of zeros kept."""
    factor = (15 + exponent) << 10
    return "mul.rn.f16x2", halves, s.value("mov.b32", factor << 16 | factor)


def _with_nan(halves: str, which: str) -> tuple[Text, ...]:
    """Put the canonical NaN in the halves where `which` has ones."""
    return "lop3.b32", halves, _CANONICAL_NAN, which, _SELECT


# --- from floats ---------------------------------------------------------------------------


def _from_floats(s: Sequence, form: Narrow, source: str) -> bool:
    """Convert from two f32, the first of which becomes the upper lane, or from the halves of a
    pair."""
    if source == "f32":
        high, low = s.held(1), s.held(2)
    elif source == "f16x2":
        low, high = (s.value("cvt.f32.f16", half) for half in s.halves(1, "b16"))
    else:
        pair = s.held(1)
        low, high = s.value("shl.b32", pair, 16), s.value("and.b32", pair, 0xFFFF0000)
    relu = s.has("relu")
    lower, upper = _code(s, low, form, relu), _code(s, high, form, relu)
    both = s.value("or.b32", lower, s.value("shl.b32", upper, form.bits))
    return s.perform("cvt.u8.u32" if form.bits == 4 else "cvt.u16.u32", s.operand(0), both)


def _code(s: Sequence, value: str, form: Narrow, relu: bool) -> str:
    """Compute the code of an f32: saturated, rounded to nearest even."""
    # min first: it makes a NaN the largest number, whose sign is plus.
    below = s.value("min.f32", value, f"0f{form.largest:08X}")
    least = 0 if relu else form.largest | 0x80000000
    kept = s.value("max.f32", below, f"0f{least:08X}")
    size = s.value("and.b32", kept, 0x7FFFFFFF)
    # The power of two at or below the number, not less than the smallest normal one. Adding that,
    # times 2**(23 - mantissa), leaves the significand as an integer in the lowest bits of the sum.
    exponent = s.value("and.b32", size, 0x7F800000)
    exponent = s.value("max.u32", exponent, (127 + form.lowest) << 23)
    dropped = 23 - form.mantissa
    shifter = s.value("add.u32", exponent, dropped << 23)
    significand = s.value("sub.u32", s.value("add.rn.f32", size, shifter), shifter)
    # A normal significand carries its hidden bit, which adds one to the exponent field.
    code = s.value("add.u32", significand, s.value("shr.u32", exponent, dropped))
    code = s.value("sub.u32", code, (127 + form.lowest) << form.mantissa)
    if not relu:
        sign = s.value("shr.u32", kept, 32 - form.bits)
        code = s.value("lop3.b32", sign, 1 << (form.bits - 1), code, _AND_OR)
    if form.nan is not None:
        nan = s.value("setp.nan.f32", value, value, kind="pred")
        code = s.value("selp.b32", form.nan, code, nan)
    return code
