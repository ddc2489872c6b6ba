"""Where a process's memory lies (Linux), and sets of addresses."""

import os
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path

ADDRESSES = range(1 << 16, 1 << 47)
"""Addresses at which a process can have memory."""

_near_bytes = 1 << 30
_chosen_apart = ("[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]")
"""Mappings that the system puts near the end of every process's addresses."""


_pie = 1 << 32
"""Where a program that can lie anywhere never does."""


def fixed_loader() -> list[str]:
    """Return what starts a second Python with its heap elsewhere where Python itself, as Debian's,
    always lies at one address, with its heap behind it: its loader. Else an empty list."""
    maps = Path("/proc/self/maps").read_text()
    loader = re.search(r"/\S*/ld-\S*\.so\S*", maps)
    return [loader[0]] if loader and int(maps.partition("-")[0], 16) < _pie else []


def taken_ranges() -> list[list[int]]:
    """Return ranges [start, end] that hold all memory of this process in which a tensor may lie,
    which is not in the program itself; near mappings share a range."""
    ranges: list[list[int]] = []
    program, end_of_program = os.path.realpath(sys.executable), 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *words = line.split(maxsplit=5)
        name = words[4] if words[4:] else ""
        start, end = (int(each, 16) for each in span.split("-"))
        if name == program or (not name and start == end_of_program):
            end_of_program = end
            continue
        if name in _chosen_apart:
            continue
        if ranges and start < ranges[-1][1] + _near_bytes:
            ranges[-1][1] = max(ranges[-1][1], end)
        else:
            ranges.append([start, end])
    return ranges


class Ranges:
    """Ranges [start, end) in order, none of which touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def add(self, start: int, end: int) -> None:
        """Add a range, and join it with those that it touches."""
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """Remove what lies in a range."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last:
            return
        left = [(self._starts[first], start), (end, self._ends[last - 1])]
        left = [(a, b) for a, b in left if a < b]
        self._starts[first:last] = [a for a, _ in left]
        self._ends[first:last] = [b for _, b in left]

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are in the set."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        found = zip(self._starts[first:last], self._ends[first:last], strict=True)
        return [(max(a, start), min(b, end)) for a, b in found]

    def outside(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are not."""
        found = self.within(start, end)
        starts, ends = [start, *(b for _, b in found)], [*(a for a, _ in found), end]
        return [(a, b) for a, b in zip(starts, ends, strict=True) if a < b]

    def clear(self) -> None:
        """Remove everything."""
        self._starts.clear()
        self._ends.clear()
