"""Writes the tables and the picture of ladder/README.md from ladder/results.json.

nvfp4 ladder --state ladder/results.json    judges the rungs that have changed
python -m scripts.ladder_page               writes the page; the picture needs matplotlib
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import correlation, geometric_mean
from typing import Any

from nvfp4.cli.b200 import contest_floor_us, speed_of_light_us
from nvfp4.cli.ladder.results import (
    Rung,
    Steps,
    all_rungs,
    counted_shape,
    ladder_folder,
    no_gpu,
    own_submission,
    read_steps,
)
from nvfp4.cli.ladder.tables import (
    count_cells,
    judged_on,
    predicted_cell,
    published_cell,
    time_cell,
    timed_devices,
)
from nvfp4.cli.problem import Problem, load_problem, shape_of
from nvfp4.cli.report.plots import load_pyplot
from scripts.markdown import table

_headings = {"cute": "CuTe DSL", "cuda": "CUDA C++", "detours": "Detours", "": "To compare with"}

_begin, _end = "<!-- tables -->", "<!-- end of tables -->"

_PLAIN_COUNTS = 5
"""How many there are of any kernel; those of tensor cores follow."""

_climbs = ("cute", "cuda")
_markers = "s^Dv"


def markdown(rungs: Sequence[Rung], steps: Steps) -> str:
    """A table for each folder; links are relative to ladder/."""
    devices = timed_devices(rungs, steps)
    blocks = []
    for folder, heading in _headings.items():
        chosen = [rung for rung in rungs if rung.folder == folder]
        if chosen:
            head = [
                *(heading, "full-range inputs", "instructions an element"),
                *("requested / distinct sectors", "bank conflicts", "registers", "occupancy"),
                "products, cycles of tensor cores, KB of tensor memory",
                *(f"{device}, us" for device in devices),
                "B200 predicted, us",
                "B200 published, us",
            ]
            blocks.append(table(head, (_cells(rung, steps, devices) for rung in chosen)))
    blocks += [f"{line}." for line in correlation_lines(rungs, steps)]
    return "\n\n".join(blocks)


def with_tables(page: str, tables: str) -> str:
    """The page with the tables between their two marks. Raises ValueError where it has none."""
    before, rest = page.split(_begin)
    _, after = rest.split(_end)
    return f"{before}{_begin}\n{tables}\n{_end}{after}"


def _cells(rung: Rung, steps: Steps, devices: list[str]) -> list[str]:
    path = "../submission.py" if rung.name == own_submission else f"{rung.name}.py"
    step = steps.get(rung.name)
    on = list(step.on.values()) if step else []
    full = "pass" if on and all(each.full_range for each in on) else "fail" if on else ""
    times = [time_cell(judged_on(rung, steps, device)) for device in devices]
    return [
        f"[{rung.path.stem}]({path})",
        full,
        *count_cells(rung, steps)[:_PLAIN_COUNTS],
        ", ".join(filter(None, count_cells(rung, steps)[_PLAIN_COUNTS:])),
        *times,
        predicted_cell(judged_on(rung, steps, no_gpu)),
        published_cell(rung),
    ]


def correlations(rungs: Sequence[Rung], steps: Steps) -> dict[str, tuple[float, int]]:
    """By GPU: Spearman's rank correlation of measured and published times, and over how many
    rungs.
    """
    found = {}
    for device in timed_devices(rungs, steps):
        pairs = [
            (judged.geomean_us, rung.published_us)
            for rung in rungs
            if (judged := judged_on(rung, steps, device))
            and judged.geomean_us
            and rung.published_us
        ]
        value = spearman([ours for ours, _ in pairs], [theirs for _, theirs in pairs])
        if value is not None:
            found[device] = value, len(pairs)
    return found


def correlation_lines(rungs: Sequence[Rung], steps: Steps) -> Iterator[str]:
    """The same in words."""
    for device, (value, count) in correlations(rungs, steps).items():
        what = "Spearman's rank correlation of measured and published times"
        yield f"{device}: {what} {value:.2f}, over {count} rungs"


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, from -1 to 1; equal values share the mean of their ranks.

    None for fewer than three pairs, and where all values of a side are equal.
    """
    if len(xs) < 3 or min(len(set(xs)), len(set(ys))) < 2:
        return None
    return correlation(_ranks(xs), _ranks(ys))


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the least."""
    return [
        sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values
    ]


def draw_climb(problem: Problem, rungs: Sequence[Rung], steps: Steps, path: Path) -> None:
    """Writes a picture in the format of the file's ending, such as .svg or .png: times above,
    emulated instructions an element below. Detours are no part of the climb.

    Raises SetupError without matplotlib.
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
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
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


def main() -> None:
    """Writes both."""
    folder, rungs = ladder_folder().resolve(), all_rungs()
    steps = read_steps(folder / "results.json")
    page = folder / "README.md"
    page.write_text(with_tables(page.read_text(encoding="utf-8"), markdown(rungs, steps)))
    draw_climb(load_problem(), rungs, steps, folder / "climb.svg")


if __name__ == "__main__":
    main()
