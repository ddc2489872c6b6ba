"""What a kernel did that the manual forbids and hardware tolerates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nvfp4.emulator.errors import EmulatorError


@dataclass(frozen=True)
class Finding:
    """One kind of misuse at one place. cta, thread: of its first occurrence. count: how many
    threads did it, all occurrences together. file, line: in the source the kernel was compiled
    from, None where that is not known.
    """

    code: str
    message: str
    kernel: str
    file: str | None
    line: int | None
    cta: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    count: int
    hint: str | None


class Findings:
    """The findings of a launch: the first occurrence at each place, the others counted."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, int | None], EmulatorError] = {}
        self._counts: dict[tuple[str, int | None], int] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[EmulatorError]:
        """The first occurrences, in the order in which they were found."""
        return iter(self._first.values())

    def note(self, error: EmulatorError, count: int = 1) -> None:
        """One more occurrence: `count` threads did what the error says."""
        where = error.where
        place = (error.code, where.line if where else None)
        self._first.setdefault(place, error)
        self._counts[place] = self._counts.get(place, 0) + count

    def records(self, kernel: str) -> list[Finding]:
        """Plain records, in the order in which they were found."""
        found = []
        for place, error in self._first.items():
            where = error.where
            found.append(
                Finding(
                    code=error.code,
                    message=error.message,
                    kernel=kernel,
                    file=None,
                    line=None,
                    cta=where.cta if where else None,
                    thread=where.thread if where else None,
                    count=self._counts[place],
                    hint=error.hint,
                )
            )
        return found
