"""The PTX of emulated kernels, taken from the submission's process to where the user wants it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from nvfp4.records.reading import read_plain_file

longest_bytes = 8 << 20
"""Of a listing. They come from a folder that the submission can write to."""

most_files = 200


def take_listings(source: Path, target: Path) -> None:
    """Copies ``source/CALL/FILE.ptx`` to the same place below ``target``; plain files alone.

    source: a folder that the submission may have replaced, in one that it cannot.
    """
    for name in sorted(islice(_listings(source), most_files)):
        content = read_plain_file(source.parent, f"{source.name}/{name}", longest_bytes)
        if content is not None:
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _listings(source: Path) -> Iterator[str]:
    """The names ``CALL/FILE.ptx``, as the folders tell them."""
    for call in _folders(source):
        with suppress(OSError), os.scandir(source / call) as files:
            yield from (f"{call}/{file.name}" for file in files if file.name.endswith(".ptx"))


def _folders(source: Path) -> list[str]:
    """Those in a folder that is no link."""
    if source.is_symlink():
        return []
    with suppress(OSError), os.scandir(source) as calls:
        folders = (call.name for call in calls if call.is_dir(follow_symlinks=False))
        return sorted(islice(folders, most_files))
    return []
