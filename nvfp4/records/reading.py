"""Files of folders that a submission can write, read by processes that are not confined.

Whatever lies there may be a link to a file of the user's, a pipe that nobody writes to, or have no
end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

_to_look = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain_file(folder: Path, name: str) -> BinaryIO:
    """A regular file below a folder, opened without following any link and without waiting.

    folder: a path that the submission cannot change. name: its path from there, each part of which
    the submission may have made. Raises OSError for anything else.
    """
    parts = Path(name).parts
    if not parts or os.path.isabs(name) or ".." in parts:
        raise OSError(f"{name!r} is no path below a folder")
    within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _to_look | os.O_DIRECTORY, dir_fd=within)
            os.close(within)
            within = inner
        fd = os.open(parts[-1], _to_look, dir_fd=within)
    finally:
        os.close(within)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{name!r} is no regular file")
    return os.fdopen(fd, "rb")


def read_plain_file(folder: Path, name: str, most_bytes: int) -> bytes | None:
    """The start of such a file; None for a link, a pipe, or what cannot be read."""
    try:
        with open_plain_file(folder, name) as file:
            return file.read(most_bytes)
    except OSError:
        return None
