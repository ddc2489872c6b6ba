"""#line directives for CUDA text in a Python file, with the line number of each line there.

nvcc then names the participant's own file and line, in its errors and in the PTX.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TypeAlias

CXX_IN_PYTHON = "//"
"""Separates folder and name of a Python file if its lines are C++, in which columns are counted
differently."""
SHOWN_AS = "/python-file/"
"""Stands for the folder of a Python file, so that a cached PTX fits wherever the file lies."""

Strings: TypeAlias = "str | Sequence[str] | None"
"""Sources, flags or files, as torch's functions take them."""

_LEAST_CHARACTERS = 6
"""Fewest non-space characters for a run of equal lines to count as a match."""


def texts(given: Strings) -> list[str]:
    """Return the texts in an argument of one of torch's functions."""
    return [given] if isinstance(given, (str, Path)) else [str(each) for each in given or ()]


def in_file(source: str, path: Path) -> str:
    """`with_line_directives` for a Python file; the unchanged source if it cannot be read."""
    try:
        python_text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return source
    return with_line_directives(source, python_text, path.name)


def with_line_directives(source: str, python_text: str, file_name: str) -> str:
    """Return the source with #line directives for its place in the text of a Python file.

    A source that is assembled at run time (formatted, joined, replaced) is matched line by line;
    lines that are not in the file continue the numbering of the line before.
    """
    shown = SHOWN_AS + file_name
    start = python_text.find(source)
    if start >= 0 and source:
        line = python_text.count("\n", 0, start) + 1
        return f'#line {line} "{shown}"\n{source}'
    lines = source.split("\n")
    python_lines = [each.strip() for each in python_text.split("\n")]
    matcher = SequenceMatcher(None, [each.strip() for each in lines], python_lines, False)
    jumps = {}  # from the first line of each matching run to its number in the Python file
    for ours, theirs, length in matcher.get_matching_blocks():
        if sum(len(line.strip()) for line in lines[ours : ours + length]) >= _LEAST_CHARACTERS:
            jumps[ours] = theirs + 1
    return _with_jumps(lines, jumps, shown) if jumps else source


def _with_jumps(lines: list[str], jumps: dict[int, int], shown: str) -> str:
    """Insert a #line directive before each run of lines, or at the first later place where one is
    allowed."""
    out: list[str] = []
    offset: int | None = None  # from the index of a line to its number in the Python file
    due = False
    open_until: str | None = None
    for index, line in enumerate(lines):
        if index in jumps:
            due = due or offset != jumps[index] - index
            offset = jumps[index] - index
        continued = bool(out) and index > 0 and lines[index - 1].endswith("\\")
        if due and offset is not None and open_until is None and not continued:
            out.append(f'#line {index + offset} "{shown}"')
            due = False
        out.append(line)
        open_until = _still_open(line, open_until)
    return "\n".join(out)


def _still_open(line: str, open_until: str | None) -> str | None:
    """Return the end mark of the block comment or raw string open after a line, None if none is."""
    at = 0
    while True:
        if open_until is not None:
            end = line.find(open_until, at)
            if end < 0:
                return open_until
            at, open_until = end + len(open_until), None
        comment, raw, rest = line.find("/*", at), line.find('R"', at), line.find("//", at)
        starts = [each for each in (comment, raw) if each >= 0]
        if not starts or 0 <= rest < min(starts):
            return None
        if min(starts) == comment:
            at, open_until = comment + 2, "*/"
        else:
            bracket = line.find("(", raw)
            if bracket < 0:
                return None
            at, open_until = bracket + 1, f'){line[raw + 2 : bracket]}"'
