"""What a judge is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nvfp4.judge.protocol import Exit, ResultPipe
from nvfp4.records.options import Options


class SetupError(Exception):
    """The judge cannot start."""

    def __init__(self, message: str, end: Exit) -> None:
        super().__init__(message)
        self.end = end


@dataclass(frozen=True)
class Request:
    """What a judge is asked to do. submission: the file. pipe: takes the results. deadline: on the
    monotonic clock, in seconds.
    """

    mode: str
    arguments: Sequence[str]
    options: Options
    secret_seed: int | None
    pipe: ResultPipe
    deadline: float
    submission: Path = Path("submission.py")
