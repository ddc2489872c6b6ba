"""Why a search cannot start or continue."""

from __future__ import annotations


class TuneError(Exception):
    """The message is one sentence; hint says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
