"""Where an instruction is, and what it does to a group of threads: the table of everything but
arithmetic.

An instruction is one function decorated with `instruction("mnemonic", operands, modifiers)`, which
declares how it is written and refuses what is written otherwise. The function gets a `Site` (where
the instruction is and what its operands are) and returns an `Action`. Arithmetic comes from
`emulator.arithmetic.resolve`, which knows lanes but neither memory nor other lanes.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.arithmetic.definedness import Rule
from nvfp4.emulator.ptx.syntax import Instruction, Integer, Memory, Operand, OperandList, Sink
from nvfp4.emulator.ptx.types import TYPES, Array, is_type
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.witness import Event
from nvfp4.records.base import Record

_HINTS = ("L1::", "L2::", "level::")


class Site(Record):
    """An instruction in its kernel."""

    kernel: str
    instruction: Instruction
    addresses: set[int] = field(default_factory=set, compare=False, repr=False)
    """Indices of the operands that were taken as addresses."""
    sources: list["Source"] = field(default_factory=list, compare=False, repr=False)
    """Operands that were declared as sources."""
    results: list["Result"] = field(default_factory=list, compare=False, repr=False)
    """Operands that were declared as results."""

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    @property
    def parts(self) -> tuple[str, ...]:
        return self.instruction.parts

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    def location(self) -> errors.SourceLocation:
        at = self.instruction
        return errors.SourceLocation(self.kernel, at.line, at.text, source=at.source)

    def lane(self, batch: Batch, lane: int) -> "LaneSite":
        """This instruction as one lane of the batch executes it."""
        return LaneSite(self, batch, int(lane))

    def record_access(
        self, batch: Batch, space: str, place: Array, nbytes: int, lanes: Array, writes: bool,
        atomic: bool = False, engine: bool = False,
    ) -> None:  # fmt: skip
        """Tell the witness of a race, if there is one, what these lanes access.

        place: global addresses, or offsets in the batch's shared memory. engine: whether the copy
        engine accesses.
        """
        witness, grid = batch.launch.witness, batch.grid
        if witness is None:
            return
        cta, thread = batch.numbers[grid.cta[lanes]], grid.thread[lanes]
        homes = None
        if space == "shared":
            owner, place = divmod(place.astype(np.int64), batch.shared.stride)
            place, homes = place + batch.shared.base, batch.numbers[owner]
        if engine:
            thread = np.full(lanes.size, grid.threads)
        for i in witness.hits(space, place, nbytes, homes):
            who, where = (int(cta[i]), int(thread[i])), self.lane(batch, lanes[i]).location()
            witness.events.append(Event(self.instruction.line, *who, writes, atomic, where))

    def unsupported(self, what: str, hint: str | None = None) -> errors.UnsupportedInstruction:
        return errors.UnsupportedInstruction(what, where=self.location(), hint=hint)

    def only(self, *known: str) -> None:
        """Refuse modifiers other than `known`, none of which is required; "hints" stands for cache
        hints."""
        for part in self.parts[1:]:
            if part not in known and not ("hints" in known and part.startswith(_HINTS)):
                raise self.unsupported(f"{self.opcode}: modifier .{part} is not emulated")

    def one_of(self, *names: str) -> str:
        """Return the modifier that is among `names`; refuse an opcode without one."""
        for part in self.parts[1:]:
            if part in names:
                return part
        wanted = ", ".join(f".{name}" for name in names)
        raise self.unsupported(f"{self.opcode} is not emulated without {wanted}")

    def declare(self, operands: str | None, modifiers: str | None, own: set[str]) -> None:
        """Set sources and results, and refuse an instruction whose operands or modifiers differ
        from the declared ones.

        See `instruction`. own: the parts of the names that it is registered by.
        """
        for word in modifiers.split() if modifiers else ():
            if "|" in word or "!" in word:
                self.one_of(*word.rstrip("!").split("|"))
        if modifiers is not None:
            self.only(*re.findall(r"[^|! ]+", modifiers), *own)
        if operands is None:
            return
        words = operands.split()
        self.takes(sum("?" not in word for word in words), len(words))
        for i, word in enumerate(words[: len(self.operands)]):
            kind = word.rstrip("?")
            if kind == "[]":
                self.sources.append(Source(self.memory(i), "b64"))
            elif kind.startswith("="):
                classes = map(self._class, kind[1:].split("|"))
                self.results.extend(map(Result, (*self.items(i), Sink()), classes))
            elif kind != "_":
                self.sources.append(Source(self.operands[i], self._class(kind)))

    def _class(self, kind: str) -> str:
        return class_of(self) if kind == "type" else kind

    def action(self, kind: str, run: "Run", **more: Any) -> "Action":
        """Return an Action on the operands that were declared."""
        return Action(kind, self.sources, self.results, run, **more)

    def takes(self, least: int, most: int | None = None) -> None:
        """Refuse a number of operands outside [least, most or least]."""
        most = least if most is None else most
        if not least <= len(self.operands) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            message = f"{self.opcode} takes {wanted} operands, not {len(self.operands)}"
            raise errors.PtxSyntaxError(message, where=self.location())

    def items(self, index: int) -> tuple[Operand, ...]:
        """The elements of a braced operand, or the operand itself."""
        operand = self.operands[index]
        return operand.items if isinstance(operand, OperandList) else (operand,)

    def memory(self, index: int) -> Memory:
        """The operand with an index, which must be an address."""
        operand = self.operands[index] if index < len(self.operands) else None
        if not isinstance(operand, Memory):
            raise self.unsupported(f"{self.opcode}: operand {index + 1} must be an address in []")
        self.addresses.add(id(operand))
        return operand

    def integer(self, index: int) -> int:
        """The value of the operand with an index, which must be a number."""
        operand = self.operands[index] if index < len(self.operands) else None
        if not isinstance(operand, Integer):
            raise self.unsupported(f"{self.opcode}: operand {index + 1} must be a number")
        return operand.value

    def type(self) -> str:
        """The last part of the opcode that is a type, such as `u32`."""
        for part in reversed(self.parts):
            if is_type(part):
                return part
        raise self.unsupported(f"{self.opcode} names no type")


class LaneSite(NamedTuple):
    """An instruction as one lane of a batch executes it."""

    site: Site
    batch: Batch
    lane: int

    def fault(
        self,
        kind: type[errors.EmulatorError],
        message: str,
        hint: str | None = None,
        arguments: Mapping[str, int | str] | None = None,
    ) -> NoReturn:
        """Raise an error of this lane. Every fault of a running kernel is raised here."""
        raise kind(message, where=self.location(), hint=hint, arguments=arguments)

    def note(
        self, kind: type[errors.EmulatorError], message: str, hint: str | None = None,
        count: int = 1, seen: errors.Seen | None = None, related: Sequence[errors.Related] = ()
    ) -> None:  # fmt: skip
        """Note a finding that hardware tolerates, if the launch is checked, and go on.

        count: the number of threads that caused it. seen, related: see EmulatorError.
        """
        if self.batch.launch.check:
            error = kind(message, where=self.location(), hint=hint)
            error.seen = seen
            error.related += related
            self.batch.launch.findings.note(error, count)

    def seen(
        self, space: str, address: int, nbytes: int, other: tuple[int, int], home: int = -1,
        engine: bool = False,
    ) -> errors.Seen:  # fmt: skip
        """Return the record of an access by the lane, or by the copy engine for it, that races with
        another one. See `errors.Seen`."""
        row, thread = divmod(self.lane, self.batch.grid.threads)
        who = int(self.batch.numbers[row]), self.batch.grid.threads if engine else thread
        return errors.Seen(space, address, nbytes, *who, self.site.instruction.line, other, home)

    def location(self) -> errors.SourceLocation:
        """Return the place of the instruction, with the CTA and thread that execute it."""
        cta, thread = self.batch.coordinates(self.lane)
        where, asked = self.site.location(), self.batch.launch.asked
        return replace(where, cta=cta, thread=thread, grid=asked.grid, block=asked.block)


def issuing_lanes(
    site: Site, ex: Execution, sources: tuple[Array, ...]
) -> Iterator[tuple[LaneSite, list[int]]]:
    """Yield (lane, its operands) for each lane that executes a single-thread instruction."""
    at = ex.positions()
    columns = [ex.group.spread(source)[at] for source in sources]
    for i, lane in enumerate(ex.group.lanes[at].tolist()):
        yield site.lane(ex.batch, lane), [int(column[i]) for column in columns]


class Source(Record):
    """An operand to read as a register class. An address reads as b64 with its offset added."""

    operand: Operand
    cls: str


class Result(Record):
    """An operand to set from a value of a register class."""

    operand: Operand
    cls: str
    signed: bool = False
    """Whether to extend the value with its sign if the register is wider."""


# What an instruction returns: its results, or (if it parks) the next block.
Run = Callable[..., "tuple[Array, ...] | int | None"]
Gate = Callable[..., "Array | None"]
Shadow = Callable[[Execution, Sequence[Array], Sequence[Array]], "tuple[Array, ...]"]


class Action(Record):
    """The execution of an instruction: run(execution, *sources) returns the results in order.

    Results of lanes that do not take part are ignored.
    """

    kind: str
    """Class of the instruction in the counters."""
    sources: Sequence[Source]
    results: Sequence[Result]
    run: Run
    gate: Gate | None = None
    """Called with the same arguments: returns the lanes (flat bool array) that may go on, or None
    for all. The others wait before the instruction until more threads arrive or memory changes."""
    parks: bool = False
    """Whether run(execution, next_block, *sources) returns the next block, or None if no lane of
    the group goes on now. `Signals.release` then tells which lanes go on, and when."""
    pure: bool = False
    """Whether run(*sources) needs no Execution and computes results for all lanes alike."""
    rule: Rule | None = None
    """For a pure instruction, which bits of the results are undefined (arithmetic.definedness).
    None: all of them if any bit of a source is."""
    shadow: Shadow | None = None
    """For another instruction, a function that returns the undefined bits of the results:
    shadow(execution, sources, their shadows), called after `run`. For a store, it returns the guard
    of the lanes whose data must be defined. Addresses must always be defined; without `shadow`, all
    sources must be."""
    loads: bool = False
    """Whether results come from memory that may hold undefined bytes, or from lanes that may be
    absent."""


Builder = Callable[[Site], Action]
BUILDERS: dict[str, Builder] = {}


def instruction(
    *mnemonics: str, operands: str | None = None, modifiers: str | None = None
) -> Callable[[Builder], Builder]:
    """Register the builder of `mnemonics`; `bar.warp` matches the first two parts of an opcode.

    operands: a word for each operand, which becomes a source or result of the site. `[]` is an
    address. A register class is a source of that class, and `type` one of the opcode's type. `=b32`
    is a result, and `=b32|pred` a pair of results whose second may be missing. `_` is left to the
    builder. An operand with `?` may be missing.

    modifiers: all modifiers except the parts of `mnemonics`. One of `a|b` is required, and so is
    `a!`; `hints` stands for cache hints.

    Without operands or modifiers, the builder itself refuses what it does not know.
    """

    def register(builder: Builder) -> Builder:
        own = {part for mnemonic in mnemonics for part in mnemonic.split(".")}

        def declared(site: Site) -> "Action":
            site.declare(operands, modifiers, own)
            return builder(site)

        for mnemonic in mnemonics:
            if mnemonic in BUILDERS:
                raise ValueError(f"{mnemonic} is in the table twice")
            BUILDERS[mnemonic] = declared
        return builder

    return register


def builder_of(parts: tuple[str, ...]) -> Builder | None:
    """Return the builder of the longest registered name that the opcode starts with."""
    names = (".".join(parts[:length]) for length in range(min(4, len(parts)), 0, -1))
    return next((BUILDERS[name] for name in names if name in BUILDERS), None)


def class_of(site: Site) -> str:
    """Register class of the type that the opcode names last."""
    name = site.type()
    if name not in TYPES:
        raise site.unsupported(f"{site.opcode}: registers of type .{name} are not emulated")
    return TYPES[name].register
