"""What a submission's process says that it is busy with.

It writes a word to a file in its folder, which the submission can write to as well: nothing but a
known word is believed, and nothing but the display depends on it.
"""

import contextlib
import os
from pathlib import Path

from nvfp4.records.reading import open_plain_file

words = ("importing", "compiling", "emulating", "running")

_folders, _name = "nvfp4-*", "activity"
_longest_bytes = 20


def read_activity(folder: Path) -> str | None:
    """The word that was written last in any of the judge's folders below this one."""
    newest: tuple[int, str | None] = (0, None)
    for path in folder.glob(_folders):
        with contextlib.suppress(OSError):
            newest = max(newest, _read(path), key=lambda found: found[0])
    return newest[1]


def _read(folder: Path) -> tuple[int, str | None]:
    """When it was written, in ns, and the word; 0 for any other. Raises OSError."""
    with open_plain_file(folder, _name) as file:
        word = file.read(_longest_bytes).decode("ascii", "replace").strip()
        return (os.fstat(file.fileno()).st_mtime_ns, word) if word in words else (0, None)
