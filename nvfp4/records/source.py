"""Lines of the code that a kernel was compiled from, the names of their files in messages, and the
line that each line of PTX comes from, by `.file` and `.loc`."""

import linecache
import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nvfp4.records.texts import readable

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/nvidia_cutlass_dsl/|/cutlass/include/|/usr/include/"
    r"|/cuda[^/]*/(?:.*/)?include/"
)
_PACKAGES = re.compile(r".*/(?:(?:site|dist|dsl|python)[-_]packages|include)/")
_TEMPORARY = re.compile(r".*/(nvfp4|captured)-[^/]*/")
"""Folders that no longer exist when a message is read."""
_names: dict[str, str] = {}
_given: set[str] = set()
"""Files whose text was given; if there are any, no other file is read."""


@dataclass(frozen=True)
class SourceLine:
    """A line of a file, from 1."""

    file: str
    line: int
    column: int = 0
    """From 1; 0 if unknown."""
    caller: "SourceLine | None" = None
    """The line into which the code of this line was inlined."""
    near: bool = False
    """Whether the compiler gave no line and this is the last one before in the PTX."""

    def chain(self) -> Iterator["SourceLine"]:
        """This line, its caller, the caller's caller and so on."""
        frame: SourceLine | None = self
        while frame is not None:
            yield frame
            frame = frame.caller

    def users(self) -> "SourceLine | None":
        """Return the innermost line of the chain that stands in a file of the user's."""
        return next((frame for frame in self.chain() if not is_library(frame.file)), None)

    @property
    def text(self) -> str:
        """The line itself, stripped; empty if the file cannot be read."""
        return _line(self.file, self.line).strip()

    @property
    def raw(self) -> str:
        """The line as it stands in the file, without its end; tabs are single spaces."""
        return _line(self.file, self.line).rstrip().replace("\t", " ")

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        near = "near " if self.near else ""
        return f"{near}{shown(self.file)}:{self.line}{column}"


def _line(file: str, line: int) -> str:
    if _given and file not in _given:
        return ""
    linecache.checkcache(file)
    return linecache.getline(file, line)


def is_library(path: str) -> bool:
    """Return whether the file belongs to an installed package or to the CUDA Toolkit."""
    return _LIBRARY.search(path) is not None


def show_as(path: str, name: str, text: str | None = None) -> None:
    """Let later messages of this process call the file `name`, for instance the copy of a file by
    the original's name.

    text: the file's contents. It is given in processes that run a submission's code, which chooses
    the file names of its lines: then no file is opened.
    """
    _names[os.path.realpath(path)] = name
    if text is not None:
        _given.add(path)
        linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path


def shown(path: str) -> str:
    """Return the name of a file in messages: the name given to it, else its path inside its
    package or the working directory, else its path.
    """
    name = _names.get(os.path.realpath(path))
    if name is not None:
        return name
    if is_library(path):
        return _PACKAGES.sub("", path)
    if _TEMPORARY.match(path):
        return os.path.basename(path)
    here = os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path


_LONGEST_LINE = 120


def heading(
    place: SourceLine | None, kind: str, message: str, code: str | None = None
) -> Iterator[str]:
    """Return a message as compilers print it: the place, the message, and the source line behind
    its number."""
    tag = f" [{code}]" if code else ""
    yield f"{f'{place}: ' if place else ''}{kind}: {message}{tag}"
    if place is not None:
        yield from _quoted(place)


def _quoted(place: SourceLine) -> Iterator[str]:
    """Yield the line after its number, and a caret below it if the column is known."""
    raw = place.raw
    text = raw.lstrip()
    if not text:
        return
    yield f"  {place.line:>4} | {text[:_LONGEST_LINE]}"
    column = place.column - 1 - (len(raw) - len(text))
    if place.column and 0 <= column < min(len(text), _LONGEST_LINE):
        yield f"       | {' ' * column}^"


def headed(place: SourceLine | None, message: str, hint: str | None, refusal: bool) -> str:
    """Return the text on a refusal before the run, as `emulator.rendering` shows a fault."""
    code = "unsupported_call" if refusal else "launch_refused"
    lines = list(heading(place, "error", message, code))
    return readable("\n".join([*lines, f"  hint: {hint}"] if hint is not None else lines))


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
    """The source lines of a module; empty for a module without `.loc`."""

    def __init__(self, text: str = "") -> None:
        self._files = {int(index): path for index, path in _FILE.findall(text)}
        self._columns = bool(_COLUMN.search(text))
        self._starts: list[int] = []
        self._sources: list[SourceLine | None] = []
        if self._files:
            self._read(text)

    def at(self, line: int) -> SourceLine | None:
        """Return the source of the instructions in a line of the PTX text."""
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
        """Return whether the place is a Python function as a whole, as no statement inside a
        function is in the first column.

        CuTe DSL names such a place for code that a library function made without being given a
        place.
        """
        if source.column or not source.file.endswith(".py"):
            return False
        # Before Python 3.11 no column is known.
        return self._columns or source.text.startswith(("@", "def "))

    def _change(self, line: int, source: SourceLine | None) -> None:
        self._starts.append(line)
        self._sources.append(source)

    def _line(self, place: Place, caller: SourceLine | None) -> SourceLine | None:
        """Return a line; None for line 0, which is code that the compiler made or joined from
        several lines."""
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
