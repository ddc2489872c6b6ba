"""Which bits of an instruction's results are undefined, given those of its sources.

A shadow is an array of a register's class; a set bit says that the register's bit is undefined.
Shadows broadcast as registers do: one that says nothing is a (1,) array of zero. The rules are
those of Memcheck (Seward and Nethercote, 2005): exact for logic and for what moves bits, safe for
everything else, where one undefined bit makes the whole result undefined.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic.table import INTEGERS, UNTYPED, Function, Op
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, TYPES, Array, Type

Rule = Callable[[Sequence[Array], Sequence[Array]], "tuple[Array, ...]"]
"""(sources, their shadows) -> the shadows of the results."""

Lane = tuple[int, int, int]
"""A part of a source: (source, lowest bit, bits)."""


def spread(where: Array, dtype: np.dtype[Any]) -> Array:
    """Return a shadow of a class with all bits set where `where` holds."""
    if dtype == np.bool_:
        return where
    return np.where(where, np.array(-1).astype(dtype), dtype.type(0))


def any_undefined(shadows: Sequence[Array]) -> Array:
    """Where any bit of any source is undefined."""
    return reduce(np.logical_or, [shadow != 0 for shadow in shadows])


def whole(classes: Sequence[str]) -> Rule:
    """One undefined bit makes all bits of all results undefined."""
    dtypes = [REGISTER_DTYPES[cls] for cls in classes]

    def rule(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
        bad = any_undefined(shadows)
        return tuple(spread(bad, dtype) for dtype in dtypes)

    return rule


def transfer(rule: Rule, classes: Sequence[str]) -> Rule:
    """Return a rule that takes a shortcut if all sources are defined."""
    nothing = tuple(np.zeros(1, REGISTER_DTYPES[cls]) for cls in classes)

    def quick(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
        for shadow in shadows:
            if shadow.any():
                return rule(values, shadows)
        return nothing

    return quick


def copied(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
    """The result is the first source, bit for bit."""
    return (shadows[0],)


def rule_of(op: Op) -> Rule:
    """Return the rule of a lane instruction."""
    mnemonic, *parts = op.opcode.split(".")
    found = _rule(op, mnemonic, parts, [TYPES[part] for part in parts if part in TYPES])
    return whole(op.results) if found is None else found


def _rule(op: Op, mnemonic: str, parts: list[str], types: list[Type]) -> Rule | None:
    if mnemonic in ("and", "or", "xor", "not", "selp", "copysign", "lop3"):
        return _bitwise(op.function)
    if mnemonic == "cvt":
        return _conversion(op, parts, types)
    if mnemonic == "setp":
        return _comparison(op, parts, types[-1])
    if mnemonic in _MOVES:
        return _moved(op, *_MOVES[mnemonic](parts, types[0].bits))
    if types and types[-1].lanes > 1 and mnemonic != "set":
        return _lane_by_lane(op, types[-1])
    integer = bool(types) and types[0].name in INTEGERS
    if integer and mnemonic in _UPWARDS and not {"hi", "sat", "cc"} & set(parts):
        return _upwards(op)
    return None


def _bitwise(function: Function) -> Rule:
    """Each bit of the result depends on one bit of each source (a predicate on all bits of the
    others): it is undefined if it changes with the undefined ones."""

    def rule(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
        corners = [
            [value & ~shadow, value | shadow] if shadow.any() else [value]
            for value, shadow in zip(values, shadows, strict=True)
        ]
        results = [function(*corner)[0] for corner in product(*corners)]
        return (reduce(np.bitwise_or, [results[0] ^ result for result in results[1:]]),)

    return rule


# For instructions that only move bits: (which sources' bits move, and which bits of the others say
# where to), from the opcode's parts and the width of its first type.
_ALL_BITS = (1 << 64) - 1
_Moves = tuple[tuple[int, ...], Mapping[int, int]]
_MOVES: dict[str, Callable[[list[str], int], _Moves]] = {
    "shl": lambda parts, bits: ((0,), {1: _ALL_BITS}),
    "shr": lambda parts, bits: ((0,), {1: _ALL_BITS}),
    "shf": lambda parts, bits: ((0, 1), {2: 31 if "wrap" in parts else _ALL_BITS}),
    "prmt": lambda parts, bits: ((0, 1), {2: 0xFFFF if len(parts) == 1 else 3}),
    "bfe": lambda parts, bits: ((0,), dict.fromkeys((1, 2), 255 if bits == 32 else _ALL_BITS)),
    "bfi": lambda parts, bits: ((0, 1), dict.fromkeys((2, 3), 255 if bits == 32 else _ALL_BITS)),
    "brev": lambda parts, bits: ((0,), {}),
}


def _moved(op: Op, moving: tuple[int, ...], steering: Mapping[int, int]) -> Rule:
    """Return the rule of an instruction that moves the shadow's bits in the same way as the
    value's."""
    (dtype,) = [REGISTER_DTYPES[cls] for cls in op.results]

    def rule(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
        arrays = [shadows[i] if i in moving else value for i, value in enumerate(values)]
        (moved,) = op.function(*arrays)
        for i, mask in steering.items():
            lost = shadows[i] & np.array(mask, np.uint64).astype(shadows[i].dtype)
            if lost.any():
                moved = moved | spread(lost != 0, dtype)
        return (moved,)

    return rule


_UPWARDS = ("add", "sub", "neg", "mul", "mad")


def _upwards(op: Op) -> Rule:
    """A sum or product is undefined from the lowest undefined bit of its sources upwards."""
    (dtype,) = [REGISTER_DTYPES[cls] for cls in op.results]

    def rule(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
        bits = reduce(np.bitwise_or, [shadow.astype(dtype) for shadow in shadows])
        return (bits | (~bits + dtype.type(1)),)

    return rule


def _lane_bits(type_: Type) -> int:
    return 4 if type_.name.startswith("e2m1") else type_.bits


def _lane_by_lane(op: Op, type_: Type) -> Rule | None:
    """Each lane of the result depends on the same lane of the sources."""
    if {*op.sources, *op.results} != {type_.register}:
        return None
    bits = _lane_bits(type_)
    lanes = [[(s, bits * i, bits) for s in range(len(op.sources))] for i in range(type_.lanes)]
    return _from_lanes(lanes, bits, type_.raw)


def _from_lanes(lanes: Sequence[Sequence[Lane]], bits: int, dtype: np.dtype[Any]) -> Rule:
    """Return a rule for results made of lanes. lanes: for each lane of the result, `bits` wide, its
    source."""

    def rule(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
        result: Array = np.zeros(1, dtype)
        for i, sources in enumerate(lanes):
            bad = any_undefined([_part(shadows[lane[0]], lane) for lane in sources])
            ones = dtype.type(((1 << bits) - 1) << (bits * i))
            result = result | np.where(bad, ones, dtype.type(0))
        return (result,)

    return rule


def _part(shadow: Array, lane: Lane) -> Array:
    _, low, bits = lane
    return shadow & shadow.dtype.type(((1 << bits) - 1) << low)


def _conversion(op: Op, parts: list[str], types: list[Type]) -> Rule | None:
    if len(types) != 2:
        return None
    target, source = types
    integers = (*INTEGERS, "u8", "s8", *UNTYPED)
    if target.name in integers and source.name in integers and "sat" not in parts:
        return _moved(op, (0,), {})
    if target.lanes != 2:
        return None
    if source.lanes == 2 and len(op.sources) == 1:
        width = _lane_bits(source)
        lanes = [[(0, width * i, width)] for i in range(2)]
    elif source.name == "f32" and len(op.sources) == 2:
        # The first source becomes the upper lane.
        lanes = [[(1, 0, 32)], [(0, 0, 32)]]
    else:
        return None
    return _from_lanes(lanes, _lane_bits(target), target.raw)


def _comparison(op: Op, parts: list[str], type_: Type) -> Rule:
    """A comparison is undefined if any bit of its sources is; integers of which defined bits differ
    are known to be different. A predicate that decides alone makes the result defined."""
    combine = next((part for part in parts if part in ("and", "or", "xor")), None)
    equality = parts[0] in ("eq", "ne") and type_.name in (*INTEGERS, *UNTYPED)
    bits, count = _lane_bits(type_), len(op.results)

    def rule(values: Sequence[Array], shadows: Sequence[Array]) -> tuple[Array, ...]:
        either = shadows[0] | shadows[1]
        unsure = [either != 0] * count
        if type_.lanes > 1:
            unsure = [_part(either, (0, bits * i, bits)) != 0 for i in range(count)]
        elif equality:
            unsure = [(either != 0) & ((values[0] ^ values[1]) & ~either == 0)] * count
        if combine is None:
            return tuple(unsure)
        c, c_unsure = values[2], shadows[2]
        decided = ~c_unsure & (c == (combine == "or")) & (combine != "xor")
        with_0 = op.function(values[0], values[1], c & ~c_unsure)
        with_1 = op.function(values[0], values[1], c | c_unsure)
        predicates = zip(unsure, with_0, with_1, strict=True)
        return tuple(np.where(lost, ~decided, p0 ^ p1) for lost, p0, p1 in predicates)

    return rule
