"""Time against bytes, drawn in the terminal and as a PNG."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One shape: bytes moved, and microseconds of the kernel, the floor and a plain read."""

    label: str
    bytes: int
    ours_us: float
    floor_us: float
    plain_us: float


def terminal(points: Sequence[Point], width: int = 72, height: int = 20) -> str:
    """A log-log plot in characters: o ours, . the floor. Raises ValueError for no points."""
    if not points:
        raise ValueError("nothing to plot: give at least one point")
    x = [math.log10(point.bytes) for point in points]
    both = [(point.ours_us, point.floor_us) for point in points]
    y = [math.log10(value) for pair in both for value in pair]
    low, high = (min(x), min(y)), (max(x), max(y))
    span = [max(top - bottom, 1e-9) for bottom, top in zip(low, high, strict=True)]
    cells = [[" "] * width for _ in range(height)]
    for mark, values in ((".", [p.floor_us for p in points]), ("o", [p.ours_us for p in points])):
        for at, value in zip(x, values, strict=True):
            column = round((at - low[0]) / span[0] * (width - 1))
            height_of = round((math.log10(value) - low[1]) / span[1] * (height - 1))
            cells[height - 1 - height_of][column] = mark
    lines = []
    for i, line in enumerate(cells):
        value = 10 ** (high[1] - span[1] * i / (height - 1))
        lines.append(f"{value:9.1f} us |{''.join(line).rstrip()}")
    left, right = (f"{10**edge / 1e6:.1f} MB" for edge in (low[0], high[0]))
    lines.append(" " * 13 + "+" + "-" * width)
    lines.append(" " * 14 + left + right.rjust(width - len(left)) + "   o ours   . floor")
    return "\n".join(lines)


def png(points: Sequence[Point], path: pathlib.Path, title: str) -> None:
    """The same as a picture; needs matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    ordered = sorted(points, key=lambda point: point.bytes)
    megabytes = [point.bytes / 1e6 for point in ordered]
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    axes.plot(megabytes, [p.floor_us for p in ordered], "-", color="0.5", label="floor")
    axes.plot(megabytes, [p.plain_us for p in ordered], ".", color="0.5", label="plain read")
    axes.plot(megabytes, [p.ours_us for p in ordered], "o", mfc="none", label="submission.py")
    axes.set(xscale="log", yscale="log", xlabel="bytes moved (MB)", ylabel="time (us)", title=title)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")
