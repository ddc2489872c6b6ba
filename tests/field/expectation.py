"""What a judge should say to a submission of this folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from corpus import Submission, load_all, marked_lines
from judged import TIME_LIMIT_S, Judgement, judge_apart, make_case

CAUSES = frozenset(
    """
    deadlock endless exception global_race launch misaligned mismatch out_of_bounds shared_race
    trap unset_register unwritten_global unwritten_output unwritten_shared
    """.split()
)
"""Why a submission fails."""

FINDINGS = frozenset(
    """
    autotune global_race missing_fence proxy_fence shared_race own_stream stream.unordered
    unset_register unwritten_shared warp_sync
    """.split()
)
"""What a submission may pass with."""

CALLS = {
    "any": ((128, 256, 1, False), (256, 512, 2, True)),
    "batches": ((128, 256, 2, False),),
    "one_batch": ((128, 256, 1, False),),
    "full_range": ((128, 256, 1, True),),
    "k_blocks": ((128, 1536, 1, False),),
    "second_call": ((128, 256, 2, False), (128, 1536, 2, True)),
}
"""(m, k, l, whether the inputs use all codes) of the calls by which a submission is judged, by where
its fault shows."""

ENDLESS_LIMIT_S = 12.0

COMPILED = "cuda", "triton"
"""Compilers take seconds for each case of these folders: `make test` judges those that call themselves
quick."""


@dataclass(frozen=True)
class Expectation:
    """What a judge should say to one submission; README.md says more.

    causes: for a fail, any one of which is a right answer. findings: those of which one must be
    reported with a pass. allowed: those that may be. lines: of the submission, counted from 1, one
    of which the report should point at; empty where no line is to blame. on: a key of CALLS.
    """

    verdict: str
    causes: frozenset[str] = frozenset()
    findings: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()
    on: str = "any"

    def complaint(self, got: Judgement) -> str | None:
        """How a verdict differs from what is expected; None if it does not."""
        if self.verdict == "fail":
            if got.cause is None:
                return f"passed with {sorted(got.findings)}, must fail: {sorted(self.causes)}"
            if got.cause not in self.causes:
                return f"failed by {got.cause}, must be {sorted(self.causes)}: {got.message}"
            if self.lines and got.cause not in ("mismatch", "unwritten_output", "endless"):
                if not got.lines & self.lines:
                    return f"{got.cause} at {sorted(got.lines)}, must be at {sorted(self.lines)}"
            return None
        if got.cause is not None:
            return f"failed by {got.cause}, must pass: {got.message}"
        if self.findings and not got.findings & self.findings:
            return f"found {sorted(got.findings)}, must find {sorted(self.findings)}"
        extra = got.findings - self.findings - self.allowed
        return f"found {sorted(extra)} as well, at {sorted(got.lines)}" if extra else None


def expectation(case: Submission) -> Expectation:
    """What the directive ``expect`` of a submission says. Raises ValueError, KeyError."""
    verdict, *fields = case.directives["expect"].split()
    values = dict(field.split("=", 1) for field in fields)
    causes = _names(values.pop("cause", ""), CAUSES)
    findings = _names(values.pop("finding", ""), FINDINGS)
    allowed = _names(values.pop("may", ""), FINDINGS)
    on = values.pop("on", "any")
    if values or verdict not in ("pass", "fail") or on not in CALLS:
        raise ValueError(case.directives["expect"])
    if (verdict == "fail") != bool(causes):
        raise ValueError("a fail has a cause and a pass has none")
    lines = frozenset(marked_lines(case.source))
    return Expectation(verdict, causes, findings, allowed, lines, on)


def _names(value: str, known: frozenset[str]) -> frozenset[str]:
    names = frozenset(value.split("|")) - {""}
    if not names <= known:
        raise ValueError(f"unknown: {', '.join(sorted(names - known))}")
    return names


CASES = load_all(Path(__file__).parent)
"""The submissions of all folders beside this file."""


def cases_of(*folders: str) -> list[Any]:
    """Parameters of a test: the submissions of some folders, marked for `make corpus` where it alone
    judges them."""
    found = []
    for case in CASES:
        nightly = case.folder.name in COMPILED and "quick" not in case.directives
        if case.folder.name in folders:
            marks = [pytest.mark.corpus] if nightly else []
            found.append(pytest.param(case, id=case.id, marks=marks))
    return found


def complaint(case: Submission, folder: Path) -> str | None:
    """How the verdict on a submission differs from what is expected; None if it does not."""
    expected = expectation(case)
    calls = [make_case(*call) for call in CALLS[expected.on]]
    limit_s = ENDLESS_LIMIT_S if "endless" in expected.causes else TIME_LIMIT_S
    return expected.complaint(judge_apart(case.write(folder), calls, limit_s))
