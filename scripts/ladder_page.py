"""Writes the tables and the picture of ladder/README.md from ladder/results.json.

nvfp4 batch ladder submission.py --jsonl verdicts.jsonl    judges every rung
python -m scripts.ladder_page [verdicts.jsonl]             writes the page with what it found

The picture needs matplotlib, a correlation scipy.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from nvfp4.cli.new import ladder_folder, rungs
from nvfp4.cli.problem import load_problem, shape_of
from nvfp4.problems.nvfp4_gemv.extras import figures
from nvfp4.records.cases import parse_case
from scripts.markdown import table

OWN = "submission"
"""The name, among those of rungs, of the repository's own submission."""

PUBLISHED_US = {
    "cute/01_template": 100.0,
    "cute/06_split_k_shared": 33.0,
    "cute/09_half2_fma": 25.99,
    "cute/11_tuned": 24.26,
    "cute/12_one_asm": 21.60,
    "cute/13_tma_tcgen05": 21.78,
    "cuda/01_naive": 2000.0,
    "cuda/02_coalesced": 443.0,
    "cuda/04_vector_loads": 39.0,
    "cuda/05_ptx_decode": 27.0,
    "cuda/06_shape_tuned": 26.0,
    "cuda/07_two_tiles": 22.9,
    "cuda/08_fused": 22.3,
    "cuda/09_per_shape": 18.55,
}
"""What contestants report of a kernel of the same idea: geometric mean of the three benchmarks on a
B200, in microseconds."""

_headings = {"cute": "CuTe DSL", "cuda": "CUDA C++", "detours": "Detours", "": "To compare with"}
_begin, _end = "<!-- tables -->", "<!-- end of tables -->"
_markers = "s^Dv"

Results = dict[str, dict[str, Any]]
"""By rung: sha256 of the file, full_range, instructions and sectors of an emulated call, and by
device us, with rewritten, or predicted: us, low_us, high_us."""


def files() -> dict[str, Path]:
    """The rungs and the repository's own submission to compare with."""
    return {**rungs(), OWN: Path(__file__).parents[1] / "submission.py"}


def sha256_of(path: Path) -> str:
    """The checksum of a file, which says whether a result is of the file as it is."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def merged(results: Results, verdicts: Iterator[dict[str, Any]]) -> Results:
    """The results with those of verdicts that passed; what a changed file had before goes."""
    names = {sha256_of(path): name for name, path in files().items()}
    merged = {name: results[name] for name in results if results[name]["sha256"] in names}
    for verdict in verdicts:
        sha256 = verdict["submission"]["sha256"]
        if verdict["passed"] and sha256 in names:
            own = merged.setdefault(names[sha256], {"sha256": sha256, "us": {}})
            full = [test["status"] for test in verdict["tests"] if test["inputs"] == "full"]
            own["full_range"] = set(full) == {"pass"}
            _note_call(own, verdict)
    return merged


def _note_call(own: dict[str, Any], verdict: dict[str, Any]) -> None:
    score, (first, *_) = verdict["score"], verdict["benchmarks"]
    if score["geomean_us"]:
        time = {"us": score["geomean_us"], "rewritten": bool(verdict["device"]["retargeted"])}
        own["us"][verdict["device"]["name"]] = time
    if counts := first["emulation"]:
        elements = shape_of(first["spec"]).elements
        own["instructions"] = 32 * counts["warp_instructions_total"] / elements
        own["sectors"] = counts["sectors_requested"] / max(counts["sectors_distinct"], 1)
        own["predicted"] = score["predicted"]


def devices(results: Results) -> list[str]:
    """Those that timed a rung."""
    return sorted({device for each in results.values() for device in each["us"]})


def markdown(results: Results) -> str:
    """A table for each folder; links are relative to ladder/."""
    timed = devices(results)
    head = ["full-range inputs", "instructions an element", "requested / distinct sectors"]
    head += [*(f"{device}, us" for device in timed), "B200 predicted, us", "B200 published, us"]
    blocks = []
    for folder, heading in _headings.items():
        chosen = [name for name in files() if name.rpartition("/")[0] == folder]
        blocks.append(table([heading, *head], (_cells(name, results, timed) for name in chosen)))
    for device, (value, count) in correlations(results).items():
        what = "Spearman's rank correlation of measured and published times"
        blocks.append(f"{device}: {what} {value:.2f}, over {count} rungs.")
    return "\n\n".join(blocks)


def _cells(name: str, results: Results, timed: list[str]) -> list[str]:
    link = f"[{name.rpartition('/')[2]}]({'../' if name == OWN else ''}{name}.py)"
    found = results.get(name)
    published = f"{PUBLISHED_US[name]:g}" if name in PUBLISHED_US else ""
    if not found:
        return [link, *[""] * (4 + len(timed)), published]
    times = [found["us"].get(device) for device in timed]
    predicted = found.get("predicted")
    return [
        link,
        "pass" if found["full_range"] else "fail",
        *(f"{found[each]:.2f}" if each in found else "" for each in ("instructions", "sectors")),
        *(f"{each['us']:.1f}{'*' * each['rewritten']}" if each else "" for each in times),
        "{us:.1f} ({low_us:.1f}-{high_us:.1f})".format(**predicted) if predicted else "",
        published,
    ]


def correlations(results: Results) -> dict[str, tuple[float, int]]:
    """Spearman's rank correlation of measured and published times by GPU, and its rungs."""
    found = {}
    for device in devices(results):
        names = [name for name in PUBLISHED_US if device in results.get(name, {"us": ()})["us"]]
        ours = [results[name]["us"][device]["us"] for name in names]
        if len(names) > 2:
            theirs = [PUBLISHED_US[name] for name in names]
            found[device] = spearman(ours, theirs), len(names)
    return found


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The correlation of ranks, from -1 to 1; not a number where all values of a side are equal."""
    from scipy.stats import spearmanr

    return float(spearmanr(xs, ys).statistic)


def draw_climb(results: Results, path: Path) -> None:
    """Write a picture of the two climbs: times above, emulated instructions an element below.

    Raises ImportError without matplotlib.
    """
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("agg")
    # Text stays text, and the same picture is the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nvfp4"})
    shown = [name for name in files() if name.startswith(("cute/", "cuda/"))]
    figure, (times, counts) = pyplot.subplots(
        2, figsize=(10, 7), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    _line(times, shown, PUBLISHED_US, "o-", "published, B200")
    for marker, device in zip(_markers, devices(results), strict=False):
        on = {
            name: each["us"][device]["us"] for name, each in results.items() if device in each["us"]
        }
        _line(times, shown, on, f"{marker}-", f"measured, {device}")
    known = [figures(**parse_case(line).arguments) for line in load_problem().benchmarks]
    floors = [each["b200_floor_us"] for each in known]
    light = [each["sol_us"] for each in known]
    label = "floor of a B200, by the contest's clock"
    times.axhline(geometric_mean(floors), color="0.4", linestyle="--", label=label)
    label = "speed of light of a B200"
    times.axhline(geometric_mean(light), color="0.4", linestyle=":", label=label)
    times.set(yscale="log", ylabel="geometric mean of the benchmarks (us)")
    times.legend()
    instructions = {name: each["instructions"] for name, each in results.items()}
    _line(counts, shown, instructions, "o-", "emulated")
    counts.set(yscale="log", ylabel="instructions an element")
    counts.set_xticks(range(len(shown)), shown, rotation=60, ha="right")
    for axes in (times, counts):
        axes.grid(True, which="both", alpha=0.2)
        axes.yaxis.set_major_formatter("{x:g}")
    counts.yaxis.set_minor_formatter("{x:g}")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _line(axes: Any, shown: list[str], values: Mapping[str, float], style: str, label: str) -> None:
    """A line for each climb, in one colour."""
    color = None
    for folder in ("cute/", "cuda/"):
        points = [
            (index, values[name])
            for index, name in enumerate(shown)
            if name.startswith(folder) and name in values
        ]
        if points:
            (drawn,) = axes.plot(*zip(*points, strict=True), style, color=color, label=label)
            color, label = drawn.get_color(), "_another of the same"


def with_tables(page: str, tables: str) -> str:
    """The page with the tables between their two marks. Raises ValueError where it has none."""
    before, rest = page.split(_begin)
    _, after = rest.split(_end)
    return f"{before}{_begin}\n{tables}\n{_end}{after}"


def read_results() -> Results:
    """The results that the page shows."""
    results: Results = json.loads((ladder_folder() / "results.json").read_text())
    return results


def main() -> None:
    """Keep what verdicts say, and write tables and picture."""
    folder = ladder_folder().resolve()
    lines = Path(sys.argv[1]).read_text().splitlines() if len(sys.argv) > 1 else []
    results = merged(read_results(), map(json.loads, lines))
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    page = folder / "README.md"
    page.write_text(with_tables(page.read_text(encoding="utf-8"), markdown(results)))
    draw_climb(results, folder / "climb.svg")


if __name__ == "__main__":
    main()
