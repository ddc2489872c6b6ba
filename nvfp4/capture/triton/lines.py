"""Triton's PTX with line information as others give it."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"([^"\n]*)"', re.MULTILINE)
_COLUMN = re.compile(r"((?:\.loc|inlined_at)[ \t]+\d+[ \t]+\d+[ \t]+)([1-9]\d*)")


def corrected(ptx: str, source: Any) -> str:
    """The same instructions on the same lines of PTX.

    Files that are gone are replaced by loaded ones of the same name: a submission is copied to a
    new folder for each run, of which Triton's cache knows nothing. Columns count from 0, as
    Python's do; Triton's count from 1. source: what the kernel was compiled from.
    """
    loaded = _loaded_files(source)

    def replace(match: re.Match[str]) -> str:
        path = match[2]
        now = loaded.get(os.path.basename(path))
        if now is None or path in loaded.values():
            return match[0]
        return f'{match[1]}"{now}"'

    return _COLUMN.sub(lambda m: f"{m[1]}{int(m[2]) - 1}", _FILE.sub(replace, ptx))


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
