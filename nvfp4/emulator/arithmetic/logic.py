"""Bitwise logic, shifts, bit fields and byte permutation; comparison and selection by value: setp,
set, min, max."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import compiled, floats
from nvfp4.emulator.arithmetic.compiled import select
from nvfp4.emulator.arithmetic.floats import FLOATS, QUIET_F64, flush, format_of, kind, widen
from nvfp4.emulator.arithmetic.table import INTEGERS, UNTYPED, Modifiers, Op, instruction
from nvfp4.emulator.ptx.types import TYPES, Array, Type, common_shape, on_each_lane, split

_BITWISE: dict[str, np.ufunc] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
}  # fmt: skip


@instruction(*_BITWISE)
def _bitwise(m: Modifiers) -> Op:
    function = _BITWISE[m.mnemonic]
    register = m.type("pred", *UNTYPED).register
    return m.op("logic", [register] * function.nin, [register], function)


@instruction("lop3")
def _lop3(m: Modifiers) -> Op:
    m.type("b32")
    return m.op("logic", ["b32"] * 4, ["b32"], compiled.lop3)


@instruction("shl", "shr")
def _shift(m: Modifiers) -> Op:
    type_ = m.type(*UNTYPED, *INTEGERS)
    shift = np.left_shift if m.mnemonic == "shl" else np.right_shift
    value, raw = type_.value, type_.raw
    amount = np.dtype(f"{value.kind}{value.itemsize}")
    limit = np.uint32(type_.bits)

    # NumPy, like the device, takes an amount of the width or more to shift out every bit.
    def function(a: Array, n: Array) -> Array:
        if amount != np.uint32:
            n = np.minimum(n, limit).astype(amount)
        return shift(a.view(value), n).view(raw)

    return m.op("logic", [type_.register, "b32"], [type_.register], function)


@instruction("shf")
def _funnel_shift(m: Modifiers) -> Op:
    side, mode = m.choice("l", "r"), m.choice("wrap", "clamp")
    m.type("b32")

    def function(low: Array, high: Array, n: Array) -> Array:
        n = n & np.uint32(31) if mode == "wrap" else np.minimum(n, np.uint32(32))
        pool = (high.astype(np.uint64) << np.uint64(32)) | low
        if side == "l":
            return ((pool << n.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
        return (pool >> n.astype(np.uint64)).astype(np.uint32)

    return m.op("logic", ["b32"] * 3, ["b32"], function)


@instruction("prmt")
def _prmt(m: Modifiers) -> Op:
    m.type("b32")
    return m.op("logic", ["b32"] * 3, ["b32"], compiled.kernel("prmt"))


@instruction("bmsk")
def _bit_mask(m: Modifiers) -> Op:
    """bmsk.{clamp,wrap}.b32 d, a, b: a mask of b bits from bit a up. CUB's radix sort uses it."""
    mode = m.choice("clamp", "wrap")
    m.type("b32")

    def function(start: Array, width: Array) -> Array:
        if mode == "wrap":
            start, width = start & np.uint32(31), width & np.uint32(31)
        return _low_mask(width, np.dtype(np.uint32)) << start

    return m.op("logic", ["b32"] * 2, ["b32"], function)


@instruction("popc")
def _popc(m: Modifiers) -> Op:
    register = m.type("b32", "b64").register
    return m.op("logic", [register], ["b32"], lambda a: np.bitwise_count(a).astype(np.uint32))


def highest_bit(a: Array) -> Array:
    """Index of the highest set bit of each word as int32; -1 for zero."""
    for step in (1, 2, 4, 8, 16, 32)[: 5 + (a.itemsize == 8)]:
        a = a | a >> a.dtype.type(step)  # all bits below the highest become 1
    return np.bitwise_count(a).astype(np.int32) - 1


@instruction("clz")
def _clz(m: Modifiers) -> Op:
    type_ = m.type("b32", "b64")
    top = np.int32(type_.bits - 1)
    return m.op(
        "logic", [type_.register], ["b32"], lambda a: (top - highest_bit(a)).astype(np.uint32)
    )


@instruction("bfind")
def _bfind(m: Modifiers) -> Op:
    shift_amount, type_ = m.flag("shiftamt"), m.type("u32", "u64", "s32", "s64")

    def function(a: Array) -> Array:
        if type_.name[0] == "s":
            a = np.where(a.view(type_.value) < 0, ~a, a)
        found = highest_bit(a)
        if shift_amount:
            found = np.where(found < 0, found, np.int32(type_.bits - 1) - found)
        return found.astype(np.uint32)

    return m.op("logic", [type_.register], ["b32"], function)


@instruction("brev")
def _brev(m: Modifiers) -> Op:
    type_ = m.type("b32", "b64")
    ones = 2**type_.bits - 1

    def function(a: Array) -> Array:
        width = type_.bits // 2
        while width:
            # ones // (2**width + 1) has the low half of each pair of `width`-bit fields set.
            mask, shift = a.dtype.type(ones // (2**width + 1)), a.dtype.type(width)
            a = ((a >> shift) & mask) | ((a & mask) << shift)
            width //= 2
        return a

    return m.op("logic", [type_.register], [type_.register], function)


def _field_number(number: Array, bits: int) -> Array:
    """Return a bit field's position or length: one byte of the operand, or all of it for 64-bit
    words."""
    return number & np.uint32(255) if bits == 32 else np.minimum(number, np.uint32(64))


def _low_mask(length: Array, dtype: np.dtype[Any]) -> Array:
    """Words with the low `length` bits set; all of them from the word's width on."""
    return ~np.left_shift(~dtype.type(0), length.astype(dtype))


@instruction("bfe")
def _bit_field_extract(m: Modifiers) -> Op:
    type_ = m.type("u32", "u64", "s32", "s64")
    raw = type_.raw
    top = np.uint32(type_.bits - 1)

    def function(a: Array, position: Array, length: Array) -> Array:
        position, length = _field_number(position, type_.bits), _field_number(length, type_.bits)
        mask = _low_mask(length, raw)
        field = (a >> position.astype(raw)) & mask
        if type_.name[0] == "u":
            return field
        # The sign is the field's last bit, or the word's if the field runs over.
        last = np.minimum(position + length - (length != 0), top).astype(raw)
        negative = (((a >> last) & raw.type(1)) != 0) & (length != 0)
        present = mask & (~raw.type(0) >> position.astype(raw))
        return np.where(negative, field | ~present, field)

    return m.op("logic", [type_.register, "b32", "b32"], [type_.register], function)


@instruction("bfi")
def _bit_field_insert(m: Modifiers) -> Op:
    type_ = m.type("b32", "b64")
    raw = type_.raw

    def function(field: Array, base: Array, position: Array, length: Array) -> Array:
        shift = _field_number(position, type_.bits).astype(raw)
        mask = _low_mask(_field_number(length, type_.bits), raw) << shift
        return (base & ~mask) | ((field << shift) & mask)

    return m.op("logic", [type_.register] * 2 + ["b32"] * 2, [type_.register], function)


@instruction("selp")
def _select(m: Modifiers) -> Op:
    register = m.type(*UNTYPED, *INTEGERS, "f32", "f64").register
    return m.op("move", [register, register, "pred"], [register], lambda a, b, p: select(p, a, b))


Comparison = Callable[[Array, Array], Array]

ORDERED: dict[str, Comparison] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
OPPOSITES = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
FLOAT_ONLY = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_HALF = np.dtype(np.uint16)
COMPARABLE = INTEGERS + UNTYPED + FLOATS


def _float_comparison(name: str) -> Comparison:
    """Return a comparison of values. A name that ends in u is true for NaN, the others are
    false."""
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name.endswith("u"):
        opposite = _float_comparison(OPPOSITES[name[:-1]])
        return lambda a, b: np.logical_not(opposite(a, b))
    return (lambda a, b: (a < b) | (a > b)) if name == "ne" else ORDERED[name]


def comparison(name: str, type_: Type, ftz: bool) -> Comparison:
    """The comparison `name` of two arrays of the raw bits of one lane of `type_`."""
    if type_.value.kind in "iu" and type_.name not in FLOATS:
        compare, value = ORDERED[UNSIGNED_NAMES.get(name, name)], type_.value
        return lambda a, b: compare(a.view(value), b.view(value))
    compare = _float_comparison(name)
    base = TYPES[type_.name.removesuffix("x2")]

    def function(a: Array, b: Array) -> Array:
        if ftz:
            form = format_of(type_)
            a, b = flush(a, form), flush(b, form)
        with np.errstate(all="ignore"):
            return compare(_float_values(a, base), _float_values(b, base))

    return function


def _float_values(word: Array, type_: Type) -> Array:
    return widen(word, type_).view(np.float32) if type_.bits == 16 else word.view(type_.value)


def _parts(m: Modifiers) -> tuple[str, str, bool]:
    """Comparison operator, Boolean combination ("" for none) and .ftz."""
    names = tuple(ORDERED) + tuple(UNSIGNED_NAMES) + FLOAT_ONLY
    return m.choice(*names), m.choice("and", "or", "xor", default=""), m.flag("ftz")


def _check_operator(m: Modifiers, name: str, type_: Type) -> None:
    is_float = type_.name in FLOATS
    if (is_float and name in UNSIGNED_NAMES) or (not is_float and name in FLOAT_ONLY):
        raise m.refuse(f".{name} does not compare .{type_.name}")


@instruction("setp")
def _setp(m: Modifiers) -> Op:
    name, combine, ftz = _parts(m)
    type_ = m.type(*COMPARABLE)
    _check_operator(m, name, type_)
    compare = comparison(name, type_, ftz)
    register = type_.register
    join, halves = _BITWISE.get(combine), type_.lanes > 1
    if join is None and m.results == 1 and not halves:
        return m.op("compare", [register] * 2, ["pred"], compare)
    results = 2 if halves else m.results

    def function(a: Array, b: Array, *c: Array) -> Any:
        if halves:  # one predicate for the low half, one for the high half
            shape = common_shape((a, b))
            both = compare(split(a, shape, _HALF), split(b, shape, _HALF))
            p, q = both[0::2].reshape(shape), both[1::2].reshape(shape)
        else:
            p = compare(a, b)
            q = np.logical_not(p) if results == 2 else p
        if join is not None:
            p, q = join(p, c[0]), join(q, c[0])
        return (p, q) if results == 2 else p

    sources = [register] * 2 + ["pred"] * (join is not None)
    return m.op("compare", sources, ["pred"] * results, function)


@instruction("set")
def _set(m: Modifiers) -> Op:
    name, combine, ftz = _parts(m)
    result = m.type("u16", "s16", "u32", "s32", "f16", "bf16", "f16x2", "bf16x2", "f32")
    type_ = m.type(*COMPARABLE)
    _check_operator(m, name, type_)
    compare, join = comparison(name, type_, ftz), _BITWISE.get(combine)
    if type_.lanes > 1 and result.lanes == 1:
        # set.*.u32.f16x2 fills each half of the word with ones.
        result = TYPES["u16x2"]
    lane = np.dtype(f"u{result.value.itemsize}")
    true = lane.type(format_of(result).one if result.name in FLOATS else 2**result.bits - 1)
    raw = type_.raw if type_.lanes == 1 else _HALF

    def one_lane(a: Array, b: Array, *c: Array) -> Array:
        p = compare(a, b)
        return np.where(p if join is None else join(p, c[0]), true, lane.type(0))

    def packed(a: Array, b: Array, *c: Array) -> Array:
        shape = common_shape((a, b))
        flags = [np.repeat(np.broadcast_to(q, shape).reshape(-1), 2) for q in c]
        halves = one_lane(split(a, shape, raw), split(b, shape, raw), *flags)
        return halves.view(np.uint32).reshape(shape)

    sources = [type_.register] * 2 + ["pred"] * (join is not None)
    return m.op("compare", sources, [result.register], packed if type_.lanes > 1 else one_lane)


def _order(word: Array) -> Array:
    """Float bits as integers that sort as the floats do, -0 before +0."""
    signed = word.view(f"i{word.dtype.itemsize}")
    top = signed.dtype.type(8 * signed.itemsize - 1)
    return signed ^ ((signed >> top) & signed.dtype.type(np.iinfo(signed.dtype).max))


def float_extreme(
    name: str, type_: Type, *, nan_wins: bool, xorsign_abs: bool, ftz: bool
) -> Callable[..., Array]:
    """min or max of two or three lanes of `type_`, as raw bits; -0 is less than +0.

    A NaN loses against a number unless `nan_wins`. Of NaNs alone comes the canonical one, in
    f64 the second operand. `xorsign_abs` compares magnitudes and gives the result the exclusive
    or of the signs.
    """
    sign, magnitude = floats.sign_and_magnitude(type_)
    form = None if type_.name == "f64" else format_of(type_)
    # The bits of every NaN are larger than infinity's.
    infinity, nan = 0x7FF << 52, type(sign)(0x7FF8 << 48) if form is None else magnitude
    if form is not None:
        infinity = form.sign - form.smallest_normal

    def pair(a: Array, b: Array) -> Array:
        signs = (a ^ b) & sign
        if xorsign_abs:
            a, b = a & magnitude, b & magnitude
        a_nan, b_nan = (a & magnitude) > infinity, (b & magnitude) > infinity
        chosen = np.where((_order(a) <= _order(b)) == (name == "min"), a, b)
        if nan_wins:
            chosen = np.where(a_nan | b_nan, nan, chosen)
        else:
            both = (b | QUIET_F64) if form is None else nan
            chosen = np.where(a_nan, np.where(b_nan, both, b), np.where(b_nan, a, chosen))
        if xorsign_abs:
            chosen = np.where((chosen & magnitude) > infinity, chosen, chosen | signs)
        return chosen

    def function(*words: Array) -> Array:
        if ftz and form is not None:
            words = tuple(flush(word, form) for word in words)
        return reduce(pair, words)

    return function


@instruction("min", "max", types=FLOATS)
def _float_min_max(m: Modifiers) -> Op:
    ftz, nan_wins, xorsign_abs = m.flag("ftz"), m.flag("NaN"), m.flag("xorsign")
    if xorsign_abs:
        m.choice("abs")
    magnitudes = m.flag("abs")
    type_ = m.type("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
    if magnitudes and (type_.name != "f32" or m.operands(2) != 3):
        raise m.refuse(".abs without .xorsign is for three sources in f32")
    lane = float_extreme(m.mnemonic, type_, nan_wins=nan_wins, xorsign_abs=xorsign_abs, ftz=ftz)
    if magnitudes:
        extreme = lane
        lane = lambda *words: extreme(*(word & np.uint32(0x7FFFFFFF) for word in words))  # noqa: E731
    sources = [type_.register] * m.operands(2)
    return m.op(kind(type_), sources, [type_.register], on_each_lane(lane, type_))
