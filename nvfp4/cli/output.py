"""What a submission has printed, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from nvfp4.cli.display.failures import named_results
from nvfp4.cli.errors import SetupError
from nvfp4.cli.text import several
from nvfp4.cli.verdict import Verdict

_shown_outputs = 3


def output_lines(verdict: Verdict) -> Iterator[Text]:
    """What was printed in each case, equal outputs once, with the first case that has it."""
    cases: dict[str, list[str]] = {}
    for what, result in named_results(verdict):
        if result.output:
            cases.setdefault(result.output, []).append(f"{what}, {result.spec}")
    for output, names in list(cases.items())[:_shown_outputs]:
        others = f", and {several(len(names) - 1, 'more case')}" if len(names) > 1 else ""
        yield Text.assemble(("output: ", "bold"), f"{names[0]}{others}")
        for line in output.split("\n"):
            yield Text(f"  {line}")
    hidden = len(cases) - _shown_outputs
    if hidden > 0:
        yield Text(f"and {hidden} other outputs; --json shows every one", style="dim")


def load_pyplot(what: str = "a plot") -> Any:
    """The module that draws, set up for files: text stays text, and the same picture is the same
    file. what: needs it. Raises SetupError without matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        hint = "pip install 'nvfp4[plot]' brings it."
        raise SetupError(f"{what} needs matplotlib, which is missing", hint) from None
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nvfp4"})
    from matplotlib import pyplot

    return pyplot
