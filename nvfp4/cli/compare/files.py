"""The files of a comparison, each read once, from the disk or from the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvfp4.cli.history.database import recorded
from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.text import one_line
from nvfp4.cli.verdict import Submission

most_files = 26


@dataclass(frozen=True)
class File:
    """label: A for the first, which is the baseline. id: of the judgement it comes from, None for
    a file. same_as: the label of the first file with equal contents, None where there is none.
    """

    label: str
    submission: Submission
    content: bytes
    id: int | None = None
    same_as: str | None = None

    @property
    def path(self) -> Path:
        return Path(self.submission.path)

    @property
    def name(self) -> str:
        """Label and path."""
        return f"{self.label} ({one_line(self.submission.path)})"

    @property
    def line(self) -> str:
        """Which file it is, in words."""
        kept = "" if self.id is None else f", judgement {self.id}"
        same = "" if self.same_as is None else f", equal to {self.same_as}, byte for byte"
        return f"{self.label}  {one_line(self.submission.path)}{kept}{same}"

    def as_json(self) -> dict[str, Any]:
        """See docs/json.md."""
        own = {"label": self.label, "id": self.id, "same_as": self.same_as}
        return {**own, **vars(self.submission)}


def read_files(named: Sequence[str]) -> list[File]:
    """Reads files and judgements by number. Raises SetupError."""
    files: list[File] = []
    for index, name in enumerate(named):
        record = recorded(name)
        if record is None:
            submission, content = read_submission(Path(name))
        else:
            submission, content = Submission(record.path, record.sha256), record.content
        same = next((each.label for each in files if each.content == content), None)
        label = chr(ord("A") + index)
        files.append(File(label, submission, content, record.id if record else None, same))
    return files
