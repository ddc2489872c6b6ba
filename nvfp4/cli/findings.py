"""What a kernel did that the manual forbids and hardware tolerates, as the judge reports it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nvfp4.cli.text import visible_json

_texts = ("code", "message", "kernel", "file", "hint", "rule")
_most_places = 4
_largest = 2**53


def read_findings(text: str | None) -> list[dict[str, Any]]:
    """The findings of a case; what is not one is left out."""
    try:
        found = visible_json(text) if text else []
    except (ValueError, RecursionError):
        return []
    listed = found if isinstance(found, list) else []
    return [
        {**each, "related": read_places(each.get("related"))}
        for each in listed
        if _is_finding(each)
    ]


def read_places(value: object) -> list[dict[str, Any]]:
    """Other places that belong to a finding or a failure: message, file, line, ptx_line, cta and
    thread, None where something is not known or not of its type."""
    places = value[:_most_places] if isinstance(value, list) else []
    return [
        {
            **{name: _typed(each.get(name), str) for name in ("message", "file")},
            **{name: _typed(each.get(name), int) for name in ("line", "ptx_line")},
            **{name: _triple(each.get(name)) for name in ("cta", "thread")},
        }
        for each in places
        if isinstance(each, dict)
    ]


def _typed(value: object, wanted: type) -> Any:
    fits = type(value) is wanted and (not isinstance(value, int) or 0 <= value < _largest)
    return value if fits else None


def _triple(value: object) -> list[int] | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    return value if all(_typed(each, int) is not None for each in value) else None


def _is_finding(value: object) -> bool:
    if not isinstance(value, dict) or not value.get("code") or not value.get("message"):
        return False
    texts = all(isinstance(value.get(name), (str, type(None))) for name in _texts)
    return texts and all(
        isinstance(value.get(name), (int, type(None))) for name in ("line", "count")
    )


def who(place: dict[str, Any]) -> str:
    """``, by CTA (0, 1, 0), thread (33, 0, 0)``; empty where it is not known."""
    if place.get("cta") is None or place.get("thread") is None:
        return ""
    return f", by CTA {tuple(place['cta'])}, thread {tuple(place['thread'])}"


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
