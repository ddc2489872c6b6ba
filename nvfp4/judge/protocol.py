"""The bot's protocol: requests to a judge, and the form of its results."""

import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from nvfp4.records.base import Record
from nvfp4.records.options import Options


class Exit(IntEnum):
    """Exit codes of eval.py."""

    PASSED = 0
    USAGE = 2
    CUDA_ERROR = 110
    NO_PIPE = 111
    CHECK_FAILED = 112
    BAD_CASE_FILE = 113
    TIMED_OUT = 114


_TEXTS = (".error", ".message", ".output", ".unverified")
"""The ends of keys of texts; other values are JSON, words and numbers."""

streamed_bytes = sys.maxsize
"""The capacity of a pipe that is read while the judge runs: unlimited."""


class PipeLost(Exception):
    """The reader of the results has gone."""


class ResultPipe:
    """Writes ``key: value`` lines to the bot's pipe. Methods raise PipeLost.

    The bot reads the pipe only when the judge has ended: what does not fit into its 64 KiB would
    block for ever. Long values are cut. Lines that a verdict depends on are essential: no other
    line takes their room. The names of dropped fields are written.
    """

    capacity_bytes = 60 << 10
    longest_value_bytes = 2000

    def __init__(self, fd: int, capacity_bytes: int = capacity_bytes) -> None:
        """capacity_bytes: larger if the pipe is read meanwhile. Raises OSError if ``fd`` cannot be
        written to."""
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "the descriptor is open for reading only")
        self._file = os.fdopen(fd, "wb", buffering=0)
        self._capacity_bytes = capacity_bytes
        self._written_bytes = 0
        self._cases_left, self._case_bytes = 0, 0

    def reserve(self, cases: int, case_bytes: int) -> None:
        """Reserve room for the essential lines of ``cases`` cases, until each is complete."""
        self._cases_left, self._case_bytes = cases, case_bytes

    def write(
        self, key: str, value: object, longest_bytes: int | None = None, essential: bool = False
    ) -> bool:
        """Write a line, in which line breaks become a literal backslash-n, and the backslashes of
        texts two. Returns whether there was room."""
        limit = self.longest_value_bytes if longest_bytes is None else longest_bytes
        text = str(value).replace("\\", "\\\\") if key.endswith(_TEXTS) else str(value)
        encoded = escape(text).encode("utf-8", "replace")
        if len(encoded) > limit:
            cut = encoded[: limit - 20].decode("utf-8", "ignore")
            encoded = f"{cut} ... (cut)".encode()
        name = escape(key).replace(":", "_").encode("utf-8", "replace")
        line = name + b": " + encoded + b"\n"
        reserved_bytes = 0 if essential else self._cases_left * self._case_bytes
        if self._written_bytes + len(line) > self._capacity_bytes - reserved_bytes:
            return False
        self._put(line)
        return True

    def complete(self, key: str) -> None:
        """Note that everything about a key, such as ``test.0``, is written."""
        self.write(f"{key}.complete", "true", essential=True)
        self._cases_left = max(0, self._cases_left - 1)

    def verdict(self, passed: bool) -> None:
        """Write the closing line, for which there is always room."""
        self._put(b"check: pass\n" if passed else b"check: fail\n")

    def _put(self, line: bytes) -> None:
        # In two parts where a page of the pipe ends: Linux begins a page for a write that does not
        # fit into the last one, so that long lines would fill the pipe at half its size.
        room = mmap.PAGESIZE - self._written_bytes % mmap.PAGESIZE
        try:
            for part in filter(None, (line[:room], line[room:])):
                self._file.write(part)
        except OSError as error:
            raise PipeLost(error.strerror) from error
        self._written_bytes += len(line)


def escape(text: str) -> str:
    r"""Return a text with ``\n`` for every kind of line break; backslashes stay."""
    return "\\n".join(text.splitlines())


class SetupError(Exception):
    """The judge cannot start."""

    def __init__(self, message: str, end: Exit) -> None:
        super().__init__(message)
        self.end = end


class Request(Record):
    """A request to the judge."""

    mode: str
    arguments: Sequence[str]
    options: Options
    secret_seed: int | None
    pipe: ResultPipe
    """Takes the results."""
    deadline: float
    """On the monotonic clock, in seconds."""
    submission: Path = Path("submission.py")
    """Path of the file."""
