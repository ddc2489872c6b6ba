"""Output of text: to a terminal of a certain width, or to a file or pipe, where lines are not
wrapped."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import NoReturn

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from nvfp4.cli.text import visible
from nvfp4.records.base import Record


class Output(Console):
    """A console that raises BrokenPipeError when its output is closed, to end the command, and
    shows control characters as escapes, also those in names and messages."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Called by rich for all that is printed."""
        for each in super().render(renderable, options):
            yield each if each.control else each._replace(text=visible(each.text))

    def on_broken_pipe(self) -> NoReturn:
        """Called by rich when a write has failed."""
        raise BrokenPipeError


def new_console(stderr: bool = False) -> Console:
    """Return a console on stdout or stderr. FORCE_COLOR brings colours, but no pipe becomes a
    terminal."""
    stream = sys.stderr if stderr else sys.stdout
    on_terminal = stream is not None and stream.isatty()
    return Output(stderr=stderr, highlight=False, force_interactive=None if on_terminal else False)


def say(console: Console, text: Text | str = "", style: str = "") -> None:
    """Prints text as it is, not as markup. On a terminal it is wrapped between words, and indented
    lines stay indented."""
    line = Text(text, style=style) if isinstance(text, str) else text
    indent = len(line.plain) - len(line.plain.lstrip(" "))
    if console.is_interactive and line.cell_len > console.width > 4 * indent > 0:
        console.print(Padding(line[indent:], (0, 0, 0, indent), expand=False))
    else:
        console.print(line, soft_wrap=not console.is_interactive)


_gap = 2
_widest_prose = 100
_nothing = ("", "-")


class Column(Record, eq=False):
    """A column of a table."""

    heading: str
    cells: Sequence[Text | str]
    """The cells of the column, one for each row."""
    rank: int = 0
    """0 for a column that is always shown; otherwise columns with the highest rank are dropped
    first."""
    right: bool = True
    """Whether cells are aligned to the right."""
    note: str = ""
    """The meaning of the column, for the legend."""

    @property
    def texts(self) -> list[Text]:
        """The cells as text."""
        return [Text(cell) if isinstance(cell, str) else cell for cell in self.cells]

    @property
    def width(self) -> int:
        """The width of the widest cell or line of the heading."""
        headings = [cell_len(line) for line in self.heading.split("\n")]
        return max(*headings, *(text.cell_len for text in self.texts), 0)

    @property
    def empty(self) -> bool:
        """Whether no row has a value."""
        return all(text.plain in _nothing for text in self.texts)


def fitted(columns: Sequence[Column], width: int | None) -> list[Column]:
    """Return the columns to show on a screen of a width; None: no limit. Empty ones go."""
    shown = [each for each in columns if not each.rank or not each.empty]
    while width is not None and _width(shown) > width:
        last = max(shown, key=lambda each: each.rank)
        if not last.rank:
            break
        shown.remove(last)
    return shown


def table(columns: Sequence[Column], width: int | None, rule: str = "─") -> list[Text]:
    """Return the lines of a table of these columns, all of which are shown; where they do not fit,
    a row becomes several lines.
    """
    if width is not None and _width(columns) > width:
        first, *others = columns
        stacked = []
        for index, name in enumerate(first.texts):
            stacked.append(name)
            for column in others:
                cell = column.texts[index]
                if cell.plain not in _nothing:
                    stacked.append(Text.assemble(f"  {_one_line(column)}: ", cell))
        return stacked
    headings = [each.heading.split("\n") for each in columns]
    height = max(len(lines) for lines in headings)
    rows = [
        [Text(([""] * (height - len(lines)) + lines)[index], style="bold") for lines in headings]
        for index in range(height)
    ]
    lines = [_row(columns, row) for row in rows]
    lines.append(Text(rule * _width(columns), style="dim"))
    cells = zip(*(each.texts for each in columns), strict=True)
    return lines + [_row(columns, row) for row in cells]


def legend(columns: Sequence[Column], width: int | None) -> str:
    """Return the notes of the columns: prose on a terminal, else a line for each; empty without
    notes."""
    noted = [f"{_one_line(each)}: {each.note}" for each in columns if each.note]
    if width is None:
        return "\n".join(noted)
    return textwrap.fill("; ".join(noted), min(width, _widest_prose))


def show_table(console: Console, heading: str, columns: Sequence[Column]) -> None:
    """Shows a table that fits the screen, with its heading above and its legend below."""
    width = console.width if console.is_interactive else None  # in a file lines may have any
    shown = fitted(columns, width)
    say(console, heading, "bold")
    for line in table(shown, width, "-" if console.options.ascii_only else "─"):
        say(console, line)
    said = legend(shown, width)
    if said:
        say(console)
        say(console, said, "dim")


def _width(columns: Sequence[Column]) -> int:
    return sum(each.width for each in columns) + _gap * (len(columns) - 1)


def _row(columns: Sequence[Column], cells: Sequence[Text]) -> Text:
    line = Text()
    for column, cell in zip(columns, cells, strict=True):
        padding = " " * (column.width - cell.cell_len)
        line.append("" if column is columns[0] else " " * _gap)
        line.append(padding if column.right else "").append_text(cell)
        line.append("" if column.right else padding)
    line.rstrip()
    return line


def _one_line(column: Column) -> str:
    return column.heading.replace("\n", " ")
