"""What a kernel did that the manual forbids and hardware tolerates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nvfp4.emulator.errors import EmulatorError, Related
from nvfp4.emulator.source import shown
from nvfp4.records.launch import Note

_RULES_OF_NOTES = {
    "unjoined_stream": "CUDA C++ Programming Guide, Streams: commands of different streams may run "
    "out of order with respect to one another, or at the same time"
}

Place = tuple[str, str | None, int | None]
"""Code, file and line of a finding."""


@dataclass(frozen=True)
class Finding:
    """One kind of misuse at one place. cta, thread: of its first occurrence. count: how many
    threads did it, all occurrences together. file, line: in the source the kernel was compiled
    from, the file as messages call it; None where that is not known. ptx_line: of the first
    occurrence. rule: as of EmulatorError. related: other places that belong to it, as `other_place`
    has them.
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
    rule: str | None = None
    ptx_line: int | None = None
    related: list[dict[str, Any]] = field(default_factory=list)


class Findings:
    """The findings of a launch: the first occurrence at each place, the others counted.

    A place is a line of the user's source where that is known, else a line of the PTX.
    """

    def __init__(self) -> None:
        self._first: dict[Place, EmulatorError] = {}
        self._counts: dict[Place, int] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[EmulatorError]:
        """The first occurrences, in the order in which they were found."""
        return iter(self._first.values())

    def note(self, error: EmulatorError, count: int = 1) -> None:
        """One more occurrence: `count` threads did what the error says."""
        place = place_of(error)
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
                    file=shown(where.file) if where and where.file else None,
                    line=where.source_line if where else None,
                    cta=where.cta if where else None,
                    thread=where.thread if where else None,
                    count=self._counts[place],
                    hint=error.hint,
                    rule=error.rule,
                    ptx_line=where.line if where else None,
                    related=[other_place(each) for each in error.related],
                )
            )
        return found


def other_place(related: Related) -> dict[str, Any]:
    """message, file, line, ptx_line, cta, thread; None where something is not known."""
    where = related.where
    return {
        "message": related.message,
        "file": shown(where.file) if where.file else None,
        "line": where.source_line,
        "ptx_line": where.line,
        "cta": where.cta,
        "thread": where.thread,
    }


def place_of(error: EmulatorError) -> Place:
    """Where findings of a kind are counted together."""
    where = error.where
    if where is None:
        return error.code, None, None
    user = where.user
    return (error.code, user.file, user.line) if user else (error.code, None, where.line)


def noted(note: Note, kernel: str) -> Finding:
    """What was said about a launch beforehand, as one of its findings."""
    return Finding(
        code=note.code,
        message=note.message,
        kernel=kernel,
        file=shown(note.file) if note.file else None,
        line=note.line,
        cta=None,
        thread=None,
        count=1,
        hint=note.hint,
        rule=_RULES_OF_NOTES.get(note.code),
    )
