"""The table of lane instructions: what they read, what they return, and the function that does it.

An instruction is one function decorated with `instruction`. It gets the modifiers of one
opcode, takes those it knows and returns an `Op`; whatever it leaves untaken is refused by
name. Nothing else has to be edited to add an instruction.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from nvfp4.emulator.errors import UnsupportedInstruction
from nvfp4.emulator.ptx.types import TYPES, Array, Type
from nvfp4.records.base import Record

Function = Callable[..., tuple[Array, ...]]


UNSIGNED = ("u16", "u32", "u64")
SIGNED = ("s16", "s32", "s64")
INTEGERS = UNSIGNED + SIGNED
UNTYPED = ("b16", "b32", "b64")

_ADD_IT = "PTX instructions are entries of nvfp4/emulator/arithmetic; add it there"


class Op(Record):
    """One lane instruction."""

    opcode: str
    kind: str
    """The kind of instruction as which reports count it."""
    sources: tuple[str, ...]
    """Register classes ("pred", "b8", "b16", "b32", "b64") in the order of the PTX operands. A
    register wider than its class is cut to the low bits."""
    results: tuple[str, ...]
    """Register classes like those of `sources`. A result narrower than its register is extended
    with zeros, or with the sign if `signed`."""
    function: Function
    """Takes an array of raw bits for each source (dtypes of `REGISTER_DTYPES`, shapes that
    broadcast; 0-d for an immediate) and returns a tuple with an array for each result. It does not
    write to its inputs or return views of them."""
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
        """Return how many sources the text names: at least `least`, which is also the default."""
        return max(least, self._sources or least)

    def refuse(self, why: str) -> UnsupportedInstruction:
        """Return the error for modifiers that contradict each other."""
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
        signed: bool = False,
    ) -> Op:
        """The finished `Op`. `function` may return one array instead of a tuple of one."""
        if self._left:
            message = f"{self.opcode}: modifier .{self._left[0]} is not emulated"
            raise UnsupportedInstruction(message, hint=_ADD_IT)
        sources, results = tuple(sources), tuple(results)
        wrapped = function if len(results) > 1 else lambda *sources: (function(*sources),)
        return Op(self.opcode, kind, sources, results, wrapped, signed)


Builder = Callable[[Modifiers], Op]
_BUILDERS: dict[tuple[str, str | None], Builder] = {}


def instruction(
    *mnemonics: str, types: Iterable[str] | None = None
) -> Callable[[Builder], Builder]:
    """Register a builder for `mnemonics`; with `types`, only where one of them comes first."""

    def register(builder: Builder) -> Builder:
        for mnemonic in mnemonics:
            for type_name in [None] if types is None else types:
                key = (mnemonic, type_name)
                if key in _BUILDERS:
                    raise ValueError(f"{mnemonic} is in the table twice (type {type_name})")
                _BUILDERS[key] = builder
        return builder

    return register


def mnemonics() -> list[str]:
    """All mnemonics in the table, sorted."""
    return sorted({mnemonic for mnemonic, _ in _BUILDERS})


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
    builder = _BUILDERS.get((mnemonic, first_type)) or _BUILDERS.get((mnemonic, None))
    if builder is None:
        of_type = f" for type .{first_type}" if mnemonic in mnemonics() else ""
        raise UnsupportedInstruction(f"{opcode} is not emulated{of_type}", hint=_ADD_IT)
    return builder(Modifiers(opcode, results, sources))
