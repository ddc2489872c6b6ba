"""Keeps a verdict in the history, or says in one line why it is not kept."""

from __future__ import annotations

import math
import os
import platform
import time
from contextlib import suppress
from dataclasses import fields
from typing import Any, TypeVar

import click

from nvfp4 import __version__
from nvfp4.cli.history.database import History, HistoryError, Record
from nvfp4.cli.judging.mistakes import Mistake
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import visible, visible_parts
from nvfp4.cli.verdict import BenchmarkResult, Device, Submission, TestResult, Verdict, Warning
from nvfp4.records.failures import read_failure, read_findings

off_variable = "NVFP4_NO_LOG"
"""Of the environment: set to anything but 0, it switches the history off."""


def keep(verdict: Verdict, content: bytes, history: History | None = None) -> int | None:
    """The verdict's number in the history; None where it is not kept: if the history is switched
    off, if an interrupt came before anything was judged, or with a warning on stderr.

    Never raises: a judgement counts whether or not it can be kept.
    """
    if os.environ.get(off_variable, "0") not in ("", "0") or not _says_something(verdict):
        return None
    try:
        history = history or History()
        return history.add(entry_values(verdict), content, verdict.as_json())
    except Exception as error:  # whatever it is, the verdict stands
        reason = visible(" ".join(str(error).split())) or type(error).__name__
        with suppress(OSError):
            click.echo(f"warning: this judgement is not kept: {reason}", err=True)
        return None


def benchmarks_key(lines: list[str]) -> str:
    """Which shapes were judged: geometric means over the same ones can be compared."""
    return ", ".join(str(shape_of(line)) for line in lines)


def _says_something(verdict: Verdict) -> bool:
    results: list[TestResult | BenchmarkResult] = [*verdict.tests, *verdict.benchmarks]
    return not verdict.interrupted or any(each.status != "skipped" for each in results)


def entry_values(verdict: Verdict) -> dict[str, Any]:
    """The fields of `cli.history.database.Entry` but its id."""
    device = verdict.device
    return {
        "judged_at": time.time(),
        "path": verdict.submission.path,
        "sha256": verdict.submission.sha256,
        "outcome": "interrupted" if verdict.interrupted else verdict.outcome,
        "tests_passed": sum(test.status == "pass" for test in verdict.tests),
        "tests": len(verdict.tests),
        "benchmarks": benchmarks_key([each.spec for each in verdict.benchmarks]),
        "geomean_us": verdict.score.geomean_us,
        "bound_us": _bound_us(verdict.benchmarks),
        "kind": device.kind if device else None,
        "device": _device_name(verdict),
        "flush": device.flush if device else None,
        "elapsed_s": verdict.elapsed_s,
        "unverified": sum(bool(each.unverified) for each in verdict.benchmarks),
        "environment": {
            "nvfp4": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
    }


def _device_name(verdict: Verdict) -> str | None:
    device = verdict.device
    if device is None:
        return None
    return f"{device.emulates}, emulated" if verdict.emulated and device.emulates else device.name


def _bound_us(benchmarks: list[BenchmarkResult]) -> float | None:
    """The geometric mean of what a B200 needs at least; None unless all were emulated and right."""
    counts = [each.emulation for each in benchmarks if each.status == "pass" and each.emulation]
    bounds = [max(each["b200_memory_us"], each["b200_issue_us"]) for each in counts]
    if not bounds or len(bounds) < len(benchmarks) or min(bounds) <= 0:
        return None
    return math.exp(math.fsum(map(math.log, bounds)) / len(bounds))


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
        [_result(TestResult, each) for each in found["tests"]],
        [_result(BenchmarkResult, each) for each in found["benchmarks"]],
        [_record(Warning, each) for each in found["warnings"]],
        found["alone"],
        mistake=_record(Mistake, found["mistake"]) if found["mistake"] else None,
    )


def _result(kind: type[T], found: dict[str, Any]) -> T:
    findings, failure = read_findings(found.get("findings")), read_failure(found.get("failure"))
    return _record(kind, {**found, "findings": findings, "failure": failure})


def _record(kind: type[T], found: dict[str, Any]) -> T:
    """What a later version has added is left out, what an earlier one lacked has its default."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in found.items() if name in known})
