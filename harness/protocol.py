"""The bot's protocol: exit codes and the pipe that takes the results."""

import errno
import fcntl
import mmap
import os
from enum import IntEnum


class Exit(IntEnum):
    """How eval.py ends; the numbers are the bot's."""

    PASSED = 0
    USAGE = 2
    CUDA_ERROR = 110
    NO_PIPE = 111
    CHECK_FAILED = 112
    BAD_CASE_FILE = 113
    TIMED_OUT = 114


class PipeLost(Exception):
    """The results cannot be written any more: nobody reads them, or there is no room."""


class ResultPipe:
    """Writes ``key: value`` lines to the bot's pipe.

    The bot reads the pipe only when the process has ended, so everything must fit into the pipe's
    64 KiB or the judge would block forever. Long values are cut; when nearly nothing is left, a
    line is dropped and ``truncated: true`` says so.
    """

    capacity_bytes = 60 << 10
    reserve_bytes = 256
    longest_value_bytes = 2000

    def __init__(self, fd: int) -> None:
        """fd: an open file descriptor to write to. Raises OSError where it is not."""
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "the descriptor is open for reading only")
        self._file = os.fdopen(fd, "wb", buffering=0)
        self._written_bytes = 0
        self._truncated = False

    def write(self, key: str, value: object, longest_bytes: int | None = None) -> None:
        """One line; line breaks become a literal backslash-n. Raises PipeLost."""
        limit = self.longest_value_bytes if longest_bytes is None else longest_bytes
        text = escape(str(value))
        encoded = text.encode("utf-8", "replace")
        if len(encoded) > limit:
            cut = encoded[: limit - 20].decode("utf-8", "ignore")
            encoded = f"{cut} ... (cut)".encode()
        name = escape(key).replace(":", "_").encode("utf-8", "replace")
        line = name + b": " + encoded + b"\n"
        if self._written_bytes + len(line) > self.capacity_bytes:
            if not self._truncated:
                self._truncated = True
                self._put(b"truncated: true\n")
            return
        self._put(line)

    def complete(self, key: str) -> None:
        """Says that everything about a key, such as ``test.0``, is written. Raises PipeLost."""
        self.write(f"{key}.complete", "true")

    def verdict(self, passed: bool) -> None:
        """The closing line ``check: pass`` or ``check: fail``; room for it is always kept.

        Raises PipeLost.
        """
        self._put(b"check: pass\n" if passed else b"check: fail\n")

    def _put(self, line: bytes) -> None:
        """Writes a line in two parts where a page of the pipe ends.

        Linux adds a write to a pipe's last page only where it fits whole and begins a page
        otherwise: lines of a little more than half a page would fill the pipe at half its size.
        """
        room = mmap.PAGESIZE - self._written_bytes % mmap.PAGESIZE
        try:
            for part in (line[:room], line[room:]):
                if part:
                    self._file.write(part)
        except OSError as error:
            raise PipeLost(error.strerror) from error
        self._written_bytes += len(line)


def escape(text: str) -> str:
    r"""Text on one line: backslashes stay, every kind of line break becomes a literal ``\n``."""
    return "\\n".join(text.splitlines())
