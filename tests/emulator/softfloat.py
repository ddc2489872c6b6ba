"""Floating point by exact rational numbers: slow, and written apart from the emulator."""

import math
from dataclasses import dataclass
from fractions import Fraction


def in_units(size: Fraction, exponent: int, mode: str, negative: bool) -> int:
    """How often 2**exponent goes into a magnitude, rounded; `negative` is its sign."""
    unit = size.denominator << max(exponent, 0)
    steps, rest = divmod(size.numerator << max(-exponent, 0), unit)
    up = {
        "rn": 2 * rest > unit or (2 * rest == unit and steps % 2 == 1),
        "rna": 2 * rest >= unit,
        "rz": False,
        "rp": rest > 0 and not negative,
        "rm": rest > 0 and negative,
    }[mode]
    return steps + up


@dataclass(frozen=True)
class Binary:
    """A binary format. top: bits of the largest finite number. nan: canonical NaN or None."""

    exponent_bits: int
    mantissa_bits: int
    top: int
    nan: int | None
    has_infinity: bool = True

    @property
    def sign_bit(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def lowest(self) -> int:
        """Exponent of the smallest subnormal."""
        return 2 - 2 ** (self.exponent_bits - 1) - self.mantissa_bits

    def value(self, bits: int) -> Fraction | float:
        """A Fraction, or a float that is infinite or NaN."""
        sign = -1 if bits & self.sign_bit else 1
        size = bits & (self.sign_bit - 1)
        if size > self.top:
            if self.has_infinity and size == self.top + 1:
                return sign * math.inf
            return math.nan
        field, fraction = size >> self.mantissa_bits, size & ((1 << self.mantissa_bits) - 1)
        if field:
            fraction += 1 << self.mantissa_bits
        exponent = self.lowest + max(field - 1, 0)
        return Fraction(sign * fraction << max(exponent, 0), 1 << max(-exponent, 0))

    def negative(self, bits: int) -> bool:
        return bool(bits & self.sign_bit)

    def infinity(self, negative: bool) -> int:
        return (self.top + 1) | (self.sign_bit if negative else 0)

    def round(
        self,
        x: Fraction,
        mode: str = "rn",
        negative_zero: bool = False,
        saturate: bool = False,
        flush: bool = False,
    ) -> int:
        """The bits of x rounded once. negative_zero: the sign of an exact zero.

        flush: zero for what, rounded with an exponent without bounds, is below the normal range.
        """
        if x == 0:
            return self.sign_bit if negative_zero else 0
        negative, size = x < 0, abs(x)
        sign = self.sign_bit if negative else 0
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if size.numerator << max(-exponent, 0) < size.denominator << max(exponent, 0):
            exponent -= 1
        unit = exponent - self.mantissa_bits
        normal = 1 << self.mantissa_bits
        if flush and unit < self.lowest:
            steps = in_units(size, unit, mode, negative)
            if unit + 1 < self.lowest or steps < 2 * normal:
                return sign
        unit = max(unit, self.lowest)
        # A carry out of the mantissa counts up the exponent, and subnormals have none.
        bits = (unit - self.lowest) * normal + in_units(size, unit, mode, negative)
        if bits > self.top:
            away = mode in ("rn", "rna") or mode == ("rm" if negative else "rp")
            if self.has_infinity and away and not saturate:
                return self.infinity(negative)
            bits = self.top
        return bits | sign


F16 = Binary(5, 10, 0x7BFF, 0x7FFF)
BF16 = Binary(8, 7, 0x7F7F, 0x7FFF)
F32 = Binary(8, 23, 0x7F7FFFFF, 0x7FFFFFFF)
F64 = Binary(11, 52, 0x7FEFFFFFFFFFFFFF, 0xFFF8000000000000)
E4M3 = Binary(4, 3, 0x7E, 0x7F, has_infinity=False)
E5M2 = Binary(5, 2, 0x7B, 0x7F)
E2M3 = Binary(2, 3, 0x1F, None, has_infinity=False)
E3M2 = Binary(3, 2, 0x1F, None, has_infinity=False)
E2M1 = Binary(2, 1, 0x7, None, has_infinity=False)
TF32 = Binary(8, 10, 0x3FBFF, 0x3FFFF)


def is_nan(form: Binary, bits: int) -> bool:
    value = form.value(bits)
    return isinstance(value, float) and math.isnan(value)


def handed_on(form: Binary, *words: int) -> int:
    """The NaN of an invalid operation, or in f64 the first NaN operand, made quiet."""
    for word in words if form is F64 else ():
        if is_nan(form, word):
            return word | 1 << 51
    assert form.nan is not None
    return form.nan


def fma(form: Binary, a: int, b: int, c: int, mode: str = "rn", ftz: bool = False) -> int:
    """a * b + c, rounded once. ftz: subnormal operands and results become zeros."""
    if ftz:
        a, b, c = (flush(form, word) for word in (a, b, c))
    x, y, z = form.value(a), form.value(b), form.value(c)
    if not all(isinstance(v, Fraction) for v in (x, y, z)):
        # Among infinities and NaNs only signs and zeros of the finite operands matter.
        small = [
            v
            if isinstance(v, float)
            else math.copysign(float(v != 0), -1 if form.negative(w) else 1)
            for v, w in ((x, a), (y, b), (z, c))
        ]
        total = small[0] * small[1] + small[2]
        if math.isnan(total):
            assert form.nan is not None
            return handed_on(form, b, c, a)
        return form.infinity(total < 0)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    product_negative = form.negative(a) != form.negative(b)
    same_zero = (Fraction(x) * Fraction(y) == 0 or exact == 0) and (
        product_negative == form.negative(c)
    )
    return form.round(exact, mode, product_negative if same_zero else mode == "rm", flush=ftz)


def add(form: Binary, a: int, b: int, mode: str = "rn") -> int:
    if form is F64 and is_nan(form, b):
        return handed_on(form, b)
    return fma(form, a, form.round(Fraction(1)), b, mode)


def sub(form: Binary, a: int, b: int, mode: str = "rn") -> int:
    return add(form, a, b if is_nan(form, b) else b ^ form.sign_bit, mode)


def mul(form: Binary, a: int, b: int, mode: str = "rn", ftz: bool = False) -> int:
    negative = form.negative(a) != form.negative(b)
    return fma(form, a, b, form.sign_bit if negative else 0, mode, ftz)


def divide(form: Binary, a: int, b: int, mode: str = "rn") -> int:
    x, y = form.value(a), form.value(b)
    negative = form.negative(a) != form.negative(b)
    assert form.nan is not None
    if is_nan(form, a) or is_nan(form, b):
        return handed_on(form, a, b)
    if isinstance(x, float):
        return form.nan if isinstance(y, float) else form.infinity(negative)
    if isinstance(y, float):
        return form.sign_bit if negative else 0
    if y == 0:
        return form.nan if x == 0 else form.infinity(negative)
    return form.round(x / y, mode, negative)


def square_root(form: Binary, a: int, mode: str = "rn") -> int:
    x = form.value(a)
    assert form.nan is not None
    if isinstance(x, float):
        return form.infinity(False) if x > 0 else handed_on(form, a)
    if x <= 0:
        return a if x == 0 else form.nan
    # An integer root of x * 4**n, with a sticky bit below if it is not exact.
    n = 2 * form.mantissa_bits + 2 - form.lowest
    scaled = x * Fraction(4) ** n
    root = math.isqrt(int(scaled))
    return form.round(Fraction(2 * root + (Fraction(root) ** 2 != scaled), 2 ** (n + 1)), mode)


def flush(form: Binary, bits: int) -> int:
    """Subnormals become the zero of their sign."""
    tiny = (bits & (form.sign_bit - 1)) < 1 << form.mantissa_bits
    return bits & form.sign_bit if tiny else bits
