"""What a kernel did that the manual forbids and hardware tolerates, as the judge reports it."""

from collections.abc import Iterable
from dataclasses import dataclass

from nvfp4.records.failures import Finding, Place


def who(place: Place) -> str:
    """``, by CTA (0, 1, 0), thread (33, 0, 0)``; empty where it is not known."""
    if place.cta is None or place.thread is None:
        return ""
    return f", by CTA {tuple(place.cta)}, thread {tuple(place.thread)}"


@dataclass
class Summary:
    """One finding over all cases. cases: how many have it. count: of all of them."""

    finding: Finding
    cases: int
    count: int

    @property
    def place(self) -> str:
        """``submission.py:57``, or the kernel where no line is known."""
        found = self.finding
        if found.file and found.line:
            return f"{found.file}:{found.line}"
        return f"kernel {found.kernel}" if found.kernel else "the output"


def summarise(cases: Iterable[list[Finding]]) -> list[Summary]:
    """Each finding once: findings are the same if code, kernel and line are."""
    seen: dict[tuple[object, ...], Summary] = {}
    for findings in cases:
        for finding in findings:
            same: tuple[object, ...] = (finding.code, finding.kernel, finding.file, finding.line)
            if finding.line is None:
                same = (*same, finding.message.partition(":")[0])
            summary = seen.setdefault(same, Summary(finding, 0, 0))
            summary.cases += 1
            summary.count += finding.count or 1
    return list(seen.values())
