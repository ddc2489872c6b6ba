"""Why a search cannot begin or go on."""

from __future__ import annotations

Shape = tuple[int, int, int]
"""m rows, k elements, l batches."""


class TuneError(Exception):
    """The message is one sentence, and there is a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
