"""Counts of emulated launches, added up for one call of a submission."""

from typing import Any

from nvfp4.judge.submission_process import SubmissionFailed

_sector_bytes = 32
_longest_name = 60
_most_kinds = 40
_largest = 2**53

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
    "peer_bytes_read",
    "peer_bytes_written",
    "bank_conflicts",
    "divergent_branches",
    "atomics",
    "barriers",
    "tensor_instructions",
    "tensor_cycles",
    "tensor_bytes_read",
    "tensor_bytes_written",
    "seconds",
)

_scaled = (
    "ctas_run",
    "ctas_total",
    "warp_instructions_total",
    "tensor_instructions",
    "tensor_cycles",
)
"""Counts that are also known if only some thread blocks ran."""


def total_counts(launches: object) -> dict[str, Any]:
    """The sum over launches, each as ``emulator.LaunchReport.to_dict`` gives it.

    Returns the sums, ``launches``, ``kernels`` (names, cut) and ``warp_instructions`` by kind.
    Where only some thread blocks ran, it returns the counts that scale. Anything that is not a
    count is taken as 0: the reports come from the submission's process.
    """
    listed = launches if isinstance(launches, list) else []
    reports = [each for each in listed if isinstance(each, dict)]
    kinds: dict[str, int] = {}
    for report in reports:
        by_kind = report.get("warp_instructions")
        for kind, count in by_kind.items() if isinstance(by_kind, dict) else ():
            name = str(kind)[:_longest_name]
            if name in kinds or len(kinds) < _most_kinds:
                kinds[name] = kinds.get(name, 0) + int(_number(count))
    totals = {name: sum(_number(each.get(name)) for each in reports) for name in _summed}
    if totals["ctas_run"] < totals["ctas_total"]:
        totals = {name: totals[name] for name in _scaled}
    return {
        "launches": sum(_number(each.get("launches", 1)) for each in reports),
        "kernels": sorted({str(each.get("kernel"))[:_longest_name] for each in reports})[:8],
        "warp_instructions": kinds,
        **totals,
    }


def refuse_too_few_bytes(counts: dict[str, Any], least_bytes: int) -> None:
    """Raises SubmissionFailed where fewer distinct bytes were touched than any kernel must move."""
    distinct_bytes = _sector_bytes * counts["sectors_distinct"]
    if distinct_bytes < least_bytes:
        raise SubmissionFailed(
            "emulation.too_few_bytes",
            f"the kernels touched {distinct_bytes} distinct bytes of memory, and any kernel has to "
            f"move {least_bytes}: they cannot have done the work",
            distinct_bytes=distinct_bytes,
            least_bytes=least_bytes,
        )


def _number(value: object) -> float | int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return value if 0 <= value < _largest else 0
