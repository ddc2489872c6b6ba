"""The cases of a verdict as every format needs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from nvfp4.cli.problem import Shape, shape_of
from nvfp4.cli.verdict import BenchmarkResult, TestResult, Verdict
from nvfp4.records.failures import Failure


@dataclass(frozen=True)
class Case:
    """kind: test or benchmark. inputs: contest or full; None for a benchmark."""

    kind: str
    shape: Shape
    inputs: str | None
    result: TestResult | BenchmarkResult

    @property
    def name(self) -> str:
        """``512 x 1536 x 2, full-range inputs``."""
        words = {None: "", "contest": ", contest inputs", "full": ", full-range inputs"}
        return f"{self.shape}{words[self.inputs]}"

    @property
    def benchmark(self) -> BenchmarkResult | None:
        """The result of a benchmark, None for a test."""
        return self.result if isinstance(self.result, BenchmarkResult) else None


def cases_of(verdict: Verdict) -> Iterator[Case]:
    """Every case in the order in which they were judged."""
    for test in verdict.tests:
        yield Case("test", shape_of(test.spec), test.inputs, test)
    for benchmark in verdict.benchmarks:
        yield Case("benchmark", shape_of(benchmark.spec), None, benchmark)


def path_of(file: str | None, verdict: Verdict) -> str | None:
    """Where a file lies from here: the judge calls the submission by its name in the judge's
    folder.
    """
    given = verdict.submission.path
    if file in ("submission.py", PurePath(given).name):
        return given
    return file


def place_of(failure: Failure | None, verdict: Verdict) -> str:
    """``mine.py:12:5`` as far as it is known; empty where it is not."""
    if failure is None or not failure.file:
        return ""
    parts = (path_of(failure.file, verdict), failure.line, failure.column)
    return ":".join(str(part) for part in parts if part)


def summary_of(verdict: Verdict) -> str:
    """``passed: 20 of 20 tests, 3 of 3 benchmarks, geometric mean 25.611 us``."""
    if verdict.mistake:
        return f"failed: {verdict.mistake.message.splitlines()[-1]}"
    parts = []
    for what, results in (("tests", verdict.tests), ("benchmarks", verdict.benchmarks)):
        right = sum(each.status == "pass" for each in results)
        parts += [f"{right} of {len(results)} {what} passed"] if results else []
    score = verdict.score
    if score.geomean_us is not None:
        parts.append(f"geometric mean {score.geomean_us:.3f} us")
    elif verdict.passed and verdict.benchmarks:
        parts.append(f"no geometric mean: {score.reason}")
    return f"{verdict.outcome}: {', '.join(parts) or 'nothing was judged'}"
