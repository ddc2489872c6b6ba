"""Errors that keep a command from judging, and how commands end: exit codes and signals."""

import errno
import json
import os
import signal
import threading
from types import FrameType
from typing import Any, NoReturn

import click

from nvfp4.cli.text import visible

json_schema = 4
"""Version of the JSON object; docs/verdict.schema.json describes it."""


class SetupError(Exception):
    """Nothing was judged: the message says why, ``hint`` what to do about it.

    code: for programs, see docs/codes.md.
    """

    code = "setup"

    def __init__(self, message: str, hint: str, code: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code or self.code


no_room = SetupError("no room in the folder for temporary files", "TMPDIR names another one.")

no_room_codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

passed, failed, setup = 0, 1, 2
"""Exit codes; setup: nothing could be judged."""

unclear = 3
"""No fault was found, but not everything could be judged. For nvfp4 compare: it is unclear which
file is faster, and failed also means slower."""

unread = 141
"""Exit code if the output's reader is gone: the one that shells report for a broken pipe."""


def error_object(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    """Return the documented JSON object for a command that judged nothing."""
    return {"schema": json_schema, "error": {"code": code, "message": message, "hint": hint}}


def print_error(error: SetupError | click.UsageError, as_json: bool) -> None:
    """The documented object on stdout, or a sentence on stderr. Raises a wrong usage again, which
    click shows, unless it is to be JSON.
    """
    if not as_json:
        if isinstance(error, click.UsageError):
            raise error
        # Both may name files, and quote what others have written.
        sentence, hint = (visible(each.replace("\n", " ")) for each in (str(error), error.hint))
        click.echo(f"error: {sentence}\nhint: {hint}", err=True)
        return
    if isinstance(error, click.UsageError):
        content = error_object("usage", error.format_message())
    else:
        content = error_object(error.code, str(error), error.hint)
    click.echo(json.dumps(content, indent=2))


signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_show_cursor = b"\x1b[?25h"
_received: signal.Signals | None = None


def listen() -> None:
    """Make signals raise KeyboardInterrupt in the main thread from now on, and keep the exit codes
    of children, which are lost where a parent has let this process ignore SIGCHLD."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _handle_with(_stop)


def interrupted() -> int:
    """Return the exit code of a command that a signal has ended: 130 for Ctrl-C."""
    return 128 + (_received or signal.SIGINT)


def _handle_with(handler: "signal._HANDLER") -> None:
    for number in signals:
        signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    global _received
    _received = signal.Signals(number)
    _handle_with(_end)
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End at once, at a second signal; the janitor ends the judge and removes its folder."""
    for fd in (1, 2):
        if os.isatty(fd):
            os.write(fd, _show_cursor)
            break
    os._exit(128 + number)
