"""The table of the climb."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nvfp4.cli.display.benchmark_tables import status_text
from nvfp4.cli.display.columns import Column
from nvfp4.cli.ladder.measuring import most_warps
from nvfp4.cli.ladder.results import Counts, Judged, Rung, Steps, counted_shape, no_gpu
from nvfp4.cli.text import microseconds

_counted = (
    ("instr\n/elem", 1, f"a lane's instructions for each element of a, at {counted_shape}"),
    ("req x", 3, "sectors that warps ask for, over the distinct ones"),
    ("bank", 6, "bank conflicts"),
    ("regs", 5, "registers of a thread, by ptxas"),
    ("occup.", 7, f"warps that an SM of a B200 holds, of {most_warps}"),
    ("tensor\ninstr", 8, f"products of tensor cores, at {counted_shape}"),
    ("tensor\ncycles", 8, "how long tensor cores are busy with them, by published rates"),
    ("tensor\nKB", 9, "to and from tensor memory"),
)


def climb_columns(rungs: Sequence[Rung], steps: Steps, label: str) -> list[Column]:
    """A row for each rung. label: the device that judged."""
    on = [judged_on(rung, steps, label) for rung in rungs]
    rows = [count_cells(rung, steps) for rung in rungs]
    columns = [
        Column("rung", [rung.name for rung in rungs], right=False),
        Column("result", [status_text(_result(each)) for each in on], right=False),
        Column(
            "full\nrange",
            [status_text("pass" if each and each.full_range else "fail") for each in on],
            4,
            right=False,
            note="tests on full-range inputs",
        ),
    ]
    for index, (heading, rank, note) in enumerate(_counted):
        if heading.startswith("tensor") and not any(row[index] for row in rows):
            continue
        columns.append(Column(heading, [row[index] for row in rows], rank, note=note))
    for device in timed_devices(rungs, steps):
        cells = [time_cell(judged_on(rung, steps, device)) for rung in rungs]
        note = f"geometric mean on {device}; *: rewritten for it"
        columns.append(Column(f"{_short(device)}\nus", cells, 1, note=note))
    predicted = [predicted_cell(judged_on(rung, steps, no_gpu)) for rung in rungs]
    if any(predicted):
        note = "predicted by a model, not measured (docs/model.md)"
        columns.append(Column("B200\npred. us", predicted, 1, note=note))
    published = [published_cell(rung) for rung in rungs]
    note = "what contestants report of the same idea"
    return [*columns, Column("B200\nus", published, 2, note=note)]


def judged_on(rung: Rung, steps: Steps, device: str) -> Judged | None:
    """What a device said of a rung; None where it has not judged it."""
    step = steps.get(rung.name)
    return step.on.get(device) if step else None


def timed_devices(rungs: Sequence[Rung], steps: Steps) -> list[str]:
    """Those with a time of any of the rungs."""
    on = [steps[rung.name].on for rung in rungs if rung.name in steps]
    return sorted({device for each in on for device in each} - {no_gpu})


def _short(device: str) -> str:
    """NVIDIA H200 is H200."""
    return re.sub(r"^NVIDIA ", "", device)


def _result(judged: Judged | None) -> str:
    if judged is None:
        return "skipped"
    return judged.outcome


def count_cells(rung: Rung, steps: Steps) -> list[str]:
    """instructions, sectors, bank conflicts, registers, occupancy; products and cycles of tensor
    cores, kilobytes of tensor memory, all empty without."""
    step = steps.get(rung.name)
    counts = step.counts if step else None
    if counts is None:
        return [""] * len(_counted)
    tensor = counts.tensor_instructions, counts.tensor_cycles, round(counts.tensor_bytes / 1e3)
    return [
        f"{counts.instructions:.2f}",
        f"{counts.sectors:.2f}",
        f"{counts.bank_conflicts:,}",
        _registers(counts),
        "" if counts.warps_per_sm is None else f"{counts.warps_per_sm / most_warps:.0%}",
        *("" if not counts.tensor_instructions else f"{each:,}" for each in tensor),
    ]


def _registers(counts: Counts) -> str:
    if counts.registers is None:
        return ""
    return f"{counts.registers}" + (" (spills)" if counts.spilled_bytes else "")


def time_cell(judged: Judged | None) -> str:
    """A time, with an asterisk where it was rewritten for the GPU."""
    if judged is None or judged.geomean_us is None:
        return ""
    return microseconds(judged.geomean_us) + ("*" if judged.retargeted else "")


def predicted_cell(judged: Judged | None) -> str:
    """The time that the model predicts, with its interval."""
    if judged is None or judged.predicted_us is None:
        return ""
    low, high = judged.predicted_low_us or 0.0, judged.predicted_high_us or 0.0
    return f"{judged.predicted_us:.1f} ({low:.1f}-{high:.1f})"


def published_cell(rung: Rung) -> str:
    """The time that contestants report."""
    return "" if rung.published_us is None else f"{rung.published_us:g}"
