"""Findings on calls that the leaderboard would accept, as records for the verdict."""

import json
from dataclasses import asdict, replace
from typing import Any

from nvfp4.judge.opened_case import OpenedCase
from nvfp4.records.failures import BY_SUBMISSION, Finding, read_findings
from nvfp4.records.messages import Called

longest_bytes = 2600
"""Limit on the findings of a case, as JSON: the bot's pipe is small."""


def findings_of(opened: OpenedCase, called: Called) -> list[Finding]:
    """The findings of a judged call: those of its launches, and what only our own check refuses."""
    notes = opened.ended.notes if opened.ended is not None else []
    found = [*_of_output(opened), *_of_launches(called.launches, notes)]
    while len(json.dumps([asdict(each) for each in found])) > longest_bytes:
        found.pop()
    return found


def _of_output(opened: OpenedCase) -> list[Finding]:
    found: list[Finding] = []
    expected = opened.plan.expected.leaves
    for got, wanted in zip(opened.returned().tree.leaves, expected, strict=False):
        # Another problem's reference may compute in a dtype of its own.
        if got.dtype != wanted.dtype and opened.plan.strict_inputs and not found:
            taken = f"which the contest takes for {wanted.dtype}"
            hint = f"return {wanted.path if wanted.path.isidentifier() else wanted.dtype}"
            message = f"custom_kernel returned {got.dtype}, {taken}"
            found.append(_finding("output_dtype", message, hint))
    if opened.error_share > 1:
        found.append(
            _finding(
                "tolerance",
                f"the largest error is {opened.error_share:.3f} times the allowed one; the "
                "contest's check rounds to float16 and takes it",
                "add in float32: other inputs will be over the limit",
            )
        )
    if opened.changed:
        found.append(
            _finding(
                "input_changed",
                f"custom_kernel wrote to its input {opened.changed[0]}, which the contest allows",
                "write to the output alone: inputs may be used again",
            )
        )
    return found


def _finding(code: str, message: str, hint: str) -> Finding:
    return Finding(code, message, hint=hint, count=1)


def _of_launches(launches: list[Any], notes: list[list[str]]) -> list[Finding]:
    """Return the findings about the launches of a call. notes: code and message of each finding
    that the submission's process has reported about its host code."""
    reports = [report for report in launches if isinstance(report, dict)]
    listed = [each for report in reports for each in read_findings(report.get("findings"))]
    return [
        replace(each, told_by=BY_SUBMISSION) if [each.code, each.message] in notes else each
        for each in listed
    ]
