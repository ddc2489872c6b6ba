"""Counts of emulated launches, added up for one call of a submission."""

from collections.abc import Sequence
from typing import Any

_longest_name = 60

_summed = (
    "ctas_run",
    "ctas_total",
    "warp_instructions_total",
    "global_read_bytes",
    "global_written_bytes",
    "global_requests",
    "sectors_requested",
    "sectors_distinct",
    "sectors_read",
    "sectors_written",
    "shared_bytes_read",
    "shared_bytes_written",
    "shared_requests",
    "bank_conflicts",
    "divergent_branches",
    "atomics",
    "barriers",
    "seconds",
)


def total_counts(launches: Sequence[Any]) -> dict[str, Any]:
    """The sum over launches, each as ``emulator.LaunchReport.to_dict`` gives it.

    Returns the sums, ``launches``, ``kernels`` (names, cut), ``warp_instructions`` by kind, and
    whether any was ``extrapolated`` from a sample of its CTAs. What is no number counts as 0: the
    reports come from the submission's process.
    """
    reports = [each for each in launches if isinstance(each, dict)]
    kinds: dict[str, int] = {}
    for report in reports:
        by_kind = report.get("warp_instructions")
        for kind, count in by_kind.items() if isinstance(by_kind, dict) else ():
            kinds[str(kind)[:_longest_name]] = kinds.get(str(kind), 0) + int(_number(count))
    return {
        "launches": len(reports),
        "kernels": sorted({str(each.get("kernel"))[:_longest_name] for each in reports})[:8],
        "extrapolated": any(bool(each.get("extrapolated")) for each in reports),
        "warp_instructions": kinds,
        **{name: sum(_number(each.get(name)) for each in reports) for name in _summed},
    }


def _number(value: object) -> float | int:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
