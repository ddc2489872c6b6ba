"""Lower bounds on a B200, the contest's GPU, and what an emulated call would cost on it."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from nvfp4.records.channel import fits

_memory_bytes_per_us = 8e6
"""8 TB/s, the memory bandwidth of a B200 by its datasheet."""

_cycles_per_us = 148 * 1965
"""Cycles of all multiprocessors together, at the clock under load (see ``nvfp4.model.b200``). By
the 1.5 GHz of the contest's speed of light these would be no bounds."""


def tensor_us(cycles: float) -> float:
    """Return the least time, in microseconds, that a B200 needs for ``cycles`` of all its tensor
    cores together."""
    return cycles / _cycles_per_us


sector_bytes = 32

_numbers = (
    "warp_instructions_total",
    "sectors_distinct",
    "bank_conflicts",
    "divergent_branches",
    "ctas_run",
    "ctas_total",
    *("sectors_requested", "launches", "tensor_instructions", "tensor_cycles"),
    *("tensor_bytes_read", "tensor_bytes_written"),
)
"""The counts that must be numbers if present; a sample of thread blocks lacks some."""

_plain = (bool, str, float, list[str], dict[str, float], type(None))
"""Types of the judge's values: a flag, a name, a count, several of these, or none."""


def read_counts(counts: Any, minimum_bytes: int | None) -> dict[str, Any] | None:
    """Return the counts of a benchmark's call with what follows from them, None where there are
    none.

    Added to the counts are ``distinct_bytes`` (32 bytes for each distinct sector: what memory must
    deliver and take; None where only some thread blocks ran), ``minimum_bytes``, ``b200_memory_us``
    (the former at the B200's bandwidth, else the latter),
    ``b200_issue_us`` (every warp instruction of the PTX issued by the four schedulers of each of
    the B200's multiprocessors: no bound, as machine code may have half as many) and
    ``b200_tensor_us`` (its tensor cores all busy with what they multiply).
    """
    if not isinstance(counts, dict) or "warp_instructions_total" not in counts:
        return None
    numbers = [counts[name] for name in _numbers if name in counts]
    if not all(fits(float, each) and each >= 0 for each in numbers):
        return None
    if not all(any(fits(each, value) for each in _plain) for value in counts.values()):
        return None
    sectors = counts.get("sectors_distinct")
    distinct_bytes = None if sectors is None else sector_bytes * sectors
    instructions = counts["warp_instructions_total"]
    if not instructions:  # a kernel that was executed has some
        return None
    return {
        **counts,
        "distinct_bytes": distinct_bytes,
        "minimum_bytes": minimum_bytes,
        "b200_memory_us": (distinct_bytes or minimum_bytes or 0) / _memory_bytes_per_us,
        "b200_issue_us": instructions / (4 * _cycles_per_us),
        "b200_tensor_us": tensor_us(counts.get("tensor_cycles", 0)),
    }


predicted_note = "predicted by a model, not measured (docs/model.md)"
"""The legend of a column with ``predicted_text``."""


def predicted_text(us: float | None, gpu: str | None) -> str:
    """Return a predicted time and its GPU, below a heading that names the B200; empty without
    one."""
    if us is None:
        return ""
    return f"{us:.1f}" if gpu == "B200" else f"{us:.1f} ({gpu})"


bound_note = "a bound, not a time: no B200 runs it in less if each launch reads from memory"
"""The legend of a column with ``bound_us``."""


def bound_us(counts: Sequence[Mapping[str, Any] | None]) -> float | None:
    """Return the geometric mean of a B200's lower bounds for benchmarks, in microseconds; None
    unless each has counts, see ``read_counts``.
    """
    known = [each for each in counts if each]
    bounds = [max(each["b200_memory_us"], each["b200_tensor_us"]) for each in known]
    if not bounds or len(bounds) < len(counts) or min(bounds) <= 0:
        return None
    return statistics.geometric_mean(bounds)
