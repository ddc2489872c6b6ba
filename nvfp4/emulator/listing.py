"""Where a launch spent its instructions: warp instructions beside the lines of PTX and source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from nvfp4.emulator.errors import EmulatorError
from nvfp4.emulator.names import short_name
from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse
from nvfp4.emulator.ptx.program import Instruction
from nvfp4.emulator.report import LaunchReport


def annotated_ptx(report: LaunchReport) -> str:
    """The PTX of a launch, each line with the warp instructions that were executed there.

    The column stays empty beside lines without an instruction of
    the kernel; 0 stands beside those that were never reached.
    """
    return _beside({line: str(count) for line, count in by_ptx_line(report).items()}, report.ptx)


def ptx_with_fault(ptx: str, error: EmulatorError) -> str:
    """The PTX of a launch that has failed: `fault` stands beside the line where that was."""
    line = error.where.line if error.where else None
    return _beside({line: "fault"} if line else {}, ptx)


def keep_listing(folder: Path, number: int, kernel: str, listing: str) -> None:
    """Writes the listing of a call's launch, counted from 1, to a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", short_name(kernel))[:60]
    (folder / f"{number}_{name}.ptx").write_text(listing, encoding="utf-8")


def _beside(column: dict[int, str], ptx: str) -> str:
    """A text with something in front of some of its lines, which count from 1."""
    width = max(map(len, column.values()), default=1)
    return "".join(
        f"{column.get(number, ''):>{width}} | {line}\n"
        for number, line in enumerate(ptx.removesuffix("\n").split("\n"), 1)
    )


def by_ptx_line(report: LaunchReport) -> dict[int, int]:
    """Warp instructions by line of the PTX, from 1. A function counts for all its calls."""
    counts: Counter[int] = Counter()
    for instruction, warps in _executed(report):
        counts[instruction.line] += warps
    return dict(counts)


def by_source_line(report: LaunchReport) -> dict[tuple[str, int] | None, int]:
    """Warp instructions by (file, line) of the user's source.

    None: what comes from no line of the user's that is known.
    """
    counts: Counter[tuple[str, int] | None] = Counter()
    for instruction, warps in _executed(report):
        user = instruction.source.users() if instruction.source else None
        counts[(user.file, user.line) if user else None] += warps
    return dict(counts)


def _executed(report: LaunchReport) -> Iterator[tuple[Instruction, int]]:
    """Each instruction of the kernel, calls inlined, and how many warps ran it."""
    code = iter(link(parse(report.ptx), report.kernel).code)
    for size, warps in report.block_runs:
        for _ in range(size):
            yield next(code), warps
