"""What an emulated call would cost a B200."""

from typing import Any

from nvfp4.cli.b200 import issue_us, memory_us
from nvfp4.cli.text import visible_json
from nvfp4.records.plain import fits

sector_bytes = 32

_needed = ("sectors_distinct", "warp_instructions_total", "bank_conflicts", "divergent_branches")
_plain = ("bool", "str", "float", "list[str]", "dict[str, float]")
"""Types of what the judge writes: a flag, a name, a count, or several of them."""


def _is_count(value: object) -> bool:
    return fits("float", value) and value >= 0  # type: ignore[operator]


def read_counts(text: str | None, minimum_bytes: int | None) -> dict[str, Any] | None:
    """The counts of a benchmark's call with what follows from them, None where there are none.

    Added to the counts are ``distinct_bytes`` (32 bytes for each distinct sector: what memory must
    deliver and take), ``minimum_bytes``, ``b200_memory_us`` (the former at the B200's bandwidth)
    and ``b200_issue_us`` (every warp instruction of the PTX issued at the B200's full rate).
    """
    counts = visible_json(text)
    if not isinstance(counts, dict) or not all(_is_count(counts.get(name)) for name in _needed):
        return None
    if not all(any(fits(each, value) for each in _plain) for value in counts.values()):
        return None
    distinct_bytes = sector_bytes * counts["sectors_distinct"]
    instructions = counts["warp_instructions_total"]
    if not instructions:  # a kernel that was executed has some
        return None
    return {
        "extrapolated": False,
        **counts,
        "distinct_bytes": distinct_bytes,
        "minimum_bytes": minimum_bytes,
        "b200_memory_us": memory_us(distinct_bytes),
        "b200_issue_us": issue_us(instructions),
    }
