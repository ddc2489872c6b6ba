"""How long the timed calls of a benchmark took, as bars of text."""

from __future__ import annotations

from rich.console import Console

from nvfp4.cli.display.columns import Column
from nvfp4.cli.display.console import rule_of, say
from nvfp4.cli.problem import shape_of
from nvfp4.cli.display.quantities import microseconds
from nvfp4.cli.display.render import show_table
from nvfp4.cli.verdict import Verdict

_bins = 12
_longest_bar = 40


def show_histograms(console: Console, verdict: Verdict) -> None:
    """A table for each benchmark whose calls were timed, or a sentence where none was."""
    sampled = [(each, each.samples_us) for each in verdict.benchmarks if each.samples_us]
    for benchmark, samples in sampled:
        say(console)
        heading = f"{shape_of(benchmark.spec)}: how long {len(samples)} calls took"
        show_table(console, heading, _columns(samples, "#" if rule_of(console) == "-" else "█"))
    if not sampled:
        say(console, "no timed calls to draw")


def _columns(samples: list[float], mark: str) -> list[Column]:
    least = min(samples)
    step = (max(samples) - least) / _bins or 1.0
    counts = [0] * _bins
    for each in samples:
        counts[min(int((each - least) / step), _bins - 1)] += 1
    bars = [mark * round(_longest_bar * count / max(counts)) for count in counts]
    return [
        Column("from us", [microseconds(least + index * step) for index in range(_bins)]),
        Column("calls", [str(count) for count in counts]),
        Column("", bars, right=False),
    ]
