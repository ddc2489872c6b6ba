"""Time against bytes as a PNG."""

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


def png(points: Sequence[Point], path: pathlib.Path, title: str) -> None:
    """Draws the points on logarithmic axes; needs matplotlib."""
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
