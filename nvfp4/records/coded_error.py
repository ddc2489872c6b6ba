"""An error that a verdict knows by its code."""

from __future__ import annotations

from typing import ClassVar


class CodedError(Exception):
    """`str(error)` is the sentence, then the hint.

    verdict_code: the kind of error, as a verdict calls it. refusal: whether it says nothing of the
    submission, only of what is not done here; see docs/emulator.md.
    """

    verdict_code: ClassVar[str]
    refusal: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"
