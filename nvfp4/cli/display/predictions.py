"""Times that a model says of a GPU that is not here."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from nvfp4.cli.problem import shape_of
from nvfp4.cli.verdict import Verdict


def predicted_lines(verdict: Verdict) -> Iterator[Text]:
    """A line for each benchmark, and the geometric mean; nothing where nothing was predicted."""
    shown = [each for each in verdict.benchmarks if each.predicted is not None]
    if not shown:
        return
    gpus = sorted({each.predicted.gpu for each in shown if each.predicted})
    yield Text(f"{', '.join(gpus)}, predicted by a model, not measured (docs/model.md)", "bold")
    for each in shown:
        assert each.predicted
        yield Text(f"  {shape_of(each.spec)!s:<18} {each.predicted.text}")
    mean = verdict.score.predicted
    if mean is not None and len(shown) > 1:
        yield Text(f"  {'geometric mean':<18} {mean.text}")
