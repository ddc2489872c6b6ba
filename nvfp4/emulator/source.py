"""Lines of the code that a kernel was compiled from, and what messages call their files."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/nvidia_cutlass_dsl/|/cutlass/include/|/usr/include/"
    r"|/cuda[^/]*/(?:.*/)?include/"
)
_PACKAGES = re.compile(r".*/(?:(?:site|dist|dsl|python)[-_]packages|include)/")
_TEMPORARY = re.compile(r".*/(nvfp4|captured)-[^/]*/")
"""Where nobody finds a file any more once it is read in a message."""
_names: dict[str, str] = {}
_given: set[str] = set()
"""Files whose text was given: if there are any, no other is read."""


@dataclass(frozen=True)
class SourceLine:
    """A line of a file, from 1.

    column: from 1, 0 where it is not known. caller: the line into which the code of this one was
    inlined. near: the compiler gave no line, this is the last one before in the PTX.
    """

    file: str
    line: int
    column: int = 0
    caller: SourceLine | None = None
    near: bool = False

    def chain(self) -> Iterator[SourceLine]:
        """This line, its caller, the caller's caller and so on."""
        frame: SourceLine | None = self
        while frame is not None:
            yield frame
            frame = frame.caller

    def users(self) -> SourceLine | None:
        """The innermost line of the chain that stands in a file of the user's."""
        return next((frame for frame in self.chain() if not is_library(frame.file)), None)

    @property
    def text(self) -> str:
        """The line itself, stripped; empty where the file cannot be read."""
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
    """Whether the file belongs to an installed package or to the CUDA Toolkit."""
    return _LIBRARY.search(path) is not None


def show_as(path: str, name: str, text: str | None = None) -> None:
    """From now on messages of this process call the file `name`: a copy by its original's name.
    text: what stands in it, where this process runs code of somebody else: that names the files of
    its lines, and none is opened then."""
    _names[os.path.realpath(path)] = name
    if text is not None:
        _given.add(path)
        linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path


def shown(path: str) -> str:
    """What messages call a file: by the name given to it, inside its package or the working
    directory, else by its path.
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
