"""A submission's source with what each line costs beside it, as text."""

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap

from nvfp4.cli.b200 import tensor_us
from nvfp4.cli.explain.advice import CostlyLine, kernel_notes
from nvfp4.cli.text import microseconds
from nvfp4.records.base import Record
from nvfp4.records.costs import Code, Kernel, LineCost

narrowest_source = 24
"""Least number of columns for a line of source on a narrow terminal."""

_shown_callers = 4
_shown_savings = 5
_folded = "  ..."

_code_columns = 18
"""Width of the columns before PTX and SASS, so that counts are aligned with those of the source."""

legend = """\
share: of the kernel's warp instructions; instr: how many warps issue there; sectors: of 32
bytes, asked for by warps; req x: over the fewest that could hold the bytes; bank: passes of
shared memory over those without conflicts; div.: warps that diverge"""

time_legend = "us: of the predicted time, waiting for the line's results included"

cost_legend = (
    "cost: issue slots of an SM; a warp instruction takes one, a sector of global memory one, a\n"
    "pass of shared memory four"
)


class Shown(Record):
    """The parts of an explanation to show."""

    top: int = 5
    """How many lines get a sentence."""
    ptx: bool = False
    sass: bool = False
    columns: int = 80
    """Width of the screen."""


def kernel_heading(kernel: Kernel) -> Iterator[str]:
    """Yield the lines on a kernel as a whole."""
    parts = [f"grid {_extents(kernel.grid)}", f"block {_extents(kernel.block)}"]
    if kernel.launches > 1:
        parts.insert(0, f"{kernel.launches} launches, their counts added up, the first")
    if kernel.assembled_registers is not None:
        parts.append(f"{kernel.assembled_registers} registers a thread")
    if kernel.shared_bytes:
        parts.append(f"{kernel.shared_bytes:,} bytes of shared memory")
    yield f"kernel {kernel.kernel}: {', '.join(parts)}"
    if kernel.ctas_run < kernel.ctas_total:
        yield (
            f"{kernel.ctas_run:,} of {kernel.ctas_total:,} CTAs were run; the counts are scaled to "
            "all of them"
        )
    if kernel.predicted is not None:
        alone = f"{kernel.predicted.gpu}, one launch alone, predicted by a model: "
        yield alone + kernel.predicted.text
    if kernel.assembled_registers is None:
        yield "registers a thread are not known: no ptxas here takes this PTX"
    if kernel.total("tensor_cycles"):
        yield _tensor_cores(kernel)
    for note in kernel_notes(kernel):
        yield f"note: {note}"
    for finding in kernel.findings:
        yield f"finding: line {finding.line}: {finding.message}"
        yield f"  {finding.code}; {finding.hint}"


def _tensor_cores(kernel: Kernel) -> str:
    """Return how long tensor cores are busy, and with which lines."""
    cycles = kernel.total("tensor_cycles")
    lines = sorted(kernel.lines, key=lambda line: -line.tensor_cycles)[:_shown_callers]
    busy = [line for line in lines if line.tensor_cycles]
    shares = ", ".join(f"{kernel.place(line)} {line.tensor_cycles / cycles:.0%}" for line in busy)
    bound_us = microseconds(tensor_us(cycles))
    products, moved_bytes = kernel.total("tensor_products"), kernel.total("tensor_bytes")
    moved = f", {moved_bytes:,} bytes to and from tensor memory" if moved_bytes else ""
    return (
        f"{products:,} products of tensor cores{moved}; they are busy for "
        f"{short_count(cycles)} cycles, {bound_us} us if all of a B200 work: {shares}"
    )


def listing(kernel: Kernel, file: str, source: list[str], shown: Shown) -> Iterator[str]:
    """Yield the lines of a file that cost something, with the others folded. source: its lines."""
    yield f"{' '.join([' line', *_columns(kernel)])} | {file}"
    by_line = {each.line: each for each in kernel.lines if each.file == file and each.line}
    last = 0
    for number in sorted(by_line):
        line = by_line[number]
        if not line.instructions:
            continue
        if number > last + 1:
            yield _folded
        last = number
        text = source[number - 1] if number <= len(source) else ""
        yield _row(str(number), line, kernel, text, shown.columns)
        yield from _code(kernel, file, number, shown)
    if last < len(source):
        yield _folded
    yield from _elsewhere(kernel, file, shown)


def _columns(kernel: Kernel) -> dict[str, Callable[[LineCost], str]]:
    """Return cells as wide as their headings, to stand after the line number."""
    total = max(kernel.instructions, 1)
    columns: dict[str, Callable[[LineCost], str]] = {
        " share": lambda line: f"{line.instructions / total:.1%}",
        " instr": lambda line: short_count(line.instructions),
        "sectors": lambda line: short_count(line.total("sectors")) if line.total("sectors") else "",
        " req x": lambda line: _ratio(line.total("sectors"), line.total("least_sectors")),
        " bank": lambda line: _ratio(line.total("passes"), line.total("least_passes")),
        "  div.": lambda line: short_count(line.divergences) if line.divergences else "",
    }
    if any(line.us is not None for line in kernel.lines):
        columns["    us"] = lambda line: "" if line.us is None else f"{line.us:.2f}"
    return columns


def savings(kernels: list[Kernel], several: bool) -> Iterator[str]:
    """Yield the predicted time without the cost of a line, for the lines that cost most.

    If the time does not change, another limit takes the line's place.
    """
    timed = [
        (kernel, line)
        for kernel in kernels
        for line in kernel.lines
        if kernel.predicted and line.us is not None and line.without_us is not None and line.line
    ]
    for kernel, line in sorted(timed, key=lambda each: -(each[1].us or 0.0))[:_shown_savings]:
        assert kernel.predicted and kernel.predicted.us and line.without_us is not None
        of = f" of {kernel.kernel}" if several else ""
        less_us = min(kernel.predicted.us, line.without_us)
        now_us = kernel.predicted.us
        yield f"without {kernel.place(line)}{of}: {less_us:.1f} us instead of {now_us:.1f}"


def _elsewhere(kernel: Kernel, file: str, shown: Shown) -> Iterator[str]:
    """Yield the cost of other files and of instructions whose source line is unknown."""
    for line in kernel.lines:
        if line.instructions and line.file != file:
            place = f"{line.file}:{line.line}" if line.file else "(no line of the source is known)"
            yield _row("", line, kernel, place, shown.columns)
            yield from _code(kernel, line.file, line.line, shown)


def _row(number: str, line: LineCost, kernel: Kernel, text: str, columns: int) -> str:
    cells = [f"{cell(line):>{len(name)}}" for name, cell in _columns(kernel).items()]
    gutter = " ".join([f"{number:>5}", *cells])
    return _cut(f"{gutter} | ", text.expandtabs(4).rstrip(), columns)


def _code(kernel: Kernel, file: str | None, number: int | None, shown: Shown) -> Iterator[str]:
    """Yield the instructions of a line."""

    def here(codes: list[Code]) -> list[Code]:
        return [each for each in codes if (each.file, each.line) == (file, number)]

    for code in here(kernel.ptx) if shown.ptx else ():
        gutter = f"{short_count(code.count or 0):>{_code_columns}}  PTX   "
        yield _cut(gutter, code.text, shown.columns)
    for code in here(kernel.sass) if shown.sass else ():
        yield _cut(f"{'':{_code_columns}}  SASS  ", code.text, shown.columns)


def _cut(gutter: str, text: str, columns: int) -> str:
    room = max(columns - len(gutter), narrowest_source)
    return gutter + (text if len(text) <= room else f"{text[: room - 3]}...")


def _ratio(count: int, least: int) -> str:
    return f"{count / least:.2f}" if least else ""


def short_count(count: float) -> str:
    """Three digits and a unit, such as 1.84M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= 0.9995 * size:
            value = count / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    return f"{count:.0f}"


def costly_sentences(costly: list[CostlyLine], several: bool, columns: int) -> Iterator[str]:
    """Yield a numbered sentence for each line. several: kernels, so that each is named."""
    for number, each in enumerate(costly, 1):
        kernel = f" of {each.kernel.kernel}" if several else ""
        callers = ", ".join(map(str, sorted(each.line.callers)[:_shown_callers]))
        called = f" (called from {callers})" if callers else ""
        place = f"{each.kernel.place(each.line)}{called}{kernel}"
        sentence = f"{number}. {place}, {each.share:.0%} of the cost: {each.sentence}"
        yield from wrap(sentence, columns, subsequent_indent="   ")


def _extents(extents: Sequence[int]) -> str:
    while len(extents) > 1 and extents[-1] == 1:
        extents = extents[:-1]
    return " x ".join(map(str, extents))
