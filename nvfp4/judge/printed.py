"""What a submission prints, for the verdict: the first lines of a case, and how many there were."""

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
    """What has come from a submission's process since the last time; see most_lines.

    stream: that of its stdout, which counts the ``lines`` and keeps the ``first`` bytes.
    """
    _wait_until_read(stream)
    first, count = stream.first.decode("utf-8", "replace"), stream.lines
    stream.first, stream.lines = b"", 0
    return shortened(first, count)


@contextmanager
def unheard(stream: Any) -> Iterator[None]:
    """What is printed meanwhile is forgotten. stream: as of `taken`."""
    _wait_until_read(stream)
    kept = stream.first, stream.lines
    yield
    _wait_until_read(stream)
    stream.first, stream.lines = kept


def shortened(text: str, count: int = 0) -> str:
    """The first lines of what was printed, and how many more there are. count: all lines, if text
    does not have them.
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
    """What was printed before an answer may still be in the pipe when the answer is here."""
    end = time.monotonic() + _longest_wait_s
    with suppress(OSError, ValueError):
        while time.monotonic() < end:
            waiting = fcntl.ioctl(stream._stream.fileno(), termios.FIONREAD, b"\0" * 4)
            if not struct.unpack("i", waiting)[0]:
                break
            time.sleep(0.001)
