"""What scripts.fidelity found, as the Markdown tables of docs/emulator-fidelity.md.

    python -m scripts.fidelity.table FOLDER

FOLDER holds instructions.json and warps.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.fidelity.cases import EXACT_PATTERNS, approximate_opcodes, expand

Outcomes = dict[str, dict[str, Any]]
"""What was found, by the name of what was compared."""


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(*names: str) -> Iterator[str]:
    """The head of a Markdown table."""
    yield row(*names)
    yield row(*("---" for _ in names))


def exact(outcomes: Outcomes) -> Iterator[str]:
    """Instructions whose bits must be the device's, a row for each pattern."""
    yield from header("instructions", "forms", "operand sets", "sets that differ")
    for pattern in EXACT_PATTERNS:
        found = [outcomes[opcode] for opcode in expand(pattern) if opcode in outcomes]
        if found:
            tried = min(outcome["tried"] for outcome in found)
            different = sum(outcome["different"] for outcome in found)
            yield row(f"`{pattern}`", len(found), f"{tried:,}", different)


def warps(outcomes: Outcomes) -> Iterator[str]:
    """Warp instructions, a row for each in whole warps and in some lanes."""
    yield from header("warp instruction", "lanes", "lanes that differ")
    for name, outcome in outcomes.items():
        yield row(name, outcome["tried"], outcome["different"])


def approximate(outcomes: Outcomes) -> Iterator[str]:
    """Approximations, with their errors."""
    yield from header("instruction", "operand sets", "same bits", "largest error")
    for opcode in approximate_opcodes():
        outcome = outcomes.get(opcode)
        if outcome is None or outcome["errors"] is None:
            continue
        same = 100 * (1 - outcome["different"] / outcome["tried"])
        errors = outcome["errors"]
        if opcode.startswith(("sin", "cos", "lg2")):
            error = f"{errors['absolute']:.2g} absolute"
        elif opcode.endswith(".f64") or opcode == "tanh.approx.f32":
            error = f"{errors['relative']:.2g} relative"
        else:
            error = f"{errors['ulp']} ulp"
        yield row(f"`{opcode}`", f"{outcome['tried']:,}", f"{same:.1f} %", error)


def main(folder: Path) -> None:
    """Prints the tables."""
    instructions, lanes = (
        {outcome["name"]: outcome for outcome in json.loads((folder / name).read_text())}
        for name in ("instructions.json", "warps.json")
    )
    for title, lines in (
        ("Exact instructions", exact(instructions)),
        ("Warp instructions", warps(lanes)),
        ("Approximations", approximate(instructions)),
    ):
        print(f"## {title}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
