"""Files of folders that a submission can write, anonymous ones, and those that are replaced whole.

Whatever lies in such a folder may be a link to a file of the user's, a pipe that nobody writes to,
or have no end: processes that are not confined read it here.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
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


def sealed_file(nbytes: int) -> BinaryIO:
    """A file whose size stays."""
    file = os.fdopen(os.memfd_create("nvfp4", os.MFD_ALLOW_SEALING), "r+b", 0)
    file.truncate(nbytes)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, seals)
    return file


def write_whole(path: pathlib.Path, text: str) -> None:
    """Replaces a file in one step, so that an interruption leaves the old or the new one."""
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if target.exists():
            beside.chmod(target.stat().st_mode & 0o777)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
