"""The PTX of a cached kernel names the files from which it was compiled the first time."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"([^"]*)"(?:\s+"([^"]*)")?', re.MULTILINE)


def in_place(ptx: str, source: Any) -> str:
    """The same text, with files that are gone replaced by those of the same name that are loaded.

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
