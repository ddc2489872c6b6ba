"""What a submission has printed, for people."""

from collections.abc import Iterator

from rich.text import Text

from nvfp4.cli.display.failures import named_results
from nvfp4.cli.display.quantities import several
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
