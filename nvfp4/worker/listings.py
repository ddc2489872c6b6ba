"""The PTX of emulated kernels, taken from the submission's process to where the user wants it."""

import contextlib
import os
import stat
from pathlib import Path

longest_bytes = 8 << 20
"""Of a listing. They come from a folder that the submission can write to."""

most_files = 200


def take_listings(source: Path, target: Path) -> None:
    """Copies ``source/CALL/FILE.ptx`` to the same place below ``target``; plain files alone."""
    for path in sorted(source.glob("*/*.ptx"))[:most_files]:
        content = read_plain_file(path)
        if content is not None:
            folder = target / path.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / path.name).write_bytes(content)


def read_plain_file(path: Path) -> bytes | None:
    """The start of a plain file; None for a link, a pipe, or what cannot be read."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return file.read(longest_bytes)
    return None
