"""`.file` and `.loc`: which line of source each line of PTX comes from."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace

from nvfp4.emulator.source import SourceLine

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"\n]*)"', re.MULTILINE)
_COLUMN = re.compile(r"^[ \t]*\.loc[ \t]+\d+[ \t]+\d+[ \t]+[1-9]", re.MULTILINE)
# What changes the line of the instructions that follow.
_CHANGE = re.compile(
    r"""
      ^[ \t]*\.loc[ \t]+(?P<own>\d+[ \t]+\d+[ \t]+\d+)
        (?:[^\n]*\binlined_at[ \t]+(?P<caller>\d+[ \t]+\d+[ \t]+\d+))?
    | ^[ \t]*//[ \t]*(?P<asm>begin|end)[ ]inline[ ]asm
    | ^[ \t]*(?:\.\w+[ \t]+)*\.(?P<function>entry|func)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
# No compiler inlines as deep; a text in which a line is its own caller must not grow without end.
_DEEPEST = 32

Place = tuple[int, int, int]


class SourceLines:
    """The source of a module's lines. Empty for a module without `.loc`."""

    def __init__(self, text: str = "") -> None:
        self._files = {int(index): path for index, path in _FILE.findall(text)}
        self._columns = bool(_COLUMN.search(text))
        self._starts: list[int] = []
        self._sources: list[SourceLine | None] = []
        if self._files:
            self._read(text)

    def at(self, line: int) -> SourceLine | None:
        """The source of the instructions in a line of the PTX text."""
        index = bisect_right(self._starts, line) - 1
        return self._sources[index] if index >= 0 else None

    def _read(self, text: str) -> None:
        known: dict[Place, SourceLine | None] = {}
        last: SourceLine | None = None
        in_asm = False
        line, position = 1, 0
        for found in _CHANGE.finditer(text):
            line += text.count("\n", position, found.start())
            position = found.start()
            if found["asm"]:
                in_asm = found["asm"] == "begin"
            elif found["function"]:
                known.clear()
                last = None
                in_asm = False
                self._change(line, None)
            elif not in_asm:
                # Compilers count the lines of an inline assembly text as if they were the file's:
                # what stands inside is ignored, the statement's own line holds.
                own = _place(found["own"])
                caller = None
                if found["caller"]:
                    # A chain is given a link at a time: that of the caller's own line came before.
                    place = _place(found["caller"])
                    caller = known.get(place) or self._line(place, None)
                source = known[own] = self._line(own, caller)
                if source is not None and not self._vague(source):
                    last = source
                elif last is not None:
                    source = replace(last, column=0, near=True)
                self._change(line, source)

    def _vague(self, source: SourceLine) -> bool:
        """Whether it is a Python function as a whole: nothing inside one stands in the first
        column. CuTe DSL gives it to what a library function made without being told a place.
        """
        if source.column or not source.file.endswith(".py"):
            return False
        # Before Python 3.11 no column is known.
        return self._columns or source.text.startswith(("@", "def "))

    def _change(self, line: int, source: SourceLine | None) -> None:
        self._starts.append(line)
        self._sources.append(source)

    def _line(self, place: Place, caller: SourceLine | None) -> SourceLine | None:
        """None for line 0: code that the compiler made, or joined from several lines."""
        index, line, column = place
        if not line or index not in self._files:
            return caller
        if caller is not None and sum(1 for _ in caller.chain()) >= _DEEPEST:
            caller = None
        path = self._files[index]
        # Python counts columns from 0, compilers of C++ from 1 with 0 for none. A double slash in
        # the path says that the text in a Python file is C++.
        python = path.endswith(".py") and "//" not in path
        return SourceLine(path.replace("//", "/"), line, column + (python and column > 0), caller)


def _place(text: str) -> Place:
    index, line, column = (int(word) for word in text.split())
    return index, line, column
