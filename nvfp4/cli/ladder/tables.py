"""The table of the climb: on a screen, and as Markdown for ladder/README.md."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nvfp4.cli.display.benchmark_tables import status_text
from nvfp4.cli.display.columns import Column
from nvfp4.cli.errors import SetupError
from nvfp4.cli.ladder.occupancy import most_warps
from nvfp4.cli.ladder.results import Counts, Judged, Steps, counted_shape, no_gpu
from nvfp4.cli.ladder.rungs import Rung, own_submission
from nvfp4.cli.text import microseconds

_headings = {"cute": "CuTe DSL", "cuda": "CUDA C++", "detours": "Detours", "": "To compare with"}

_counted = (
    ("instr\n/elem", 1, f"a lane's instructions for each element of a, at {counted_shape}"),
    ("req x", 3, "sectors that warps ask for, over the distinct ones"),
    ("bank", 6, "bank conflicts"),
    ("regs", 5, "registers of a thread, by ptxas"),
    ("occup.", 7, f"warps that an SM of a B200 holds, of {most_warps}"),
)

_begin, _end = "<!-- tables -->", "<!-- end of tables -->"


def climb_columns(rungs: Sequence[Rung], steps: Steps, label: str) -> list[Column]:
    """A row for each rung. label: the device that judged."""
    on = [_on(rung, steps, label) for rung in rungs]
    rows = [_counts(rung, steps) for rung in rungs]
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
        columns.append(Column(heading, [row[index] for row in rows], rank, note=note))
    for device in _timed_devices(rungs, steps):
        cells = [_time(_on(rung, steps, device)) for rung in rungs]
        note = f"geometric mean on {device}; *: rewritten for it"
        columns.append(Column(f"{_short(device)}\nus", cells, 1, note=note))
    published = [_published(rung) for rung in rungs]
    note = "what contestants report of the same idea"
    return [*columns, Column("B200\nus", published, 2, note=note)]


def correlations(rungs: Sequence[Rung], steps: Steps) -> dict[str, tuple[float, int]]:
    """By GPU: Spearman's rank correlation of measured and published times, and over how many
    rungs.
    """
    found = {}
    for device in _timed_devices(rungs, steps):
        pairs = [
            (judged.geomean_us, rung.published_us)
            for rung in rungs
            if (judged := _on(rung, steps, device)) and judged.geomean_us and rung.published_us
        ]
        value = spearman([ours for ours, _ in pairs], [theirs for _, theirs in pairs])
        if value is not None:
            found[device] = value, len(pairs)
    return found


def correlation_lines(rungs: Sequence[Rung], steps: Steps) -> Iterator[str]:
    """The same in words."""
    for device, (value, count) in correlations(rungs, steps).items():
        what = "Spearman's rank correlation of measured and published times"
        yield f"{device}: {what} {value:.2f}, over {count} rungs"


def markdown(rungs: Sequence[Rung], steps: Steps) -> str:
    """A table for each folder; links are relative to ladder/."""
    devices = _timed_devices(rungs, steps)
    blocks = []
    for folder, heading in _headings.items():
        chosen = [rung for rung in rungs if rung.folder == folder]
        if chosen:
            head = [
                *(heading, "full-range inputs", "instructions an element"),
                *("requested / distinct sectors", "bank conflicts", "registers", "occupancy"),
                *(f"{device}, us" for device in devices),
                "B200 published, us",
            ]
            lines = [_row(head), "|" + "---|" * len(head)]
            lines += [_row(_cells(rung, steps, devices)) for rung in chosen]
            blocks.append("\n".join(lines))
    blocks += [f"{line}." for line in correlation_lines(rungs, steps)]
    return "\n\n".join(blocks)


def write_tables(page: Path, tables: str) -> None:
    """Puts them between their two marks in a page. Raises SetupError."""
    try:
        text = page.read_text(encoding="utf-8")
        before, found, rest = text.partition(_begin)
        _, also_found, after = rest.partition(_end)
        if not found or not also_found:
            raise SetupError(f"{page} has no place for tables", f"Put {_begin} and {_end} there.")
        content = f"{before}{_begin}\n{tables}\n{_end}{after}"
        page.write_text(content, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {page}: {error.strerror}"
        raise SetupError(message, "--write is for a checkout of the repository.") from None


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(rung: Rung, steps: Steps, devices: list[str]) -> list[str]:
    path = "../submission.py" if rung.name == own_submission else f"{rung.name}.py"
    step = steps.get(rung.name)
    on = list(step.on.values()) if step else []
    full = "pass" if on and all(each.full_range for each in on) else "fail" if on else ""
    times = [_time(_on(rung, steps, device)) for device in devices]
    return [
        f"[{rung.path.stem}]({path})",
        full,
        *_counts(rung, steps),
        *times,
        _published(rung),
    ]


def _on(rung: Rung, steps: Steps, device: str) -> Judged | None:
    step = steps.get(rung.name)
    return step.on.get(device) if step else None


def _timed_devices(rungs: Sequence[Rung], steps: Steps) -> list[str]:
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


def _counts(rung: Rung, steps: Steps) -> list[str]:
    """instructions, sectors, bank conflicts, registers, occupancy."""
    step = steps.get(rung.name)
    counts = step.counts if step else None
    if counts is None:
        return [""] * 5
    return [
        f"{counts.instructions:.2f}",
        f"{counts.sectors:.2f}",
        f"{counts.bank_conflicts:,}",
        _registers(counts),
        "" if counts.warps_per_sm is None else f"{counts.warps_per_sm / most_warps:.0%}",
    ]


def _registers(counts: Counts) -> str:
    if counts.registers is None:
        return ""
    return f"{counts.registers}" + (" (spills)" if counts.spilled_bytes else "")


def _time(judged: Judged | None) -> str:
    """With an asterisk where it was rewritten for the GPU."""
    if judged is None or judged.geomean_us is None:
        return ""
    return microseconds(judged.geomean_us) + ("*" if judged.retargeted else "")


def _published(rung: Rung) -> str:
    return "" if rung.published_us is None else f"{rung.published_us:g}"


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, from -1 to 1; equal values share the mean of their ranks.

    None for fewer than three pairs, and where all values of a side are equal.
    """
    pairs = list(zip(_ranks(xs), _ranks(ys), strict=True))
    if len(pairs) < 3:
        return None
    mean = (len(pairs) + 1) / 2
    products = math.fsum((x - mean) * (y - mean) for x, y in pairs)
    squares = [math.fsum((pair[side] - mean) ** 2 for pair in pairs) for side in (0, 1)]
    return products / math.sqrt(squares[0] * squares[1]) if all(squares) else None


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the least."""
    return [
        sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values
    ]
