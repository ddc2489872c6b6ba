"""An error as compilers print them: place, message, the line with a caret, then what belongs to it.

submission.py:26:18: error: read of 16 bytes outside every tensor: ... [out_of_bounds]
26 |     rA.store(gA[None, 0].load())
|              ^
in kernel gemv, CTA (1, 0, 0) of (2, 1, 1), thread (32, 0, 0) of (128, 1, 1)
hint: ...
"""

from collections.abc import Iterator

from nvfp4.emulator.errors import EmulatorError, SourceLocation
from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse
from nvfp4.emulator.report import LaunchReport
from nvfp4.records.source import SourceLine, heading, is_library
from nvfp4.records.texts import readable, short_name


def rendered(error: EmulatorError, launched: SourceLine | None = None) -> str:
    """All that is known of an error, as several lines.

    launched: the line of the user's code that launched the kernel; the error's own place where it
    has no other.
    """
    where = error.where
    lines: list[str] = []
    if where is None:
        lines += heading(launched, "error", error.message, error.code)
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
        yield from heading(None, kind, message, code)
        if where.source is not None:
            yield f"  {where.source}: in a library; the line that called it is not known"
        if where.line is not None:
            yield f"  PTX line {where.line}: {where.instruction or ''}".rstrip(": ")
        return
    yield from heading(user, kind, message, code)
    callers = [frame for frame in user.chain() if not is_library(frame.file)][1:]
    for frame in callers:
        yield f"  called from {frame}: {frame.text}" if frame.text else f"  called from {frame}"


def _who(where: SourceLocation) -> str:
    parts = [f"in kernel {short_name(where.kernel)}"]
    for name, index, extent in (
        ("CTA", where.cta, where.grid),
        ("thread", where.thread, where.block),
    ):
        if index is not None:
            parts.append(f"{name} {index}" + (f" of {extent}" if extent else ""))
    return ", ".join(parts)


def by_ptx_line(report: LaunchReport) -> dict[int, int]:
    """Warp instructions by line of the PTX, from 1. A function counts for all its calls."""
    return report.by_line(each.line for each in link(parse(report.ptx), report.kernel).code)
