"""Constant expressions of integers, with the values that ptxas gives them.

An integer has the type .s64 or .u64. PTX ISA, Constant Expressions, says what the operators do.
Where ptxas does otherwise, so does this module: `%` is unsigned, `&`, `|` and `^` have the common
type of their operands, `?:` has the type of the operand that it chooses, and only the lower six
bits of a shift's count matter.
"""

import operator
from collections.abc import Callable
from typing import TypeAlias

from nvfp4.emulator.ptx.syntax import Integer, Real

_ONES = (1 << 64) - 1
_SIGN = 1 << 63


class NoConstant(ValueError):
    """Why ptxas refuses an expression, in a sentence."""


class Unsigned(int):
    """An integer of type .u64; a plain int is one of type .s64."""


Constant: TypeAlias = int | Real
"""The value of a constant expression: an int, or a Real for a literal or value of type .f64."""


def signed(value: int) -> int:
    """Return an integer, cut to 64 bits, as .s64."""
    return (value & _ONES ^ _SIGN) - _SIGN


def literal(value: int, has_suffix: bool) -> int:
    """Return an integer literal. has_suffix: whether U stands behind it."""
    if value > _ONES:
        raise NoConstant("an integer constant has more than 64 bits")
    return Unsigned(value) if has_suffix or value >= _SIGN else value


def node(constant: Constant) -> Integer | Real:
    """Return a constant as an operand."""
    return constant if isinstance(constant, Real) else Integer(int(constant))


def unary(mark: str, constant: Constant) -> Constant:
    """Apply one of + - ! ~."""
    if mark == "+":
        return constant
    if isinstance(constant, Real):
        if mark != "-":
            raise NoConstant(f"'{mark}' of a floating-point constant")
        return Real(constant.bits ^ 1 << (constant.width - 1), constant.width)
    if mark == "!":
        return int(not constant)
    return Unsigned(~constant & _ONES) if mark == "~" else _like(constant, -constant)


def cast(type_name: str, constant: Constant) -> int:
    """Apply (.s64) or (.u64)."""
    value = _integer(constant)
    return Unsigned(value & _ONES) if type_name == ".u64" else signed(value)


def binary(mark: str, left: Constant, right: Constant) -> int:
    """Apply one of the operators of `LEVELS`."""
    one, other = _integer(left), _integer(right)
    if mark in ("<<", ">>"):
        by = other & 63
        return _like(one, one << by if mark == "<<" else one >> by)
    if mark in ("&&", "||"):
        return int(bool(one and other) if mark == "&&" else bool(one or other))
    if mark == "%" or isinstance(one, Unsigned) or isinstance(other, Unsigned):
        one, other = Unsigned(one & _ONES), Unsigned(other & _ONES)
    if mark in _COMPARISONS:
        return int(_COMPARISONS[mark](one, other))
    if mark in ("/", "%"):
        return _divided(mark, one, other)
    return _like(one, _WRAPPING[mark](one, other))


def chosen(condition: Constant, first: Constant, second: Constant) -> int:
    """Apply ?: ."""
    decides, one, other = map(_integer, (condition, first, second))
    return one if decides else other


LEVELS = {
    mark: level
    for level, marks in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"), 1
    )
    for mark in marks.split()
}
"""The precedence of each binary operator."""

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_WRAPPING: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


def _like(constant: int, value: int) -> int:
    """Cut a value to 64 bits and give it the type of a constant."""
    return Unsigned(value & _ONES) if isinstance(constant, Unsigned) else signed(value)


def _divided(mark: str, one: int, other: int) -> int:
    if not other:
        raise NoConstant("a constant expression divides by zero")
    if mark == "%":
        return Unsigned(one % other)
    quotient = abs(one) // abs(other)
    if quotient == _SIGN and not isinstance(one, Unsigned):
        raise NoConstant("the quotient of a constant expression does not fit .s64")
    return _like(one, quotient if (one < 0) == (other < 0) else -quotient)


def _integer(constant: Constant) -> int:
    if isinstance(constant, Real):
        raise NoConstant("arithmetic on floating-point constants is not emulated")
    return constant
