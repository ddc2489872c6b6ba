"""Runs a command again whenever a file changes."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import click

from nvfp4.cli import errors as exits
from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import read_file
from nvfp4.cli.text import visible

interrupted_exit = 130

look_s = 0.2
"""Seconds between two looks at the file."""


def repeatedly(judge: Callable[[], int], path: Path) -> int:
    """Judge, and again after each change of the file's contents, until Ctrl-C. Return the last exit
    code, 130 if Ctrl-C came in the middle, or the code of another signal that ends it."""
    code, seen = interrupted_exit, _digest(path)
    try:
        while True:
            code = _attempt(judge)
            if code == exits.interrupted():
                return code
            click.echo(visible(f"waiting for {path} to change; Ctrl-C ends"), err=True)
            seen = _changed(path, seen)
            code = interrupted_exit
            click.echo(visible(f"\n{time.strftime('%H:%M:%S')} {path} has changed"), err=True)
    except KeyboardInterrupt:
        click.echo(err=True)
    return code if exits.interrupted() == interrupted_exit else exits.interrupted()


def _changed(path: Path, seen: bytes | None) -> bytes:
    """Wait for other contents, which two looks find the same: an editor may write a file in several
    steps, and remove it for a moment."""
    last = seen
    while True:
        time.sleep(look_s)
        digest = _digest(path)
        if digest is not None and digest == last and digest != seen:
            return digest
        last = digest


def _attempt(judge: Callable[[], int]) -> int:
    """Judge once; print a SetupError, which the user may correct, and return its exit code."""
    try:
        return judge()
    except SetupError as error:
        click.echo(visible(f"error: {error}\nhint: {error.hint}"), err=True)
        return exits.setup


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(read_file(path)).digest()
    except (OSError, ValueError):
        return None
