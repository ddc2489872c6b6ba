"""An error as compilers print them: place, message, the line with a caret, then what belongs to it.

submission.py:26:18: error: read of 16 bytes outside every tensor: ... [out_of_bounds]
26 |     rA.store(gA[None, 0].load())
|              ^
in kernel gemv, CTA (1, 0, 0) of (2, 1, 1), thread (32, 0, 0) of (128, 1, 1)
hint: ...
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from nvfp4.emulator.errors import EmulatorError, SourceLocation
from nvfp4.emulator.names import readable, short_name
from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse
from nvfp4.emulator.report import LaunchReport
from nvfp4.emulator.source import SourceLine, is_library

_LONGEST_LINE = 120


def rendered(error: EmulatorError, launched: SourceLine | None = None) -> str:
    """All that is known of an error, as several lines.

    launched: the line of the user's code that launched the kernel; the error's own place where it
    has no other.
    """
    where = error.where
    lines: list[str] = []
    if where is None:
        lines += _headed(launched, "error", error.message, error.code)
    else:
        lines += _located(where, "error", error.message, error.code)
        lines.append(f"  {_who(where)}")
        if launched is not None:
            text = f": {launched.text}" if launched.text else ""
            lines.append(f"  launched at {launched}{text}")
    for each in error.related:
        lines += _located(each.where, "note", each.message)
        if each.where.cta is not None:
            lines.append(f"  {_who(each.where)}")
    if error.rule is not None:
        lines.append(f"  rule: {error.rule}")
    if error.hint is not None:
        lines.append(f"  hint: {error.hint}")
    return readable("\n".join(lines))


def _located(
    where: SourceLocation, kind: str, message: str, code: str | None = None
) -> Iterator[str]:
    """The user's line, or the PTX where none is known, with the lines that it was inlined into."""
    user = where.user
    if user is None:
        yield from _headed(None, kind, message, code)
        if where.source is not None:
            yield f"  {where.source}: in a library; the line that called it is not known"
        if where.line is not None:
            yield f"  PTX line {where.line}: {where.instruction or ''}".rstrip(": ")
        return
    yield from _headed(user, kind, message, code)
    callers = [frame for frame in user.chain() if not is_library(frame.file)][1:]
    for frame in callers:
        yield f"  called from {frame}: {frame.text}" if frame.text else f"  called from {frame}"


def _headed(
    place: SourceLine | None, kind: str, message: str, code: str | None = None
) -> Iterator[str]:
    tag = f" [{code}]" if code else ""
    yield f"{f'{place}: ' if place else ''}{kind}: {message}{tag}"
    if place is not None:
        yield from _quoted(place)


def _quoted(place: SourceLine) -> Iterator[str]:
    """The line under its number, and a caret below where the column is known."""
    raw = place.raw
    text = raw.lstrip()
    if not text:
        return
    yield f"  {place.line:>4} | {text[:_LONGEST_LINE]}"
    column = place.column - 1 - (len(raw) - len(text))
    if place.column and 0 <= column < min(len(text), _LONGEST_LINE):
        yield f"       | {' ' * column}^"


def _who(where: SourceLocation) -> str:
    parts = [f"in kernel {short_name(where.kernel)}"]
    for name, index, extent in (
        ("CTA", where.cta, where.grid),
        ("thread", where.thread, where.block),
    ):
        if index is not None:
            parts.append(f"{name} {index}" + (f" of {extent}" if extent else ""))
    return ", ".join(parts)


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
    code = iter(link(parse(report.ptx), report.kernel).code)
    for size, warps in report.block_runs:
        for _ in range(size):
            counts[next(code).line] += warps
    return dict(counts)
