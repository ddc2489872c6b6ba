"""The table of lane instructions: what they read, what they return, and the function that does it.

An instruction is one function decorated with `instruction`. It gets the modifiers of one
opcode, takes those it knows and returns an `Op`; whatever it leaves untaken is refused by
name. Nothing else has to be edited to add an instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nvfp4.emulator.errors import UnsupportedInstruction

Array = np.ndarray[Any, Any]
Function = Callable[..., tuple[Array, ...]]


@dataclass(frozen=True)
class Type:
    """A PTX operand type: its register class and the NumPy dtype that reads the bits as a value."""

    name: str
    register: str
    value: np.dtype[Any]
    lanes: int = 1

    @property
    def bits(self) -> int:
        """Width of one lane of the type in bits."""
        return 8 * self.value.itemsize


def _type(name: str, register: str, value: str, lanes: int = 1) -> Type:
    return Type(name, register, np.dtype(value), lanes)


# Narrow floats have no NumPy dtype of their own: their value dtype is the raw integer.
TYPES = {
    t.name: t
    for t in (
        *(
            _type(f"{kind}{8 * size}", f"b{8 * size}", f"{'i' if kind == 's' else 'u'}{size}")
            for kind in "usb"
            for size in (1, 2, 4, 8)
        ),
        _type("pred", "pred", "?"),
        _type("f16", "b16", "u2"),
        _type("bf16", "b16", "u2"),
        _type("f32", "b32", "f4"),
        _type("tf32", "b32", "u4"),
        _type("f64", "b64", "f8"),
        _type("f16x2", "b32", "u2", 2),
        _type("bf16x2", "b32", "u2", 2),
        _type("u16x2", "b32", "u2", 2),
        _type("s16x2", "b32", "i2", 2),
        _type("f32x2", "b64", "f4", 2),
        _type("e4m3x2", "b16", "u1", 2),
        _type("e5m2x2", "b16", "u1", 2),
        _type("e2m3x2", "b16", "u1", 2),
        _type("e3m2x2", "b16", "u1", 2),
        _type("ue8m0x2", "b16", "u1", 2),
        _type("e2m1x2", "b8", "u1", 2),
        _type("e4m3x4", "b32", "u1", 4),
        _type("e5m2x4", "b32", "u1", 4),
        _type("e2m3x4", "b32", "u1", 4),
        _type("e3m2x4", "b32", "u1", 4),
        _type("e2m1x4", "b16", "u1", 4),
    )
}

UNSIGNED = ("u16", "u32", "u64")
SIGNED = ("s16", "s32", "s64")
INTEGERS = UNSIGNED + SIGNED
UNTYPED = ("b16", "b32", "b64")

REGISTER_DTYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    "b8": np.dtype(np.uint8),
    "b16": np.dtype(np.uint16),
    "b32": np.dtype(np.uint32),
    "b64": np.dtype(np.uint64),
}


@dataclass(frozen=True)
class Op:
    """One lane instruction.

    sources, results: register classes ("pred", "b8", "b16", "b32", "b64") in the order of the
        PTX operands. A register wider than its class is cut to the low bits; a result narrower
        than its register is extended with zeros, or with the sign if `signed`.
    function: takes one array of raw bits a source (dtypes of `REGISTER_DTYPES`, shapes that
        broadcast; 0-d for an immediate) and returns a tuple of arrays, one a result. It writes
        none of its inputs and returns no view of them.
    kind: class of the instruction in the counters.
    reads_carry, writes_carry: the carry flag is one more "pred" source or result, the last.
    """

    opcode: str
    kind: str
    sources: tuple[str, ...]
    results: tuple[str, ...]
    function: Function
    reads_carry: bool = False
    writes_carry: bool = False
    signed: bool = False


class Modifiers:
    """The dotted parts of one opcode after its mnemonic; a builder takes what it knows."""

    def __init__(self, opcode: str, results: int, sources: int | None) -> None:
        self.opcode = opcode
        self.results = results
        self._sources = sources
        self.mnemonic, *self._left = opcode.split(".")

    def flag(self, name: str) -> bool:
        """Take `name` if present."""
        if name not in self._left:
            return False
        self._left.remove(name)
        return True

    def choice(self, *names: str, default: str | None = None) -> str:
        """Take the one of `names` that is present; without one, `default` or an error."""
        for name in names:
            if self.flag(name):
                return name
        if default is None:
            wanted = ", ".join(f".{name}" for name in names)
            raise UnsupportedInstruction(f"{self.opcode} needs one of {wanted}")
        return default

    def operands(self, least: int) -> int:
        """How many sources the text names, at least `least`, which is also the default."""
        return max(least, self._sources or least)

    def refuse(self, why: str) -> UnsupportedInstruction:
        """The error for modifiers that do not go together."""
        return UnsupportedInstruction(f"{self.opcode} is not emulated: {why}")

    def type(self, *names: str) -> Type:
        """Take the first type left; it must be one of `names` (any type if none are given)."""
        for part in self._left:
            if part in TYPES:
                if names and part not in names:
                    break
                self._left.remove(part)
                return TYPES[part]
        wanted = ", ".join(f".{name}" for name in names) or "a type"
        raise UnsupportedInstruction(f"{self.opcode} is not emulated: it needs {wanted}")

    def has_type(self) -> bool:
        """Whether a type is left to take."""
        return any(part in TYPES for part in self._left)

    def op(
        self,
        kind: str,
        sources: Iterable[str],
        results: Iterable[str],
        function: Callable[..., Any],
        *,
        reads_carry: bool = False,
        writes_carry: bool = False,
        signed: bool = False,
    ) -> Op:
        """The finished `Op`. `function` may return one array instead of a tuple of one."""
        if self._left:
            raise UnsupportedInstruction(
                f"{self.opcode}: modifier .{self._left[0]} is not emulated",
                hint="PTX instructions are entries of emulator/arithmetic; add it there",
            )
        sources, results = tuple(sources), tuple(results)
        wrapped = function if len(results) + writes_carry > 1 else _single(function)
        return Op(self.opcode, kind, sources, results, wrapped, reads_carry, writes_carry, signed)


def _single(function: Callable[..., Any]) -> Function:
    def single(*sources: Array) -> tuple[Array, ...]:
        return (function(*sources),)

    return single


Builder = Callable[[Modifiers], Op]
_builders: dict[tuple[str, str | None], Builder] = {}


def instruction(
    *mnemonics: str, types: Iterable[str] | None = None
) -> Callable[[Builder], Builder]:
    """Register a builder for `mnemonics`; with `types`, only where one of them comes first."""

    def register(builder: Builder) -> Builder:
        for mnemonic in mnemonics:
            for type_name in [None] if types is None else types:
                key = (mnemonic, type_name)
                if key in _builders:
                    raise ValueError(f"{mnemonic} is in the table twice (type {type_name})")
                _builders[key] = builder
        return builder

    return register


def mnemonics() -> list[str]:
    """All mnemonics in the table, sorted."""
    return sorted({mnemonic for mnemonic, _ in _builders})


@cache
def resolve(opcode: str, results: int = 1, sources: int | None = None) -> Op:
    """The `Op` of a PTX opcode such as "fma.rn.ftz.f16x2".

    results: how many destinations the instruction's text names; 2 for `setp p|q`.
    sources: how many sources it names, where an instruction takes more than one count (`min`
        and `max` of three); None for the usual count.
    Raises UnsupportedInstruction if the mnemonic or one of its modifiers is not in the table.
    """
    mnemonic, *parts = opcode.split(".")
    first_type = next((part for part in parts if part in TYPES), None)
    builder = _builders.get((mnemonic, first_type)) or _builders.get((mnemonic, None))
    if builder is None:
        known = mnemonic in mnemonics()
        raise UnsupportedInstruction(
            f"{opcode} is not emulated" + (f" for type .{first_type}" if known else ""),
            hint="PTX instructions are entries of emulator/arithmetic; add it there",
        )
    return builder(Modifiers(opcode, results, sources))
