"""Ctrl-C and other signals: the first asks a command to stop, a second ends it at once."""

import os
import signal
import threading
from types import FrameType
from typing import NoReturn

signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_show_cursor = b"\x1b[?25h"
_received: signal.Signals | None = None


def listen() -> None:
    """From now on a signal raises KeyboardInterrupt in the main thread."""
    if threading.current_thread() is threading.main_thread():
        _handle_with(_stop)


def exit_code() -> int:
    """That of a command which a signal has ended: 130 for Ctrl-C."""
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
    """Leaves the judge and its folder to the janitor."""
    for fd in (1, 2):
        if os.isatty(fd):
            os.write(fd, _show_cursor)
            break
    os._exit(128 + number)
