"""Where a process's memory lies (Linux)."""

from pathlib import Path

_near_bytes = 1 << 30
_chosen_apart = ("[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]")
"""What the system puts near the end of every process's addresses."""


def taken_ranges() -> list[list[int]]:
    """Ranges [start, end] that hold all memory of this process; what is near is one range."""
    ranges: list[list[int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        if name in _chosen_apart:
            continue
        start, end = (int(each, 16) for each in span.split("-"))
        if ranges and start < ranges[-1][1] + _near_bytes:
            ranges[-1][1] = max(ranges[-1][1], end)
        else:
            ranges.append([start, end])
    return ranges
