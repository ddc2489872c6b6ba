"""Warnings about a verdict: each policy examines it and may yield one. Also a warning about the
submission's directives."""

import math
from collections.abc import Iterator

from nvfp4.cli.problem import Problem, leaderboard, leaderboards_named, shape_of
from nvfp4.cli.text import several
from nvfp4.cli.verdict import TestResult, Verdict, Warning

noisy_share = 0.05
"""A standard deviation above this share of the mean is worth a warning."""


def warnings_of(verdict: Verdict) -> list[Warning]:
    """Return the warnings of every policy, in their order."""
    return [warning for policy in _policies for warning in policy(verdict)]


def _not_confined(verdict: Verdict) -> Iterator[Warning]:
    missing = [name for name, how in verdict.confined.items() if how.startswith("none")]
    if missing:
        yield Warning(
            "not_confined",
            f"the submission ran with less confinement than usual ({', '.join(missing)})",
            "Judge submissions you do not trust elsewhere; nvfp4 info says what is missing.",
        )


def _full_range(verdict: Verdict) -> Iterator[Warning]:
    tests = [test for test in _warning_tests(verdict) if _is_of_a_deciding_shape(test, verdict)]
    tried = [each.full_range for each in verdict.benchmarks if each.full_range]
    wrong = sum(test.status == "fail" for test in tests), tried.count("fail")
    why_left = [each.failure.code for each in tests if each.status == "skipped" and each.failure]
    left = sum(code not in ("not_judged.too_slow", "timeout.mode") for code in why_left)
    parts = [
        f"{word} {count} of {several(len(of), noun)}"
        for word, count, of, noun in (
            ("wrong on", wrong[0], tests, "test"),
            ("wrong on" if not wrong[0] else "and on", wrong[1], tried, "benchmark"),
            ("not judged on", left, tests, "test"),
        )
        if count
    ]
    if parts and verdict.full_range_only_warns:
        yield Warning(
            "full_range",
            f"right on the contest's inputs, {', '.join(parts)} with full-range inputs",
            "The contest's bytes are 0 to 3 and its scales 0, 1 or 2; real data use all codes."
            if verdict.problem == leaderboard
            else "The problem's extras draw these: values that its own inputs seldom have.",
        )


def _strict(verdict: Verdict) -> Iterator[Warning]:
    if verdict.strict and verdict.passed and verdict.emulated:
        yield Warning(
            "strict",
            "--strict has found nothing, but only the submission's own process looks for misuse of "
            "streams",
            "On a GPU the judge's clock sees work that no stream joins.",
        )


def _other_shape(verdict: Verdict) -> Iterator[Warning]:
    tests = [test for test in _warning_tests(verdict) if test.status == "fail"]
    others = [test for test in tests if not _is_of_a_deciding_shape(test, verdict)]
    if others:
        yield Warning(
            "other_shape",
            f"right at the contest's shape, not at {shape_of(others[0].spec)}",
            "The contest has no such shape, so a kernel need not support it.",
        )


def _warning_tests(verdict: Verdict) -> list[TestResult]:
    """Return the tests on full-range inputs if their failures only warn; else an empty list."""
    if not verdict.full_range_only_warns:
        return []
    return [test for test in verdict.tests if test.inputs == "full"]


def _is_of_a_deciding_shape(test: TestResult, verdict: Verdict) -> bool:
    deciding = {each.spec for each in verdict.tests if each.inputs == "contest"}
    return not deciding or test.spec in deciding


def _unverified(verdict: Verdict) -> Iterator[Warning]:
    passed = [each for each in verdict.results if each.status == "pass"]
    reasons = [each.unverified for each in passed if each.unverified]
    if reasons and verdict.outcome != "failed":
        counts = any(each.emulation and each.unverified for each in verdict.benchmarks)
        subject = "counts of benchmarks are" if counts else "the verdict is"
        yield Warning(
            "unverified",
            f"{subject} unverified: {reasons[0]}",
            "The judge counts kernels alone, which is complete if host code reads no device memory "
            "and there is time for several calls, whose inputs differ.",
        )


def _dropped(verdict: Verdict) -> Iterator[Warning]:
    names = list(dict.fromkeys(name for each in verdict.results for name in each.dropped))
    if names:
        cases = sum(bool(each.dropped) for each in verdict.results)
        yield Warning(
            "dropped",
            f"details of {several(cases, 'case')} were dropped: {', '.join(names)}",
            "The verdict does not depend on them. A submission that prints less leaves more room.",
        )


def _cpu_times(verdict: Verdict) -> Iterator[Warning]:
    if _timed_on("cpu", verdict):
        yield Warning(
            "cpu_times",
            "no CUDA device was used: the times are those of this CPU",
            "Correctness counts here; compare times only with each other.",
        )


def _timed_on(kind: str, verdict: Verdict) -> bool:
    timed = any(each.timed for each in verdict.benchmarks)
    return timed and verdict.device is not None and verdict.device.kind == kind


def _own_times(verdict: Verdict) -> Iterator[Warning]:
    timed = [each for each in verdict.benchmarks if each.timed and each.batched_us is None]
    if timed and _timed_on("cuda", verdict):
        yield Warning(
            "own_times",
            f"the times of {several(len(timed), 'benchmark')} were measured by the submission's "
            "own process",
            "The judge has its own clock only for NVFP4 GEMV, and only if memory has room for it.",
        )


def _noisy(verdict: Verdict) -> Iterator[Warning]:
    timed = [each for each in verdict.benchmarks if each.timed]
    noisy = any((each.std_us or 0) > noisy_share * (each.mean_us or math.inf) for each in timed)
    if noisy and not _timed_on("cpu", verdict):
        yield Warning(
            "noisy",
            f"the spread of some timings is above {noisy_share:.0%} of their mean",
            "Stop other programs on this GPU and judge again.",
        )


def _fails_alone(verdict: Verdict) -> Iterator[Warning]:
    too_slow_here = verdict.emulated and verdict.alone_too_long  # a GPU may be faster
    if verdict.alone is not None and verdict.passed and not too_slow_here:
        yield Warning(
            "fails_alone",
            verdict.alone,
            "The contest's bot runs the file by itself first and ignores how that ends.",
        )


_policies = (
    _not_confined,
    _fails_alone,
    _full_range,
    _other_shape,
    _unverified,
    _strict,
    _dropped,
    _cpu_times,
    _own_times,
    _noisy,
)


def warnings_before(content: bytes, problem: Problem) -> list[Warning]:
    """Return a warning if the submission's directives name another problem."""
    named = leaderboards_named(content)
    if not named or {problem.name, problem.folder.name} & set(named):
        return []
    message = f"the submission names the leaderboard {', '.join(named)[:80]}"
    return [
        Warning(
            "other_leaderboard",
            f"{message}, and this is {problem.name}",
            f"For this one its first line is #!POPCORN leaderboard {problem.name}",
        )
    ]
