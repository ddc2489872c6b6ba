"""What emulated calls of two files count, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

names = {
    "warp_instructions_total": "warp instructions",
    "sectors_requested": "sectors requested",
    "distinct_bytes": "distinct MB",
    "bank_conflicts": "bank conflicts",
    "divergent_branches": "divergent branches",
    "b200_memory_us": "memory >= us",
    "b200_issue_us": "issue >= us",
}
"""Of an emulated call, as in docs/json.md, to what people call them."""


@dataclass(frozen=True)
class CountChange:
    """change: a share of the baseline's count, 0.01 where there is 1 % more; None where the
    baseline has none of it.
    """

    baseline: float
    file: float
    change: float | None


def count_changes(baseline: dict[str, Any], file: dict[str, Any]) -> dict[str, CountChange]:
    """Every count of `names` that both have, from the counts of two emulated calls."""
    return {
        name: CountChange(baseline[name], file[name], _share(baseline[name], file[name]))
        for name in names
        if name in baseline and name in file
    }


def _share(baseline: float, file: float) -> float | None:
    if baseline == file:
        return 0.0
    return file / baseline - 1 if baseline else None
