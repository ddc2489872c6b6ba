"""Why PTX cannot run on another GPU than it was compiled for."""

from __future__ import annotations

from typing import ClassVar

from nvfp4.emulator.source import SourceLine


class RetargetError(Exception):
    """Base of the errors of this package. `str(error)` is the sentence, the place, the hint.

    verdict_code: the kind of error, as a verdict calls it. refusal: that none of them says anything
    of the submission, only of this GPU.
    """

    verdict_code: ClassVar[str] = "retarget.failed"
    refusal: ClassVar[bool] = True

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


class NotRetargetable(RetargetError):
    """An instruction that the target lacks and that nothing can take the place of.

    line: in the PTX text, from 1. source: the line that it was compiled from.
    """

    verdict_code = "retarget.no_replacement"

    def __init__(
        self, opcode: str, target: str, why: str, line: int, source: SourceLine | None
    ) -> None:
        self.opcode = opcode
        self.line = line
        self.source = source.users() if source else None
        place = f"PTX line {line}"
        if self.source:
            place = f"{self.source}: {self.source.text}\n  {place}"
        super().__init__(f"{opcode} cannot run on {target}: {why}\n  {place}")


class DriverError(RetargetError):
    """A call of the CUDA driver that failed."""

    verdict_code = "retarget.driver"
