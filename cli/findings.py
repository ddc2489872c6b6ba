"""What a kernel did that the manual forbids and hardware tolerates, as the judge reports it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nvfp4.cli.text import visible_json

_texts = ("code", "message", "kernel", "file", "hint")


def read_findings(text: str | None) -> list[dict[str, Any]]:
    """The findings of a case; what is not one is left out."""
    try:
        found = visible_json(text) if text else []
    except (ValueError, RecursionError):
        return []
    return [each for each in found if _is_finding(each)] if isinstance(found, list) else []


def _is_finding(value: object) -> bool:
    if not isinstance(value, dict) or not value.get("code") or not value.get("message"):
        return False
    texts = all(isinstance(value.get(name), (str, type(None))) for name in _texts)
    return texts and all(
        isinstance(value.get(name), (int, type(None))) for name in ("line", "count")
    )


@dataclass
class Summary:
    """One finding over all cases. cases: how many have it. count: of all of them."""

    finding: dict[str, Any]
    cases: int
    count: int

    @property
    def place(self) -> str:
        """``submission.py:57``, or the kernel where no line is known."""
        file, line = self.finding.get("file"), self.finding.get("line")
        if file and line:
            return f"{file}:{line}"
        return f"kernel {self.finding['kernel']}" if self.finding.get("kernel") else "the output"


def summarise(cases: Iterable[list[dict[str, Any]]]) -> list[Summary]:
    """Each finding once: findings are the same if code, kernel and line are."""
    seen: dict[tuple[object, ...], Summary] = {}
    for findings in cases:
        for finding in findings:
            names = ("code", "kernel", "file", "line")
            same = tuple(finding.get(name) for name in names)
            if finding.get("line") is None:
                same = (*same, finding["message"].partition(":")[0])
            summary = seen.setdefault(same, Summary(finding, 0, 0))
            summary.cases += 1
            summary.count += finding.get("count") or 1
    return list(seen.values())
