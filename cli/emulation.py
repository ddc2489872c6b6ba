"""What an emulated call would cost a B200."""

import json
from typing import Any

from cli.b200 import issue_us, memory_us

sector_bytes = 32


def read_counts(text: str | None, minimum_bytes: int | None) -> dict[str, Any] | None:
    """The counts of a benchmark's call with what follows from them, None where there are none.

    Added to the counts are ``distinct_bytes`` (32 bytes for each distinct sector: what memory must
    deliver and take), ``minimum_bytes``, ``b200_memory_us`` (the former at the B200's bandwidth)
    and ``b200_issue_us`` (every warp instruction of the PTX issued at the B200's full rate).
    """
    if text is None:
        return None
    try:
        counts = json.loads(text)
        distinct_bytes = sector_bytes * int(counts["sectors_distinct"])
        instructions = int(counts["warp_instructions_total"])
    except (ValueError, KeyError, TypeError):
        return None
    return {
        **counts,
        "distinct_bytes": distinct_bytes,
        "minimum_bytes": minimum_bytes,
        "b200_memory_us": memory_us(distinct_bytes),
        "b200_issue_us": issue_us(instructions),
    }
