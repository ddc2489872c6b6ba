"""What cannot be judged without a GPU, which is no fault of the submission.

What is not emulated may be right. A call that did not end in time fails where it should have ended,
going by the cases that passed; otherwise nobody knows whether it would have been right.
"""

import json
from dataclasses import replace
from typing import TypeVar

from nvfp4.cli.problem import shape_of
from nvfp4.cli.verdict import BenchmarkResult, TestResult

Result = TypeVar("Result", TestResult, BenchmarkResult)

too_slow = "not judged: too slow to emulate here"
not_emulated = "not judged: not emulated"

_shortest_import_s = 30.0
"""One that had less was cut off by the time limit of all."""

_not_emulated = ("kernel.unsupported_instruction", "launch.unsupported_call")

_margin = 4.0
"""So many times longer than expected, a call hangs."""

_slowest_s = 1 / 20_000
"""An element at worst: of a kernel that computes with a single thread."""


def is_not_emulated(record: str) -> bool:
    """Whether a failure, as the judge writes it, is that of something that is not emulated."""
    try:
        return json.loads(record)["code"] in _not_emulated
    except (ValueError, TypeError, KeyError):
        return False


class Pace:
    """How long the cases took that passed."""

    def __init__(self) -> None:
        self._passed: list[tuple[int, float]] = []

    def add(self, result: TestResult | BenchmarkResult, taken_s: float) -> None:
        """Notes a case that passed."""
        if result.status == "pass":
            self._passed.append((_elements(result), taken_s))

    def decided(self, result: Result) -> Result:
        """The same, but skipped where it was only the time that failed, or the emulator."""
        if result.failure and result.failure["code"] in _not_emulated:
            return _left_out(result, not_emulated, "not_judged.not_emulated")
        limit_s = _time_limit_s(result)
        expected_s = self._expected_s(result)
        if limit_s is None or expected_s is None or limit_s > _margin * expected_s:
            return result
        if result.failure and result.failure["code"] == "timeout.mode":
            return replace(result, status="skipped")
        return _left_out(result, too_slow, "not_judged.too_slow")

    def _expected_s(self, result: TestResult | BenchmarkResult) -> float | None:
        """What a case should take, compilation included; None where nothing has passed."""
        if not self._passed:
            return None
        (least, first_s), *_, (most, last_s) = sorted([min(self._passed), *self._passed])
        if most > least and last_s > first_s:
            element_s = (last_s - first_s) / (most - least)
        else:
            element_s = min(last_s / most, _slowest_s)
        return last_s + element_s * max(0, _elements(result) - most)


def _left_out(result: Result, why: str, code: str) -> Result:
    failure = {**(result.failure or {}), "code": code}
    return replace(result, status="skipped", message=f"{why}: {result.message}", failure=failure)


def _elements(result: TestResult | BenchmarkResult) -> int:
    shape = shape_of(result.spec)
    return shape.m * shape.k * shape.l


def _time_limit_s(result: TestResult | BenchmarkResult) -> float | None:
    """How long a call was waited for that did not end; None where that is not why it failed."""
    failure = result.failure
    if result.status != "fail" or failure is None:
        return None
    if failure["code"] == "timeout.mode":
        return 0.0
    seconds = (failure["arguments"] or {}).get("seconds")
    if failure["code"] == "timeout.import" and isinstance(seconds, int | float):
        return 0.0 if seconds < _shortest_import_s else None
    if failure["code"] not in ("timeout.call", "kernel.runaway_kernel"):
        return None
    return float(seconds) if isinstance(seconds, int | float) else None
