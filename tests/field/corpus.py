"""The corpus of submissions in this folder and what a judge should say to each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
FAULT_MARKER = "# <- fault"

CAUSES = frozenset(
    {
        "deadlock",
        "endless",
        "exception",
        "global_race",
        "launch",
        "misaligned",
        "mismatch",
        "out_of_bounds",
        "shared_race",
        "trap",
        "unset_register",
        "unwritten_global",
        "unwritten_output",
        "unwritten_shared",
    }
)
"""Why a submission fails."""

FINDINGS = frozenset(
    {
        "autotune",
        "global_race",
        "missing_fence",
        "proxy_fence",
        "read_only_load",
        "shared_race",
        "unjoined_stream",
        "unset_register",
        "unwaited_store",
        "unwritten_shared",
        "warp_sync",
    }
)
"""What a submission may pass with."""

WHERE = frozenset({"any", "batches", "full_range", "k_blocks", "one_batch", "second_call"})
"""The cases a fault shows on; README.md says what each means."""


@dataclass(frozen=True)
class Expectation:
    """What a judge should say to one submission.

    verdict: "pass" or "fail".
    causes: for a fail, the causes that are right answers; one of CAUSES each.
    findings: findings that must be reported with a pass; any one of them is enough.
    allowed: findings that may be reported with a pass, or not.
    lines: lines of the submission, counted from 1, that the report should point at; any one of
    them will do. Empty where no line is to blame.
    on: the cases it shows on, one of WHERE.
    """

    verdict: str
    causes: frozenset[str] = frozenset()
    findings: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()
    on: str = "any"


@dataclass(frozen=True)
class Entry:
    """One submission: its path, its source and what is expected of it."""

    path: Path
    source: str
    expectation: Expectation

    @property
    def name(self) -> str:
        """Folder and module name, as in "bounds/tail_guarded"."""
        return self.path.relative_to(FOLDER).with_suffix("").as_posix()


def _names(value: str, known: frozenset[str]) -> frozenset[str]:
    names = frozenset(value.split("|"))
    if not names <= known:
        raise ValueError(f"unknown: {', '.join(sorted(names - known))}")
    return names


def marked_lines(source: str) -> frozenset[int]:
    """The lines with the fault marker, counted from 1."""
    return frozenset(
        i for i, text in enumerate(source.splitlines(), 1) if text.endswith(FAULT_MARKER)
    )


def parse_expectation(source: str) -> Expectation:
    """The one #!EXPECT line among the first comment lines of a submission.

    Raises ValueError if there is not exactly one, or it says something unknown.
    """
    head = []
    for text in source.splitlines():
        if not text.startswith("#"):
            break
        head.append(text)
    expected = [text for text in head if text.startswith("#!EXPECT ")]
    if len(expected) != 1:
        raise ValueError(f"{len(expected)} #!EXPECT lines among the first comment lines")
    verdict, *fields = expected[0].removeprefix("#!EXPECT ").split()
    values = dict(field.split("=", 1) for field in fields)
    causes = values.pop("cause", None)
    findings = values.pop("finding", None)
    allowed = values.pop("may", None)
    on = values.pop("on", "any")
    if values:
        raise ValueError(f"unknown: {', '.join(values)}")
    if verdict not in ("pass", "fail") or on not in WHERE:
        raise ValueError(expected[0])
    if (verdict == "fail") != (causes is not None):
        raise ValueError("a fail has a cause and a pass has none")
    return Expectation(
        verdict,
        _names(causes, CAUSES) if causes else frozenset(),
        _names(findings, FINDINGS) if findings else frozenset(),
        _names(allowed, FINDINGS) if allowed else frozenset(),
        marked_lines(source),
        on,
    )


def load() -> list[Entry]:
    """Every submission of the corpus, sorted by path."""
    entries = []
    for path in sorted(FOLDER.glob("*/*.py")):
        source = path.read_text(encoding="utf-8")
        try:
            entries.append(Entry(path, source, parse_expectation(source)))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return entries
