"""Warnings of a verdict: each policy examines it and may warn; so may the submission's
directives."""

import math
from collections.abc import Callable

from nvfp4.cli.problem import Problem, leaderboards_named, shape_of
from nvfp4.cli.text import several
from nvfp4.cli.verdict import TestResult, Verdict, Warning

noisy_share = 0.05
"""A standard deviation above this share of the mean is worth a warning."""


def warnings_of(verdict: Verdict) -> list[Warning]:
    """The warnings of every policy, in their order."""
    found = (policy(verdict) for policy in _policies)
    return [warning for warning in found if warning is not None]


def _not_confined(verdict: Verdict) -> Warning | None:
    missing = [name for name, how in verdict.confined.items() if how.startswith("none")]
    if not missing:
        return None
    return Warning(
        "not_confined",
        f"the submission ran with less confinement than usual ({', '.join(missing)})",
        "Judge submissions you do not trust elsewhere; nvfp4 info says what is missing.",
    )


def _full_range(verdict: Verdict) -> Warning | None:
    tests = [test for test in _warning_tests(verdict) if _is_of_a_deciding_shape(test, verdict)]
    tried = [each.full_range for each in verdict.benchmarks if each.full_range]
    wrong = sum(test.status == "fail" for test in tests), tried.count("fail")
    left = sum(test.status == "skipped" and not _is_slow(test) for test in tests)
    said = [
        f"{word} {count} of {several(len(of), noun)}"
        for word, count, of, noun in (
            ("wrong on", wrong[0], tests, "test"),
            ("wrong on" if not wrong[0] else "and on", wrong[1], tried, "benchmark"),
            ("not judged on", left, tests, "test"),
        )
        if count
    ]
    if not said or not verdict.full_range_only_warns:
        return None
    return Warning(
        "full_range",
        f"right on the contest's inputs, {', '.join(said)} with full-range inputs",
        "The contest's bytes are 0 to 3 and its scales 0, 1 or 2; real data use all codes.",
    )


def _is_slow(test: TestResult) -> bool:
    return test.failure is None or test.failure.code in ("not_judged.too_slow", "timeout.mode")


def _strict(verdict: Verdict) -> Warning | None:
    if not verdict.strict or not verdict.passed or not verdict.emulated:
        return None
    return Warning(
        "strict",
        "--strict has found nothing, but findings about streams are only what the submission's own "
        "process says",
        "On a GPU the judge's clock sees work that no stream joins.",
    )


def _other_shape(verdict: Verdict) -> Warning | None:
    tests = [test for test in _warning_tests(verdict) if test.status == "fail"]
    others = [test for test in tests if not _is_of_a_deciding_shape(test, verdict)]
    if not others:
        return None
    return Warning(
        "other_shape",
        f"right at the contest's shape, not at {shape_of(others[0].spec)}",
        "The contest has no such shape: a kernel that is made for its shapes need not take others.",
    )


def _warning_tests(verdict: Verdict) -> list[TestResult]:
    """Return the tests on full-range inputs, if these only warn."""
    if not verdict.full_range_only_warns:
        return []
    return [test for test in verdict.tests if test.inputs == "full"]


def _is_of_a_deciding_shape(test: TestResult, verdict: Verdict) -> bool:
    deciding = {each.spec for each in verdict.tests if each.inputs == "contest"}
    return not deciding or test.spec in deciding


def _unverified(verdict: Verdict) -> Warning | None:
    reasons = [
        each.unverified for each in verdict.results if each.unverified and each.status == "pass"
    ]
    if not reasons or not verdict.passed:
        return None
    counts = any(each.emulation and each.unverified for each in verdict.benchmarks)
    said = "counts of benchmarks are" if counts else "the verdict is"
    return Warning(
        "unverified",
        f"{said} unverified: {reasons[0]}",
        "The judge counts kernels alone, which is complete if host code reads no device memory and "
        "there is time for several calls.",
    )


def _dropped(verdict: Verdict) -> Warning | None:
    names = list(dict.fromkeys(name for each in verdict.results for name in each.dropped))
    if not names:
        return None
    cases = sum(bool(each.dropped) for each in verdict.results)
    return Warning(
        "dropped",
        f"there was no room for everything about {several(cases, 'case')}: {', '.join(names)}",
        "The verdict does not depend on it. A submission that prints less leaves more room.",
    )


def _cpu_times(verdict: Verdict) -> Warning | None:
    timed = any(each.timed for each in verdict.benchmarks)
    if not timed or verdict.device is None or verdict.device.kind != "cpu":
        return None
    return Warning(
        "cpu_times",
        "no CUDA device was used: the times are those of this CPU",
        "Correctness counts here; compare times only with each other.",
    )


def _own_times(verdict: Verdict) -> Warning | None:
    timed = [each for each in verdict.benchmarks if each.timed and each.batched_us is None]
    if not timed or verdict.device is None or verdict.device.kind != "cuda":
        return None
    return Warning(
        "own_times",
        f"the times of {several(len(timed), 'benchmark')} are those that the submission's own "
        "process says",
        "The judge has its own clock only for NVFP4 GEMV, and only if memory has room for it.",
    )


def _noisy(verdict: Verdict) -> Warning | None:
    timed = [each for each in verdict.benchmarks if each.timed]
    noisy = any((each.std_us or 0) > noisy_share * (each.mean_us or math.inf) for each in timed)
    if not noisy or _cpu_times(verdict) is not None:
        return None
    return Warning(
        "noisy",
        f"the spread of some timings is above {noisy_share:.0%} of their mean",
        "Stop other programs on this GPU and judge again.",
    )


def _fails_alone(verdict: Verdict) -> Warning | None:
    if verdict.alone is None or not verdict.passed:
        return None
    if verdict.emulated and verdict.alone_too_long:
        return None  # a GPU may be faster
    return Warning(
        "fails_alone",
        verdict.alone,
        "The contest's bot runs the file by itself first and ignores how that ends.",
    )


_policies: tuple[Callable[[Verdict], Warning | None], ...] = (
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
