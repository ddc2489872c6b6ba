"""The climb as a picture: published times, measured ones where there are any, and the floor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from nvfp4.cli.b200 import contest_floor_us, speed_of_light_us
from nvfp4.cli.errors import SetupError
from nvfp4.cli.ladder.results import Steps, counted_shape
from nvfp4.cli.ladder.rungs import Rung
from nvfp4.cli.output import load_pyplot
from nvfp4.cli.problem import Problem, shape_of

_climbs = ("cute", "cuda")
_markers = "s^Dv"


def draw_climb(problem: Problem, rungs: Sequence[Rung], steps: Steps, path: Path) -> None:
    """Writes a picture in the format of the file's ending, such as .svg or .png: times above,
    emulated instructions an element below. Detours are no part of the climb.

    Raises SetupError without matplotlib, and where the file cannot be written.
    """
    pyplot = load_pyplot()
    shown = [rung for folder in _climbs for rung in rungs if rung.folder == folder]
    figure, (times, counts) = pyplot.subplots(
        2, figsize=(10, 7), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    _draw_times(times, problem, shown, steps)
    instructions = {
        rung.name: step.counts.instructions
        for rung in shown
        if (step := steps.get(rung.name)) and step.counts
    }
    _line(counts, shown, instructions, "o-", "emulated")
    counts.set(yscale="log", ylabel=f"instructions an element\nat {counted_shape}")
    counts.set_xticks(range(len(shown)), [rung.name for rung in shown], rotation=60, ha="right")
    for axes in (times, counts):
        axes.grid(True, which="both", alpha=0.2)
        axes.yaxis.set_major_formatter("{x:g}")
    counts.yaxis.set_minor_formatter("{x:g}")
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise SetupError(
            f"cannot write {path}: {error}", "Name a file such as climb.svg."
        ) from None
    finally:
        pyplot.close(figure)


def _draw_times(axes: Any, problem: Problem, shown: Sequence[Rung], steps: Steps) -> None:
    published = {rung.name: rung.published_us for rung in shown if rung.published_us}
    _line(axes, shown, published, "o-", "published, B200")
    measured: dict[str, dict[str, float]] = {}
    for rung in shown:
        for device, judged in (steps[rung.name].on if rung.name in steps else {}).items():
            if judged.geomean_us:
                measured.setdefault(device, {})[rung.name] = judged.geomean_us
    for index, (device, times) in enumerate(sorted(measured.items())):
        _line(axes, shown, times, f"{_markers[index % len(_markers)]}-", f"measured, {device}")
    shapes = [shape_of(line) for line in problem.benchmarks]
    floors = {
        "floor of a B200, by the contest's clock": [
            contest_floor_us(shape.m, shape.k, shape.l) for shape in shapes
        ],
        "speed of light of a B200": [
            speed_of_light_us(shape.m, shape.k, shape.l, None) for shape in shapes
        ],
    }
    for style, (label, values) in zip(("--", ":"), floors.items(), strict=True):
        known = [value for value in values if value]
        if known:
            axes.axhline(geometric_mean(known), color="0.4", linestyle=style, label=label)
    axes.set(yscale="log", ylabel="geometric mean of the benchmarks (us)")
    axes.legend()


def _line(
    axes: Any, shown: Sequence[Rung], values: dict[str, float], style: str, label: str
) -> None:
    """A line for each climb, in one colour."""
    color = None
    for folder in _climbs:
        points = [
            (index, values[rung.name])
            for index, rung in enumerate(shown)
            if rung.folder == folder and rung.name in values
        ]
        if points:
            (drawn,) = axes.plot(*zip(*points, strict=True), style, color=color, label=label)
            color, label = drawn.get_color(), "_another of the same"
