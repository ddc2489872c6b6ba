"""A submission's printed text, for the verdict: the first lines of a case, and their number."""

import fcntl
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

most_lines = 20
_longest_line = 200
_longest_wait_s = 0.2


def taken(stream: Any) -> str:
    """Return the text that a process has printed since the last call, cut to most_lines.

    stream: its stdout, which counts the ``lines`` and keeps the ``first`` bytes.
    """
    _wait_until_read(stream)
    first, count = stream.first.decode("utf-8", "replace"), stream.lines
    stream.first, stream.lines = b"", 0
    return shortened(first, count)


@contextmanager
def unheard(stream: Any) -> Iterator[None]:
    """Discard text that is printed inside the block. stream: see `taken`."""
    _wait_until_read(stream)
    kept = stream.first, stream.lines
    yield
    _wait_until_read(stream)
    stream.first, stream.lines = kept


def shortened(text: str, count: int = 0) -> str:
    """Return the first lines of what was printed, and how many more there are. count: all lines,
    if text does not have them.
    """
    lines = text.splitlines()
    shown = [_cut(line) for line in lines[:most_lines]]
    more = max(count, len(lines)) - len(shown)
    if more > 0:
        shown.append(f"... and {more:,} more lines")
    return "\n".join(shown).rstrip()


def _cut(line: str) -> str:
    left = len(line) - _longest_line
    return line if left <= 0 else f"{line[:_longest_line]} ... and {left:,} more characters"


def _wait_until_read(stream: Any) -> None:
    """Wait at most `_longest_wait_s` until the pipe is empty: text may arrive after an answer."""
    end = time.monotonic() + _longest_wait_s
    with suppress(OSError, ValueError):
        while time.monotonic() < end:
            waiting = fcntl.ioctl(stream._stream.fileno(), termios.FIONREAD, b"\0" * 4)
            if not struct.unpack("i", waiting)[0]:
                break
            time.sleep(0.001)
