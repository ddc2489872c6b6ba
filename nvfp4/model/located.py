"""PTX whose machine code says from which line of the PTX it comes."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"//.*")
_FILE = "kernel.ptx"


def located(ptx: str) -> str:
    """The same text with a `.loc` of its own in front of each statement. Lines keep no number: the
    `.loc` has that of the text given."""
    found = []
    depth, fresh = 0, False
    for number, line in enumerate(ptx.split("\n"), 1):
        code = _COMMENT.sub("", line).strip()
        if depth == 0 and code.startswith(".section"):
            break  # debugging information, which stands at the end
        if code.startswith((".loc", ".file")):
            continue
        starts = fresh and depth and code and (code[0].isalpha() or code[0] in "@{_%$")
        if starts and not code.endswith(":"):
            found.append(f".loc 1 {number} 0")
        found.append(line)
        depth += code.count("{") - code.count("}")
        if code:
            fresh = code[-1] in ";{}:"
    return "\n".join([*found, f'.file 1 "{_FILE}"', ""])
