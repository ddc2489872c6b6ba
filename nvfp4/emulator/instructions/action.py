"""What an instruction does to a group of threads: the table of everything but arithmetic.

An instruction is one function decorated with `instruction("mnemonic")`. It gets a `Site` (where
the instruction is and how it was written) and returns an `Action`. Arithmetic comes from
`emulator.arithmetic.resolve`, which knows lanes but neither memory nor other lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nvfp4.emulator.arithmetic.definedness import Rule
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.program import Operand
from nvfp4.emulator.ptx.types import TYPES, Array
from nvfp4.emulator.state.batch import Execution


@dataclass(frozen=True)
class Source:
    """An operand to read as a register class. An address reads as b64 with its offset added."""

    operand: Operand
    cls: str


@dataclass(frozen=True)
class Result:
    """An operand to set from a value of a class; signed: extended with the sign if wider."""

    operand: Operand
    cls: str
    signed: bool = False


# What an instruction returns: its results, or (if it parks) the next block.
Run = Callable[..., "tuple[Array, ...] | int | None"]
Gate = Callable[..., "Array | None"]
Shadow = Callable[[Execution, Sequence[Array], Sequence[Array]], "tuple[Array, ...]"]


@dataclass(frozen=True)
class Action:
    """run(execution, *sources) -> results, in the order of `results`.

    kind: class of the instruction in the counters. Results of lanes that do not take part are
    ignored, and all where there are no `results`.
    gate: same arguments; the lanes (flat bool array) that may go on, or None for all. The others
        are kept in front of the instruction until more threads arrive or memory changes.
    parks: run(execution, next_block, *sources) returns the next block, or None if no lane of the
        group goes on now; `Signals.release` then says which do, and when.
    pure: run(*sources) -> results, for all lanes alike; it needs no Execution.
    rule: of a pure instruction, which bits of the results are undefined (arithmetic.definedness);
        None: all of them if any bit of a source is.
    shadow: the same of another instruction: shadow(execution, sources, their shadows), called
        after `run`. One without results, a store, returns the guard of the lanes whose data must be
        defined. Addresses must always be defined; without `shadow`, all sources must be.
    loads: whether results come from memory that may hold undefined bytes, or from lanes that may
        not be there.
    """

    kind: str
    sources: Sequence[Source]
    results: Sequence[Result]
    run: Run
    gate: Gate | None = None
    parks: bool = False
    pure: bool = False
    rule: Rule | None = None
    shadow: Shadow | None = None
    loads: bool = False


Builder = Callable[[Site], Action]
BUILDERS: dict[str, Builder] = {}


def instruction(*mnemonics: str) -> Callable[[Builder], Builder]:
    """Register the builder of `mnemonics`; `bar.warp` matches the first two parts of an opcode."""

    def register(builder: Builder) -> Builder:
        for mnemonic in mnemonics:
            if mnemonic in BUILDERS:
                raise ValueError(f"{mnemonic} is in the table twice")
            BUILDERS[mnemonic] = builder
        return builder

    return register


def builder_of(parts: tuple[str, ...]) -> Builder | None:
    """The builder of the longest registered name that the opcode starts with."""
    for length in range(min(4, len(parts)), 0, -1):
        found = BUILDERS.get(".".join(parts[:length]))
        if found is not None:
            return found
    return None


def class_of(site: Site) -> str:
    """Register class of the type that the opcode names last."""
    name = site.type()
    if name not in TYPES:
        raise site.unsupported(f"{site.opcode}: registers of type .{name} are not emulated")
    return TYPES[name].register
