"""Markdown tables of what -m scripts.fidelity and ncu found.

    python -m scripts.fidelity.table FOLDER [--recorded build/kernels.pickle]

FOLDER holds instructions.json, warps.json, kernels.json and, if ncu ran, ncu.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.fidelity.cases import (
    APPROXIMATE_PATTERNS,
    EXACT_PATTERNS,
    expand,
)
from scripts.fidelity.kernels import Recording

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
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(*names: str) -> Iterator[str]:
    yield row(*names)
    yield row(*("---" for _ in names))


def exact(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield from header("instructions", "forms", "operand sets", "sets that differ")
    for pattern in EXACT_PATTERNS:
        found = [outcomes[opcode] for opcode in expand(pattern) if opcode in outcomes]
        if found:
            tried = min(outcome["tried"] for outcome in found)
            different = sum(outcome["different"] for outcome in found)
            yield row(f"`{pattern}`", len(found), f"{tried:,}", different)


def approximate(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield from header("instruction", "operand sets", "same bits", "largest error")
    for opcode in [opcode for pattern in APPROXIMATE_PATTERNS for opcode in expand(pattern)]:
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


def warps(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield from header("warp instruction", "lanes", "lanes that differ")
    for name, outcome in outcomes.items():
        yield row(
            f"`{name.split(' ')[0]}` {name.split(' ', 1)[1]}",
            outcome["tried"],
            outcome["different"],
        )


def counters(recording: Recording, ncu: Path) -> Iterator[str]:
    lines = [line for line in ncu.read_text().splitlines() if line.startswith('"')]
    measured = list(csv.DictReader(lines))[1:]  # the first row holds the units
    yield from header("kernel", *NCU_COLUMNS, *EMULATOR_COLUMNS)
    for launch, values in zip(recording.launches, measured, strict=True):
        name = f"{launch.name} {'x'.join(map(str, launch.shape))}"
        numbers = [values[metric] for metric in NCU_COLUMNS.values()]
        numbers += [f"{launch.counts[count]:,}" for count in EMULATOR_COLUMNS.values()]
        yield row(name, *numbers)


def kernels(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield from header("kernel", "outputs", "outputs that differ")
    for name, outcome in outcomes.items():
        yield row(name, outcome["tried"], outcome["different"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recorded", type=Path, default=root / "build" / "kernels.pickle")
    arguments = parser.parse_args()

    def load(name: str) -> dict[str, Outcome]:
        found = json.loads((arguments.folder / name).read_text())
        return {outcome["opcode"]: outcome for outcome in found}

    instructions = load("instructions.json")
    sections = [
        ("Exact instructions", exact(instructions)),
        ("Warp instructions", warps(load("warps.json"))),
        ("Approximations", approximate(instructions)),
        ("Whole kernels", kernels(load("kernels.json"))),
    ]
    ncu = arguments.folder / "ncu.csv"
    if ncu.exists():
        sections.append(("Counters", counters(Recording.load(arguments.recorded), ncu)))
    for title, lines in sections:
        print(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
