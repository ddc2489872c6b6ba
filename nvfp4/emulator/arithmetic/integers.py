"""Integer arithmetic: add to dp4a."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import compiled
from nvfp4.emulator.arithmetic.table import INTEGERS, SIGNED, Modifiers, Op, instruction
from nvfp4.emulator.ptx.types import TYPES, Array, Type, on_values

PACKED = ("u16x2", "s16x2")


def _uniform(m: Modifiers, type_: Type, count: int, function: Callable[..., Any]) -> Op:
    """Return an integer Op of `count` sources and one result, all of `type_`, with `function` on
    values."""
    return m.op("integer", [type_.register] * count, [type_.register], on_values(function, type_))


def _wide(type_: Type) -> Type:
    return TYPES[f"{type_.name[0]}{2 * type_.bits}"]


def high_u64(a: Array, b: Array) -> Array:
    """The upper 64 bits of the 128-bit products of unsigned 64-bit a and b."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    carried = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (carried >> half)


def high_product(a: Array, b: Array, type_: Type) -> Array:
    """The upper half of the double-width products, in `type_`'s dtype."""
    if type_.bits < 64:
        return (np.multiply(a, b, dtype=_wide(type_).value) >> type_.bits).astype(type_.value)
    high = high_u64(a.view(np.uint64), b.view(np.uint64)).view(type_.value)
    if type_.name == "s64":
        high = high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)
    return high


_PAIRWISE = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}


@instruction(*_PAIRWISE, "addc", "subc", types=INTEGERS + PACKED)
def _pairwise(m: Modifiers) -> Op:
    type_ = m.type(*INTEGERS, *PACKED)
    if m.opcode.startswith(("addc", "subc", "add.cc", "sub.cc")):
        return _sum_op(m, type_, [type_.register], lambda a: a)
    function: Callable[..., Any] = _PAIRWISE[m.mnemonic]
    if type_.name == "s32" and m.mnemonic in ("add", "sub") and m.flag("sat"):
        return _uniform(m, type_, 2, lambda a, b: _saturated(function(a, b, dtype=np.int64)))
    return _uniform(m, type_, 2, function)


def _saturated(sums: Array) -> Array:
    return sums.clip(-(2**31), 2**31 - 1).astype(np.int32)


@instruction("mul24", "mad24", types=("u32", "s32"))
def _of_24_bits(m: Modifiers) -> Op:
    shift, type_ = 16 * (m.choice("lo", "hi") == "hi"), m.type("u32", "s32")

    def function(a: Array, b: Array, *more: Array) -> Array:
        product = np.multiply(a << 8 >> 8, b << 8 >> 8, dtype=_wide(type_).value) >> shift
        return sum(more, product).astype(type_.value)

    return _uniform(m, type_, 2 + (m.mnemonic == "mad24"), function)


@instruction("mul", "mad", "madc", types=INTEGERS)
def _multiply(m: Modifiers) -> Op:
    part, type_ = m.choice("lo", "hi", "wide"), m.type(*INTEGERS)
    result = _wide(type_) if part == "wide" else type_
    value, raw = type_.value, result.raw

    def product(*words: Array) -> Array:
        a, b = (word.view(value) for word in words)
        found = high_product(a, b, type_) if part == "hi" else np.multiply(a, b, dtype=result.value)
        return found.view(raw)

    sources = [type_.register] * 2
    if m.mnemonic == "mul":
        return m.op("integer", sources, [result.register], product)
    return _sum_op(m, result, sources, product)


def _sum_op(m: Modifiers, type_: Type, sources: list[str], term: Callable[..., Array]) -> Op:
    """Return an add, sub or mad Op, with or without the carry flag as last source or result.

    term: the first addend, a function of registers of the classes `sources`. The second one, or
    the subtrahend, is another source, of `type_`.
    """
    takes, gives, subtracts = m.mnemonic[3:] == "c", m.flag("cc"), np.bool_(m.mnemonic[:3] == "sub")
    if (takes or gives) and (type_.bits < 32 or "wide" in m.opcode):
        raise m.refuse("only sums of 32 and 64 bits carry")
    count = len(sources)

    def function(*given: Array) -> Any:
        last, carry = (*given, np.zeros(1, bool))[count : count + 2]
        # a - b - borrow is a + ~b + ~borrow, which carries where nothing is borrowed.
        last = ~last if subtracts else last
        low = np.add(term(*given[:count]), last)
        total = low + (carry ^ subtracts) if takes or subtracts else low
        return (total, ((low < last) | (total < low)) ^ subtracts) if gives else total

    classes = [*sources, type_.register, "pred"]
    return m.op("integer", classes[: count + 1 + takes], classes[-2:][: 1 + gives], function)


_OF_ONE_TYPE: dict[str, tuple[int, tuple[str, ...], Callable[..., Any]]] = {
    "div": (2, INTEGERS, lambda type_: lambda a, b: divide(a, b, type_)[0]),
    "rem": (2, INTEGERS, lambda type_: lambda a, b: divide(a, b, type_)[1]),
    "sad": (3, INTEGERS, lambda type_: lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c),
    "abs": (1, SIGNED, lambda type_: np.abs),
    "neg": (1, SIGNED, lambda type_: np.negative),
}
"""Number of sources, their types, and the function on values of a type."""


@instruction(*_OF_ONE_TYPE, types=INTEGERS)
def _of_one_type(m: Modifiers) -> Op:
    count, types, function = _OF_ONE_TYPE[m.mnemonic]
    type_ = m.type(*types)
    return _uniform(m, type_, count, function(type_))


def divide(a: Array, b: Array, type_: Type) -> tuple[Array, Array]:
    """Return the quotient, truncated toward zero, and the remainder, with the dividend's sign.

    Division by zero, which PTX leaves open, gives all ones for both, as on the device.
    """
    unsigned = np.dtype(f"u{type_.bits // 8}")
    a_size, b_size = (x if type_.name[0] == "u" else np.abs(x).view(unsigned) for x in (a, b))
    zero = b_size == 0
    safe = np.where(zero, b_size.dtype.type(1), b_size)
    quotient = np.where(zero, ~a_size.dtype.type(0), a_size // safe)
    remainder = np.where(zero, ~a_size.dtype.type(0), a_size % safe)
    if type_.name[0] == "u":
        return quotient, remainder
    quotient, remainder = quotient.view(type_.value), remainder.view(type_.value)
    flip = ((a < 0) != (b < 0)) & ~zero
    return (np.where(flip, -quotient, quotient), np.where((a < 0) & ~zero, -remainder, remainder))


@instruction("dp4a")
def _dp4a(m: Modifiers) -> Op:
    a_signed, b_signed = m.type("u32", "s32").name == "s32", m.type("u32", "s32").name == "s32"

    return m.op("integer", ["b32"] * 3, ["b32"], compiled.dp4a(a_signed, b_signed))
