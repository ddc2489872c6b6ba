"""What the parameters of a PTX kernel are: as much of PTX as a launch needs."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\((.*?)\))?", re.DOTALL)
_PARAMETER = re.compile(r"\s\.[busf](\d+)\b[^\[]*?[\w$%]+\s*(?:\[\s*(\d+)\s*\])?\s*$")


def parameter_bytes(ptx: str, kernel: str) -> tuple[int, ...] | None:
    """The size of each parameter of a kernel; None if the module has no such kernel.

    Source: PTX ISA, kernel parameters (`.param .align 64 .b8 name[128]`, `.param .u64 name`,
    `.param .u64 .ptr .global .align 16 name`).
    """
    for entry in _ENTRY.finditer(_COMMENT.sub(" ", ptx)):
        if entry[1] != kernel:
            continue
        listed = (entry[2] or "").strip()
        return tuple(_size(part) for part in listed.split(",")) if listed else ()
    return None


def _size(parameter: str) -> int:
    matched = _PARAMETER.search(parameter.strip())
    if matched is None:
        raise ValueError(f"this is not a parameter of a PTX kernel: {parameter.strip()!r}")
    bits, count = matched.groups()
    return int(bits) // 8 * int(count or 1)
