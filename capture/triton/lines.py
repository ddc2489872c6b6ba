"""Triton's PTX with line information that can be relied on.

A kernel from the cache names the files from which it was compiled the first time, and LLVM counts
the lines of inline assembly as if they were lines of the file it stands in.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

_INLINE = re.compile(r"// begin inline asm\n.*?// end inline asm", re.DOTALL)
_LOC = re.compile(r"^\s*\.loc\s.*$", re.MULTILINE)
_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"([^"]*)"(?:\s+"([^"]*)")?', re.MULTILINE)


def corrected(ptx: str, source: Any) -> str:
    """The same instructions on the same lines of PTX, with the right file and line for each."""
    return _INLINE.sub(_one_line, _in_place(ptx, source))


def _one_line(block: re.Match[str]) -> str:
    """Inline assembly that belongs to one line: only its first .loc is kept."""
    first = _LOC.search(block[0])
    end = first.end() if first else 0
    return block[0][:end] + _LOC.sub("", block[0][end:])


def _in_place(ptx: str, source: Any) -> str:
    """Files that are gone are replaced by loaded ones of the same name.

    A submission is copied to a new folder for each run; Triton's cache does not know its path.
    """
    loaded: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        before, folder, name = match.groups()
        path = os.path.join(folder, name) if name else folder
        if not loaded:
            loaded.update(_loaded_files(source))
        now = loaded.get(os.path.basename(path))
        if now is None or now == path or (os.path.exists(path) and path in loaded.values()):
            return match[0]
        return f'{before}"{os.path.dirname(now)}" "{os.path.basename(now)}"'

    return _FILE.sub(replace, ptx)


def _loaded_files(source: Any) -> dict[str, str]:
    """Paths of this process's modules by their names; that of the kernel itself counts most."""
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py"):
            found[os.path.basename(path)] = path
    function = getattr(getattr(source, "fn", None), "fn", None)
    code = getattr(function, "__code__", None)
    if code is not None:
        found[os.path.basename(code.co_filename)] = code.co_filename
    return found
