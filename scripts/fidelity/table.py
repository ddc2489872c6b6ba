"""Comparisons as the Markdown tables of docs/emulator-fidelity.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scripts.fidelity.cases import EXACT_PATTERNS, approximate_opcodes, expand
from scripts.fidelity.outcome import Outcome


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _header(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*("---" for _ in names))


def instructions(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Exact instructions, a row for each pattern; then approximations, with their errors."""
    known = {outcome.name: outcome for outcome in outcomes}
    yield from _header("instructions", "forms", "operand sets", "sets that differ")
    for pattern in EXACT_PATTERNS:
        found = [known[opcode] for opcode in expand(pattern) if opcode in known]
        if found:
            tried = min(outcome.tried for outcome in found)
            different = sum(outcome.different for outcome in found)
            yield _row(f"`{pattern}`", len(found), f"{tried:,}", different)
    yield ""
    yield from _header("instruction", "operand sets", "same bits", "largest error")
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
        yield _row(f"`{opcode}`", f"{outcome.tried:,}", f"{same:.1f} %", error)


def plain(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A row for each comparison: how many results there are, and how many differ."""
    yield from _header("", "results", "results that differ")
    for outcome in outcomes:
        yield _row(outcome.name, outcome.tried, outcome.different)
