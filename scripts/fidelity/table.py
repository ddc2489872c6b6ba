"""Comparisons as the Markdown tables of docs/emulator-fidelity.md."""

from collections.abc import Iterator, Sequence

from scripts.fidelity.cases import EXACT_PATTERNS, approximate_opcodes, expand
from scripts.fidelity.outcome import Outcome
from scripts.markdown import table


def instructions(outcomes: Sequence[Outcome]) -> str:
    """Exact instructions, a row for each pattern; then approximations, with their errors."""
    known = {outcome.name: outcome for outcome in outcomes}
    exact = table(("instructions", "forms", "operand sets", "sets that differ"), _exact(known))
    headings = ("instruction", "operand sets", "same bits", "largest error")
    return f"{exact}\n\n{table(headings, _approximate(known))}"


def _exact(known: dict[str, Outcome]) -> Iterator[tuple[object, ...]]:
    for pattern in EXACT_PATTERNS:
        found = [known[opcode] for opcode in expand(pattern) if opcode in known]
        if found:
            tried = min(outcome.tried for outcome in found)
            different = sum(outcome.different for outcome in found)
            yield f"`{pattern}`", len(found), f"{tried:,}", different


def _approximate(known: dict[str, Outcome]) -> Iterator[tuple[object, ...]]:
    for opcode in approximate_opcodes():
        outcome = known.get(opcode)
        if outcome is None or outcome.errors is None:
            continue
        same = 100 * (1 - outcome.different / outcome.tried)
        if opcode.startswith(("sin", "cos", "lg2")):
            error = f"{outcome.errors.absolute:.2g} absolute"
        elif opcode.endswith(".f64") or opcode == "tanh.approx.f32":
            error = f"{outcome.errors.relative:.2g} relative"
        else:
            error = f"{outcome.errors.ulp} ulp"
        yield f"`{opcode}`", f"{outcome.tried:,}", f"{same:.1f} %", error


def plain(outcomes: Sequence[Outcome]) -> str:
    """A row for each comparison: how many results there are, and how many differ."""
    rows = ((outcome.name, outcome.tried, outcome.different) for outcome in outcomes)
    return table(("", "results", "results that differ"), rows)
