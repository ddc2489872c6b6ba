"""Writes a submission to start from."""

from __future__ import annotations

from pathlib import Path

from nvfp4.cli.errors import SetupError
from nvfp4.cli.ladder.results import rung_text

templates = Path(__file__).with_name("templates")
suffix = ".py.txt"
"""The templates are text here: this package imports no library of kernels."""


def write_template(kind: str, output: Path, force: bool) -> None:
    """kind: torch, cute, cuda or triton. force: whether a file may be overwritten. Raises
    SetupError."""
    _write((templates / f"{kind}{suffix}").read_text(encoding="utf-8"), output, force)


def write_rung(name: str, output: Path, force: bool) -> None:
    """Copies a rung of the ladder. Raises SetupError, as `write_template` does."""
    _write(rung_text(name), output, force)


def _write(text: str, output: Path, force: bool) -> None:
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SetupError(f"{output} exists", "Name another with -o, or add --force.") from None
    except OSError as error:
        raise SetupError(
            f"cannot write {output}: {error.strerror}", "Name a file in a folder that exists."
        ) from error
