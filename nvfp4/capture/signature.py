"""What a PTX kernel declares of itself: as much of PTX as a launch needs."""

import ctypes
import math
import re
from collections.abc import Sequence

from nvfp4.records.launch import Dim3
from nvfp4.records.launch_errors import UnsupportedCall

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\((.*?)\))?", re.DOTALL)
_DIRECTIVES = r"\.entry\s+{}\b\s*(?:\([^)]*\))?([^{{;]*)\{{"  # not of a declaration
_MOST_THREADS = re.compile(r"\.(?:maxntid|reqntid)\s+([\d\s,]+)")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+([\d\s,]+)")
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
        raise UnsupportedCall(f"a parameter of a kernel that is not known: {parameter.strip()}")
    bits, count = matched.groups()
    return int(bits) // 8 * int(count or 1)


def parameters_at(address: int, sizes: Sequence[int]) -> list[bytes]:
    """The parameters of a launch, given the array of pointers (void **) that host code passes."""
    pointers = (ctypes.c_void_p * len(sizes)).from_address(address) if sizes else ()
    return [ctypes.string_at(each, size) for each, size in zip(pointers, sizes, strict=True)]


def most_threads(ptx: str, kernel: str) -> int | None:
    """The threads a block of a kernel may have by its launch bounds; None if it has none.

    Source: PTX ISA, performance-tuning directives (.maxntid, .reqntid).
    """
    bound = _directive(_MOST_THREADS, ptx, kernel)
    return math.prod(bound) if bound else None


def required_cluster(ptx: str, kernel: str) -> Dim3 | None:
    """The clusters that a kernel asks for, as by __cluster_dims__; None if it asks for none.

    Source: PTX ISA, cluster dimension directives (.reqnctapercluster).
    """
    asked = _directive(_CLUSTER, ptx, kernel)
    if asked is None:
        return None
    x, y, z = (*asked, 1, 1)[:3]
    return x, y, z


def _directive(name: re.Pattern[str], ptx: str, kernel: str) -> list[int] | None:
    """The numbers behind a directive of a kernel."""
    found = re.search(_DIRECTIVES.format(re.escape(kernel)), _COMMENT.sub(" ", ptx), re.DOTALL)
    numbers = name.search(found[1]) if found else None
    return [int(each) for each in numbers[1].split(",")] if numbers else None
