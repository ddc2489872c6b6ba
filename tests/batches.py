"""Verdicts for the tests of `nvfp4 batch`, without a judge."""

from typing import Any

from nvfp4.cli.mistakes import Mistake
from nvfp4.cli.problem import load_problem
from nvfp4.cli.verdict import BenchmarkResult, Device, Submission, TestResult, Verdict
from nvfp4.records.failures import BY_SUBMISSION, Failure

no_options: dict[str, Any] = {"device": "cpu", "limit_s": None}


def verdict_of(content: bytes, device: str = "cpu") -> dict[str, Any]:
    """What the fake judge says of a file whose text is passes, mistaken, wrong, unclear, or a
    time."""
    text = content.decode().split()[0]
    verdict = Verdict(Submission("copy.py", "0"), Device(device, f"a {device}"))
    if text == "mistaken":
        verdict.mistake = Mistake("syntax", "invalid syntax", "copy.py", 1)
        return verdict.as_json()
    problem = load_problem()
    failures = {
        "wrong": Failure("output.mismatch", "3 of 128 elements are wrong"),
        "unclear": Failure(
            "not_judged.not_emulated", "not emulated: tcgen05", told_by=BY_SUBMISSION
        ),
    }
    status = {"wrong": "fail", "unclear": "skipped"}.get(text, "pass")
    failure = failures.get(text)
    said = failure.message if failure else None
    verdict.tests = [TestResult(problem.tests[0], status, said, failure=failure)]
    mean_us = float(text) if device == "cuda" and status == "pass" else None
    verdict.benchmarks = [
        BenchmarkResult(line, "pass", timed=mean_us is not None, mean_us=mean_us, floor_us=20.0)
        for line in problem.benchmarks
    ]
    return verdict.as_json()
