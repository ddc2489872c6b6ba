"""How the submissions below tests are kept: whole, or as the change of a whole one.

A case is NAME.py, or NAME.diff, which says how it differs from its base:

    # base: split_k_float_atomics
    # expect: fail cause=global_race
    \"\"\"Four CTAs add to one word without atomics.\"\"\"
    @@
    -    cute.arch.atomic_add(mW.iterator + row, acc)
    +    mW[row] = mW[row] + acc  # <- fault

What stands before the first @@ replaces the first comments and the docstring of the base. Each @@
begins a change: its lines with - and a blank must occur exactly once in the base, one after the
other, and those with + and a blank take their place. A base is another case, of the same folder or
named with its folder.

Directives are lines ``# key: value`` among the first comment lines; CONTRIBUTING.md lists the keys.
A comment ``<- WORD`` at the end of a line marks a line that a report must name.

    python tests/corpus.py OUT FOLDER ...

writes every case of some folders as a whole file below OUT.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

KEYS = {"base", "expect", "quick", "check", "limit", "family", "caught", "strategy", "needs"}


@dataclass(frozen=True)
class Submission:
    """One case. name: without an ending. source: complete, for a change as well."""

    name: str
    folder: Path
    source: str

    @property
    def directives(self) -> dict[str, str]:
        """The lines ``# key: value`` among the first comment lines. Raises ValueError."""
        return directives(self.source)

    @property
    def id(self) -> str:
        """Folder and name, as in "bounds/tail_guarded"."""
        return f"{self.folder.name}/{self.name}"

    def write(self, folder: Path) -> Path:
        """The source as NAME.py in a folder."""
        path = folder / f"{self.name}.py"
        path.write_bytes(self.source.encode("utf-8", "surrogateescape"))
        return path


def directives(source: str) -> dict[str, str]:
    """The lines ``# key: value`` among the first comment lines. ValueError: one comes twice or is
    unknown.
    """
    head = re.match(r"(#.*\n)*", source)
    assert head
    found = re.findall(r"^# (\w+): (.+)$", head[0], re.MULTILINE)
    if len(dict(found)) < len(found):
        raise ValueError(f"a directive comes twice: {found}")
    if unknown := {key for key, _ in found} - KEYS:
        raise ValueError(f"unknown directives: {', '.join(sorted(unknown))}")
    return dict(found)


def marked_lines(source: str) -> dict[int, str]:
    """Lines that end with a comment ``<- WORD``, counted from 1, and the word."""
    marks = ((i, re.search(r"(?:#|//) <- (\w+)$", text)) for i, text in enumerate(lines(source), 1))
    return {i: mark[1] for i, mark in marks if mark}


def lines(source: str) -> list[str]:
    return source.removesuffix("\n").split("\n")


def load(folder: Path) -> list[Submission]:
    """Every case of a folder, sorted by name. Raises ValueError."""
    paths = [*folder.glob("*.py"), *folder.glob("*.diff")]
    names = sorted(path.stem for path in paths if path.stem != "__init__")
    if len(set(names)) < len(names):
        raise ValueError(f"{folder}: a case is there twice")
    return [read(folder, name) for name in names]


def load_all(folder: Path) -> list[Submission]:
    """Every case of the folders in a folder. Raises ValueError."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return [case for each in folders for case in load(each)]


def read(folder: Path, name: str) -> Submission:
    """One case of a folder. Raises ValueError, FileNotFoundError."""
    whole = folder / f"{name}.py"
    if whole.is_file():
        return Submission(name, folder, whole.read_bytes().decode("utf-8", "surrogateescape"))
    text = (folder / f"{name}.diff").read_text(encoding="utf-8")
    try:
        base = directives(text)["base"]
        path = (folder.parent if "/" in base else folder) / base
        return Submission(name, folder, changed(read(path.parent, path.name).source, text))
    except (ValueError, KeyError, FileNotFoundError) as error:
        raise ValueError(f"{folder.name}/{name}.diff: {error}") from error


def changed(base: str, text: str) -> str:
    """The source that a change makes of its base. Raises ValueError."""
    head, *changes = [lines(part) for part in re.split(r"^@@\n", text, flags=re.MULTILINE)]
    start = re.match(r'(#.*\n)*"""(?s:.*?)"""\n', base)
    if not start:
        raise ValueError("the base begins with no docstring")
    source = lines(base)[start[0].count("\n") :]
    edits = sorted((_edit(source, change) for change in changes), reverse=True)
    following = len(source)
    for first, last, new in edits:
        if last > following:
            raise ValueError(f"two changes meet at {source[following]!r}")
        source[first:last], following = new, first
    head = [line for line in head if not line.startswith("# base: ")]
    return "\n".join([*head, *source]) + "\n"


def _edit(source: list[str], change: list[str]) -> tuple[int, int, list[str]]:
    """Which lines of a source a change takes out, and what it puts there."""
    if not all(line[:1] in ("", "-", "+", " ") for line in change):
        raise ValueError(f"a line begins with none of - + and a blank: {change}")
    old = [line[1:] for line in change if not line.startswith("+")]
    places = [i for i in range(len(source)) if source[i : i + len(old)] == old]
    if not old or len(places) != 1:
        raise ValueError(f"{len(places)} places in the base, must be 1: {old}")
    return places[0], places[0] + len(old), [line[1:] for line in change if line[:1] != "-"]


if __name__ == "__main__":
    for given in map(Path, sys.argv[2:]):
        out = Path(sys.argv[1], given.name)
        out.mkdir(parents=True, exist_ok=True)
        for case in load(given):
            case.write(out)
