"""Files of folders that a submission can write, anonymous ones, and those that are replaced whole.

A file in such a folder may be a link to a file of the user's, a pipe without a writer, or endless:
processes that are not confined read it here.
"""

import fcntl
import os
import re
import secrets
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from nvfp4.records.processes import start_session

_clearing_s = 2.0
"""Seconds to wait until a folder is deleted: a submission may fill it with a million files."""

_kilobytes = re.compile(r"^(\w+):\s+(\d+) kB", re.MULTILINE)

_to_look = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain_file(folder: Path, name: str) -> BinaryIO:
    """Open a regular file below a folder, without following any link and without waiting.

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
    """Return the start of a file in such a folder; None for a link, a pipe, or an unreadable
    file."""
    try:
        with open_plain_file(folder, name) as file:
            return file.read(most_bytes)
    except OSError:
        return None


def read_whole(path: Path, most_bytes: int) -> bytes:
    """Return a file's content; links may lead to it. Raises OSError, also for a pipe, a device or a
    larger file, and ValueError."""
    folder, name = os.path.split(os.path.realpath(path))
    with open_plain_file(Path(folder), name) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(f"it has more than {most_bytes >> 20} MiB")
    return content


def kilobytes(path: str) -> dict[str, int]:
    """Return the figures of a file of /proc, in bytes, by name."""
    with suppress(OSError), open(path) as file:
        return {name: int(value) << 10 for name, value in _kilobytes.findall(file.read())}
    return {}


def sealed_file(nbytes: int) -> BinaryIO:
    """Create a file of fixed size, so that no process that has it can use it to take more
    memory."""
    fd = os.memfd_create("nvfp4", os.MFD_ALLOW_SEALING)
    file = os.fdopen(fd, "r+b", 0)
    file.truncate(nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file


def clear(folder: Path, within_s: float = _clearing_s) -> subprocess.Popen[bytes] | None:
    """Delete a folder of any depth, whatever its contents and permissions.

    Its name is free at once. If deletion takes longer than `within_s`, the process that continues
    it is returned.
    """
    aside = folder.with_name(f"{folder.name}.cleared-{secrets.token_hex(4)}")
    try:
        os.rename(folder, aside)
    except FileNotFoundError:
        return None
    except OSError:  # a folder that this process may not change
        aside = folder
    process = start_session(["sh", "-c", 'chmod -R u+rwx "$1"; rm -rf "$1"', "sh", str(aside)])
    with suppress(subprocess.TimeoutExpired):
        process.wait(within_s)
    return process


def overwrite(path: Path, text: str) -> None:
    """Overwrite a small file that is written often; do nothing if that fails.

    The file is not emptied first: ext4 writes a file that was emptied to disk when it is closed,
    which takes milliseconds.
    """
    with suppress(OSError), open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb", 0) as file:
        file.truncate(file.write(text.encode()))


def write_whole(path: Path, text: str) -> None:
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
