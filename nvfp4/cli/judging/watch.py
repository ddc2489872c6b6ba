"""Runs a command again whenever a file changes."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import click
from watchfiles import watch

from nvfp4.cli import errors as exits
from nvfp4.cli.errors import SetupError
from nvfp4.cli.text import visible

interrupted_exit = 130
debounce_ms = 150
"""Milliseconds to wait for more changes, as an editor writes a file in several steps."""

look_ms = 1000
"""Milliseconds between two looks at the file, where the system does not report changes."""


def repeatedly(judge: Callable[[], int], path: Path) -> int:
    """Judges, and again after each change of the file's contents, until Ctrl-C. Returns the last
    exit code, 130 if Ctrl-C came in the middle. Raises SetupError where the file's folder cannot be
    watched.

    The folder is watched, not the file: an editor may put a new file in its place.
    """
    code = interrupted_exit
    folders = {path.parent, path.resolve().parent}  # a link may be turned, or its target changed
    try:
        seen = _digest(path)
        code = _attempt(judge)
        _say_waiting(path)
        for _ in watch(
            *folders,
            watch_filter=None,
            debounce=debounce_ms,
            recursive=False,
            rust_timeout=look_ms,
            yield_on_timeout=True,
        ):
            digest = _digest(path)
            if digest is None or digest == seen:  # gone for a moment, or another file's change
                continue
            seen, code = digest, interrupted_exit
            click.echo(visible(f"\n{time.strftime('%H:%M:%S')} {path} has changed"), err=True)
            code = _attempt(judge)
            _say_waiting(path)
    except KeyboardInterrupt:
        click.echo(err=True)
    except OSError as error:
        raise SetupError(
            f"cannot watch {path.parent}: {error}", "Name a file in a folder that exists."
        ) from error
    return code


def _attempt(judge: Callable[[], int]) -> int:
    """Judge once; print a SetupError, which the user may correct, and return its exit code."""
    try:
        return judge()
    except SetupError as error:
        click.echo(visible(f"error: {error}\nhint: {error.hint}"), err=True)
        return exits.setup


def _say_waiting(path: Path) -> None:
    click.echo(visible(f"waiting for {path} to change; Ctrl-C ends"), err=True)


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else None
    except OSError:
        return None
