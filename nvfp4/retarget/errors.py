"""Errors of PTX that cannot run on another GPU than it was compiled for."""

from nvfp4.records.launch_errors import RetargetError
from nvfp4.records.source import SourceLine


class NotRetargetable(RetargetError):
    """An instruction that the target lacks and that has no replacement.

    line: line of the PTX text, from 1. source: the line that it was compiled from.
    """

    verdict_code = "retarget.no_replacement"

    def __init__(
        self, opcode: str, target: str, why: str, line: int, source: SourceLine | None
    ) -> None:
        place = f"PTX line {line}"
        own = source.users() if source else None
        if own:
            place = f"{own}: {own.text}\n  {place}"
        super().__init__(f"{opcode} cannot run on {target}: {why}\n  {place}")


class DriverError(RetargetError):
    """A call of the CUDA driver that failed."""

    verdict_code = "retarget.driver"
