"""The plots of a report, as SVG that stands inside HTML and takes its colours from there.

Labels are shapes and numbers alone: nothing that a submission may have written is drawn.
"""

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nvfp4.cli.errors import SetupError
from nvfp4.cli.history.database import Entry
from nvfp4.cli.problem import shape_of
from nvfp4.cli.verdict import BenchmarkResult

_ink, _first, _second, _third, _pale = (f"#0102{index:02x}" for index in range(5))
_css = {
    _ink: "currentColor",
    _first: "var(--first)",
    _second: "var(--second)",
    _third: "var(--third)",
    _pale: "var(--pale)",
}
"""Colours that matplotlib draws with, and what stands for them on the page, dark or light."""

_width_inches = 4.8
"""So narrow that the letters are not too small on a phone."""

_most_rows = 24

_style = {
    "font.size": 9,
    "text.color": _ink,
    "axes.edgecolor": _pale,
    "axes.labelcolor": _ink,
    "xtick.color": _ink,
    "ytick.color": _ink,
    "grid.color": _pale,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,
}


def load_pyplot() -> Any:
    """Return the module that draws, set up for files: text stays text, and the same picture is the
    same file. Raises SetupError without matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        hint = "pip install 'nvfp4[plot]' brings it."
        raise SetupError("a plot needs matplotlib, which is missing", hint) from None
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nvfp4"})
    from matplotlib import pyplot

    return pyplot


def against_bounds(benchmarks: Sequence[BenchmarkResult]) -> str:
    """Times, or bounds of emulated kernels, beside floor and speed of light; empty without any."""
    shown = [each for each in benchmarks if each.timed or each.emulation][:_most_rows]
    if not shown:
        return ""
    rows = range(len(shown))
    with _figure(1.1 + 0.42 * len(shown)) as (figure, axes):
        timed = [each.mean_us if each.timed else None for each in shown]
        counts = [each.emulation or {} for each in shown]
        memory = [each.get("b200_memory_us") for each in counts]
        issue = [each.get("b200_issue_us") for each in counts]
        for offset, height, values, color, label in (
            (0.0, 0.5, timed, _first, "mean"),
            (-0.15, 0.28, memory, _first, "memory, B200 >="),
            (0.15, 0.28, issue, _second, "issue, B200 >="),
        ):
            known = [(row + offset, value) for row, value in enumerate(values) if value]
            if known:
                axes.barh(*zip(*known, strict=True), height, color=color, label=label, alpha=0.6)
        marks = ["\n(unverified)" * bool(each.emulation and each.unverified) for each in shown]
        labels = [f"{shape_of(each.spec)}{m}" for each, m in zip(shown, marks, strict=True)]
        floors = [each.floor_us if each.timed else None for each in shown]
        sol = [each.sol_us for each in shown]
        for values, color, label in (
            (floors, _second, "floor here"),
            (sol, _third, "B200 speed of light"),
        ):
            known = [(x, y) for x, y in zip(values, rows, strict=True) if x]
            if known:
                axes.plot(*zip(*known, strict=True), "|", color=color, ms=14, mew=2.5, label=label)
        every = [x for each in (timed, memory, issue, floors, sol) for x in each if x]
        if max(every) > 20 * min(every):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")  # plain numbers, at powers of ten alone
            axes.xaxis.set_minor_formatter("")
        axes.set_yticks(rows, labels)
        axes.set(xlabel="us", ylim=(len(shown) - 0.5, -0.5))
        axes.grid(False, axis="y")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
        return _svg(figure, "Each benchmark beside its bounds")


def progress(entries: Sequence[Entry], current: int) -> str:
    """Geometric means, or bounds, of comparable judgements, the oldest first; empty for one.

    current: the number of the one that the report is about.
    """
    points = [(each.id, value) for each in entries if (value := each.geomean_us or each.bound_us)]
    if len(points) < 2:
        return ""
    numbers, values = zip(*points, strict=True)
    best = [min(values[: index + 1]) for index in range(len(values))]
    with _figure(2.4) as (figure, axes):
        axes.plot(numbers, values, "o", color=_first, ms=4, label="judgement")
        axes.step(numbers, best, where="post", color=_second, label="best so far")
        here = [point for point in points if point[0] == current]
        if here:
            axes.plot(*zip(*here, strict=True), "D", color=_third, ms=8, label="this one")
        axes.set(xlabel="judgement", ylabel="us")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()
        return _svg(figure, "The geometric mean from judgement to judgement")


@contextmanager
def _figure(height: float) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes; close it at the end. height: inches."""
    pyplot = load_pyplot()
    with pyplot.rc_context(_style):
        figure, axes = pyplot.subplots(figsize=(_width_inches, height), layout="constrained")
        try:
            yield figure, axes
        finally:
            pyplot.close(figure)


def _svg(figure: Any, title: str) -> str:
    """The picture as an element of HTML that is as wide as its place, with the page's colours."""
    page = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(page, format="svg", transparent=True, metadata=nothing)
    text = page.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"<style\b.*?</style>", "", text, flags=re.DOTALL)
    own = hashlib.sha256(text.encode()).hexdigest()[:8]  # other plots of the page have names too
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{own}-", text)
    for color, variable in _css.items():
        text = text.replace(color, variable)
    return text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
