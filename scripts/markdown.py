"""Markdown tables, as the pages that scripts write have them."""

from collections.abc import Iterable, Sequence


def line_of(text: str | None) -> str:
    """A docstring or a message on one line."""
    return " ".join((text or "").split())


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; ends without a line break."""
    marks = "|" + "---|" * len(headings)
    return "\n".join([_row(headings), marks, *(_row(row) for row in rows)])


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(line_of(str(cell)).replace('|', chr(92) + '|') for cell in cells)} |"
