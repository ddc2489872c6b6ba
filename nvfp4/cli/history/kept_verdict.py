"""A verdict from the JSON object that was made of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from nvfp4.cli.history.database import HistoryError, Record
from nvfp4.cli.judging.mistakes import Mistake
from nvfp4.cli.text import visible_parts
from nvfp4.cli.verdict import BenchmarkResult, Device, Submission, TestResult, Verdict, Warning

T = TypeVar("T")


def kept_verdict(record: Record) -> Verdict:
    """The verdict as it was when it was kept, with every text visible. Raises HistoryError for an
    object that is none.
    """
    try:
        verdict = _verdict(visible_parts(record.verdict_object))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        hint = "nvfp4 show --json prints what is kept."
        raise HistoryError(f"judgement {record.id} is no verdict", hint) from None
    verdict.interrupted = record.outcome == "interrupted"
    verdict.elapsed_s = record.elapsed_s
    return verdict


def _verdict(found: dict[str, Any]) -> Verdict:
    return Verdict(
        _record(Submission, found["submission"]),
        _record(Device, found["device"]) if found["device"] else None,
        dict(found["confined"]),
        [_record(TestResult, each) for each in found["tests"]],
        [_record(BenchmarkResult, each) for each in found["benchmarks"]],
        [_record(Warning, each) for each in found["warnings"]],
        found["alone"],
        _record(Mistake, found["mistake"]) if found["mistake"] else None,
    )


def _record(kind: type[T], found: dict[str, Any]) -> T:
    """What a later version has added is left out, what an earlier one lacked has its default."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in found.items() if name in known})
