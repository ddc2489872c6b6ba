"""Submissions to judge by the hundred: files of folders, equal ones once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.errors import SetupError


@dataclass(frozen=True)
class Candidate:
    """A content to judge. paths: the files that have it, the first stands for all. task: the bytes
    of a task.yml beside the first, which tells that a submission is another problem's.
    """

    sha256: str
    content: bytes
    task: bytes | None = None
    paths: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.paths[0].name

    def written_to(self, folder: Path) -> Path:
        """A copy of the file in a folder, as it may lie on another machine."""
        copy = folder / self.name
        copy.write_bytes(self.content)
        if self.task is not None:
            (folder / "task.yml").write_bytes(self.task)
        return copy


def find_files(names: Sequence[Path]) -> list[Path]:
    """Each file, and those of each folder that end in .py, at any depth; each once, hidden folders
    left out. Raises SetupError where there is none.
    """
    found = [path for name in names for path in (_files_of(name) if name.is_dir() else [name])]
    if not found:
        folders = ", ".join(map(str, names))
        raise SetupError(f"no file of {folders} ends in .py", "Name the folder of submissions.")
    return list(dict.fromkeys(found))


def _files_of(folder: Path) -> Iterator[Path]:
    def unreadable(error: OSError) -> NoReturn:
        message = f"cannot read {error.filename}: {error.strerror}"
        raise SetupError(message, "Name folders that can be read.", "setup.unreadable")

    for here, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in sorted(files) if name.endswith(".py"))


def read_candidates(
    paths: Sequence[Path],
) -> tuple[list[Candidate], list[tuple[Path, SetupError]]]:
    """The contents in the order of their first files, and the files that cannot be read."""
    found: dict[str, Candidate] = {}
    unreadable = []
    for path in paths:
        try:
            described, content = read_submission(path)
        except SetupError as error:
            unreadable.append((path, error))
            continue
        sha256 = described.sha256
        if sha256 not in found:
            found[sha256] = Candidate(sha256, content, _task_beside(path))
        found[sha256].paths.append(path)
    return list(found.values()), unreadable


def _task_beside(path: Path) -> bytes | None:
    try:
        return (path.resolve().parent / "task.yml").read_bytes()
    except OSError:
        return None
