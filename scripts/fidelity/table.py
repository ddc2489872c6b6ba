"""Markdown tables of what scripts.fidelity and ncu found.

    python -m scripts.fidelity.table FOLDER [--recorded build/kernels.pickle]

FOLDER holds instructions.json, warps.json, kernels.json and, if ncu ran, ncu.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.fidelity.cases import EXACT_PATTERNS, approximate_opcodes, expand
from scripts.fidelity.kernels import RECORDED, Recording

Outcome = dict[str, Any]

NCU_COLUMNS = {
    "SASS instructions": "smsp__inst_executed.sum",
    "LSU read sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "LSU write sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "L2 read misses": "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    "DRAM read sectors": "dram__sectors_read.sum",
    "shared conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
}
EMULATOR_COLUMNS = {
    "PTX instructions": "warp_instructions_total",
    "sectors requested": "sectors_requested",
    "distinct sectors read": "sectors_read",
    "conflicts": "bank_conflicts",
}


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(*names: str) -> Iterator[str]:
    """The head of a Markdown table."""
    yield row(*names)
    yield row(*("---" for _ in names))


def exact(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """Instructions whose bits must be the device's, a row for each pattern."""
    yield from header("instructions", "forms", "operand sets", "sets that differ")
    for pattern in EXACT_PATTERNS:
        found = [outcomes[opcode] for opcode in expand(pattern) if opcode in outcomes]
        if found:
            tried = min(outcome["tried"] for outcome in found)
            different = sum(outcome["different"] for outcome in found)
            yield row(f"`{pattern}`", len(found), f"{tried:,}", different)


def approximate(outcomes: dict[str, Outcome]) -> Iterator[str]:
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


def counters(recording: Recording, ncu: Path) -> Iterator[str]:
    """What ncu counted of the recorded launches beside what the emulator counted."""
    lines = [line for line in ncu.read_text().splitlines() if line.startswith('"')]
    measured = list(csv.DictReader(lines))[1:]  # the first row holds the units
    yield from header("kernel", *NCU_COLUMNS, *EMULATOR_COLUMNS)
    for launch, values in zip(recording.launches, measured, strict=True):
        numbers = [values[metric] for metric in NCU_COLUMNS.values()]
        numbers += [f"{launch.counts[count]:,}" for count in EMULATOR_COLUMNS.values()]
        yield row(launch.label, *numbers)


def counted(what: str, results: str, outcomes: dict[str, Outcome]) -> Iterator[str]:
    """A row for each comparison: how many results there are, and how many differ."""
    yield from header(what, results, f"{results} that differ")
    for name, outcome in outcomes.items():
        yield row(name, outcome["tried"], outcome["different"])


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    arguments = parser.parse_args()

    def load(name: str) -> dict[str, Outcome]:
        found = json.loads((arguments.folder / name).read_text())
        return {outcome["name"]: outcome for outcome in found}

    instructions = load("instructions.json")
    sections = [
        ("Exact instructions", exact(instructions)),
        ("Warp instructions", counted("warp instruction", "lanes", load("warps.json"))),
        ("Approximations", approximate(instructions)),
        ("Whole kernels", counted("kernel", "outputs", load("kernels.json"))),
    ]
    ncu = arguments.folder / "ncu.csv"
    if ncu.exists():
        sections.append(("Counters", counters(Recording.load(arguments.recorded), ncu)))
    for title, lines in sections:
        print(f"## {title}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
