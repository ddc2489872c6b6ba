"""A verdict in the formats that programs read, a module each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from nvfp4.cli.verdict import Verdict

_modules = {
    "text": "plain_text",
    "json": "json_object",
    "junit": "junit",
    "github": "github",
    "markdown": "markdown",
    "csv": "rows",
}

_endings = {".json": "json", ".xml": "junit", ".md": "markdown", ".csv": "csv", ".txt": "text"}


def format_of(file: Path, chosen: str | None) -> str:
    """The format of a file: the chosen one, else that of its ending, else JSON."""
    return chosen or _endings.get(file.suffix.lower(), "json")


def formatted(verdict: Verdict, name: str) -> str:
    """A verdict in a format of ``_modules``, without a line break at its end."""
    write: Callable[[Verdict], str] = import_module(f"{__name__}.{_modules[name]}").write
    return write(verdict).rstrip("\n")
