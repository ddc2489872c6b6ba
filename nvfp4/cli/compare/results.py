"""The files of a comparison, what came of them, and the JSON object of it; see docs/json.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nvfp4.cli import errors as exits
from nvfp4.cli.compare.decision import (
    Comparison,
    End,
    Judged,
    Round,
    Word,
    confidence,
    in_all,
)
from nvfp4.cli.errors import json_schema
from nvfp4.cli.history.database import recorded
from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.text import one_line
from nvfp4.cli.verdict import Device, Submission, Verdict
from nvfp4.records.prediction import Prediction

names = {
    "warp_instructions_total": "warp instructions",
    "sectors_requested": "sectors requested",
    "distinct_bytes": "distinct MB",
    "bank_conflicts": "bank conflicts",
    "divergent_branches": "divergent branches",
    "b200_memory_us": "memory >= us",
    "b200_issue_us": "issue >= us",
}
"""Of an emulated call, as in docs/json.md, to what people call them."""


@dataclass(frozen=True)
class CountChange:
    """change: a share of the baseline's count, 0.01 where there is 1 % more; None where the
    baseline has none of it.
    """

    baseline: float
    file: float
    change: float | None


def count_changes(baseline: dict[str, Any], file: dict[str, Any]) -> dict[str, CountChange]:
    """Every count of `names` that both have, from the counts of two emulated calls."""
    return {
        name: CountChange(baseline[name], file[name], _share(baseline[name], file[name]))
        for name in names
        if name in baseline and name in file
    }


def _share(baseline: float, file: float) -> float | None:
    if baseline == file:
        return 0.0
    return file / baseline - 1 if baseline else None


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


@dataclass(frozen=True)
class Failed:
    """A file is wrong, or could not be judged, and nothing was compared."""

    file: File
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        return exits.unclear if self.verdict.unclear else exits.failed

    def as_json(self, files: Sequence[File]) -> dict[str, Any]:
        """files: those of the comparison."""
        return {"failed": {"file": self.file.label, "verdict": self.verdict.as_json()}}


@dataclass(frozen=True)
class Timed:
    """specs: lines of a case file, a column of the rounds' times each. comparisons: of every file
    but the first with the first.
    """

    specs: Sequence[str]
    threshold: float
    seed: int
    rounds: Sequence[Round]
    end: End
    comparisons: Sequence[Comparison]

    @property
    def word(self) -> Word:
        return in_all([each.total.word for each in self.comparisons])

    @property
    def exit_code(self) -> int:
        return {"slower": exits.failed, "unclear": exits.unclear}.get(self.word, exits.passed)

    def as_json(self, files: Sequence[File]) -> dict[str, Any]:
        """files: those of the comparison."""
        labels = [file.label for file in files]
        return {
            "verdict": self.word,
            "threshold": self.threshold,
            "confidence": confidence,
            "seed": self.seed,
            "end": self.end,
            "rounds": [
                {
                    "wave": each.wave,
                    "mean_us": dict(zip(labels, each.times_us, strict=True)),
                }
                for each in self.rounds
            ],
            "comparisons": [
                {
                    "file": label,
                    "baseline": labels[0],
                    **_plain(found.total),
                    "shapes": [
                        {"spec": spec, **_plain(each)}
                        for spec, each in zip(self.specs, found.shapes, strict=True)
                    ],
                }
                for label, found in zip(labels[1:], self.comparisons, strict=True)
            ],
        }


def _plain(judged: Judged) -> dict[str, Any]:
    change, low, high = judged.change.shares
    times = {"baseline_us": judged.baseline_us, "file_us": judged.file_us}
    return {"verdict": judged.word, "change": change, "low": low, "high": high, **times}


@dataclass(frozen=True)
class Counted:
    """specs: lines of a case file. counts: [files][specs], of the emulated calls; None of one that
    ran no kernel. unverified: of the same, why counts are what the file's own process says.
    predicted: [files], the geometric mean that a model predicts, None where it does not.
    """

    specs: Sequence[str]
    counts: Sequence[Sequence[dict[str, Any] | None]]
    unverified: Sequence[Sequence[str | None]]
    predicted: Sequence[Prediction | None]

    exit_code = exits.passed

    def predicted_word(self, file: int) -> str | None:
        """Whether a file is predicted to be faster or slower than the first; unclear where the
        intervals overlap, None without predictions."""
        one, other = self.predicted[0], self.predicted[file]
        return None if one is None or other is None else other.word_against(one)

    def changes(self, file: int, spec: int) -> dict[str, CountChange]:
        """What one file counts against the first, by name."""
        return count_changes(self.counts[0][spec] or {}, self.counts[file][spec] or {})

    def as_json(self, files: Sequence[File]) -> dict[str, Any]:
        """files: those of the comparison."""
        return {
            "counts": [
                {
                    "file": file.label,
                    "baseline": files[0].label,
                    "predicted": {
                        "baseline": _prediction(self.predicted[0]),
                        "file": _prediction(self.predicted[number]),
                        "verdict": self.predicted_word(number),
                    },
                    "shapes": [
                        {
                            "spec": spec,
                            "unverified": {
                                "baseline": self.unverified[0][index],
                                "file": self.unverified[number][index],
                            },
                            "counts": {
                                name: asdict(each)
                                for name, each in self.changes(number, index).items()
                            },
                        }
                        for index, spec in enumerate(self.specs)
                    ],
                }
                for number, file in enumerate(files)
                if number
            ]
        }


Result = Failed | Timed | Counted


def _prediction(prediction: Prediction | None) -> dict[str, Any] | None:
    return None if prediction is None else asdict(prediction)


def result_object(
    files: Sequence[File], device: Device | None, result: Result, elapsed_s: float
) -> dict[str, Any]:
    """The documented object: what does not apply is null."""
    nothing = ("verdict", "threshold", "confidence", "seed", "end", "rounds", "comparisons")
    return {
        "schema": json_schema,
        "passed": not isinstance(result, Failed),
        "files": [file.as_json() for file in files],
        "device": asdict(device) if device else None,
        "elapsed_s": elapsed_s,
        **dict.fromkeys((*nothing, "counts", "failed")),
        **result.as_json(files),
    }
