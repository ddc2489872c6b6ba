"""What came of a comparison, and the JSON object it becomes; see docs/json.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nvfp4.cli import errors as exits
from nvfp4.cli.compare.counts import CountChange, count_changes
from nvfp4.cli.compare.decision import (
    Comparison,
    Judged,
    Word,
    confidence,
    in_all,
)
from nvfp4.cli.compare.files import File
from nvfp4.cli.compare.rounds import End, Round
from nvfp4.cli.errors import json_schema
from nvfp4.cli.verdict import Device, Verdict


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
    """

    specs: Sequence[str]
    counts: Sequence[Sequence[dict[str, Any] | None]]
    unverified: Sequence[Sequence[str | None]] = ()

    exit_code = exits.passed

    def changes(self, file: int, spec: int) -> dict[str, CountChange]:
        """What one file counts against the first, by name."""
        return count_changes(self.counts[0][spec] or {}, self.counts[file][spec] or {})

    def mark(self, file: int, spec: int) -> str | None:
        """Why the counts of a file are unverified; None where they are the judge's."""
        return self.unverified[file][spec] if self.unverified else None

    def as_json(self, files: Sequence[File]) -> dict[str, Any]:
        """files: those of the comparison."""
        return {
            "counts": [
                {
                    "file": file.label,
                    "baseline": files[0].label,
                    "shapes": [
                        {
                            "spec": spec,
                            "unverified": {
                                "baseline": self.mark(0, index),
                                "file": self.mark(number, index),
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
