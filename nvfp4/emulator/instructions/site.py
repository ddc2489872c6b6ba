"""Where an instruction is, how it was written, and the errors that it raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

import numpy as np

from nvfp4.emulator.errors import (
    EmulatorError,
    PtxSyntaxError,
    Related,
    Seen,
    SourceLocation,
    UnsupportedInstruction,
)
from nvfp4.emulator.ptx.program import Instruction, Memory, Operand, OperandList
from nvfp4.emulator.ptx.types import Array, is_type
from nvfp4.emulator.state.batch import Batch


@dataclass(frozen=True)
class Site:
    """An instruction in its kernel. addresses: the operands that were taken for addresses."""

    kernel: str
    instruction: Instruction
    addresses: set[int] = field(default_factory=set, compare=False, repr=False)

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    @property
    def parts(self) -> tuple[str, ...]:
        return self.instruction.parts

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    def location(self) -> SourceLocation:
        at = self.instruction
        return SourceLocation(self.kernel, at.line, at.text, source=at.source)

    def lane(self, batch: Batch, lane: int) -> LaneSite:
        """This instruction as one lane of the batch executes it."""
        return LaneSite(self, batch, int(lane))

    def testify(
        self, batch: Batch, space: str, place: Array, nbytes: int, lanes: Array, writes: bool,
        atomic: bool = False, engine: bool = False,
    ) -> None:  # fmt: skip
        """Tell the witness of a race, if there is one, what these lanes access. place: global
        addresses, or offsets in the batch's shared memory. engine: the copy engine does it."""
        witness, grid = batch.launch.witness, batch.grid
        if witness is None:
            return
        row, thread = grid.cta[lanes], grid.thread[lanes]
        if space == "shared":
            place = place.astype(np.int64) - row * batch.shared.stride + batch.shared.base
        if engine:
            thread = np.full(lanes.size, grid.threads)
        witness.saw(
            space, place, nbytes, (batch.numbers[row], thread), self.instruction.line, writes,
            lambda i: self.lane(batch, lanes[i]).location(), atomic
        )  # fmt: skip

    def unsupported(self, what: str, hint: str | None = None) -> UnsupportedInstruction:
        return UnsupportedInstruction(what, where=self.location(), hint=hint)

    def only(self, *known: str) -> None:
        """Refuse modifiers other than `known`, all of which may be missing."""
        for part in self.parts[1:]:
            if part not in known:
                raise self.unsupported(f"{self.opcode}: modifier .{part} is not emulated")

    def takes(self, least: int, most: int | None = None) -> None:
        """Refuse a number of operands outside [least, most or least]."""
        most = least if most is None else most
        if not least <= len(self.operands) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise PtxSyntaxError(
                f"{self.opcode} takes {wanted} operands, not {len(self.operands)}",
                where=self.location(),
            )

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
        kind: type[EmulatorError],
        message: str,
        hint: str | None = None,
        arguments: Mapping[str, int | str] | None = None,
    ) -> NoReturn:
        """Raise an error of this lane. Every fault of a running kernel is raised here."""
        error = self._error(kind, message, hint)
        error.arguments.update(arguments or {})
        raise error

    def note(
        self,
        kind: type[EmulatorError],
        message: str,
        hint: str | None = None,
        count: int = 1,
        seen: Seen | None = None,
        related: Sequence[Related] = (),
    ) -> None:
        """Note what hardware tolerates, if the launch is checked, and go on. count: how many
        threads did it. seen, related: see EmulatorError."""
        if self.batch.launch.check:
            error = self._error(kind, message, hint)
            error.seen = seen
            error.related += related
            self.batch.launch.findings.note(error, count)

    def _error(self, kind: type[EmulatorError], message: str, hint: str | None) -> EmulatorError:
        return kind(message, where=self.location(), hint=hint)

    def location(self) -> SourceLocation:
        """The instruction with who executes it."""
        cta, thread = self.batch.coordinates(self.lane)
        launch = self.batch.launch
        return replace(
            self.site.location(), cta=cta, thread=thread, grid=launch.grid, block=launch.block
        )
