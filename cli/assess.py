"""The course of a judgement: the submission by itself, the tests, then the benchmarks."""

import base64
import hashlib
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from nvfp4.cli.bot import Bot, Ended, import_timeout_s
from nvfp4.cli.verdict import (
    BenchmarkResult,
    Device,
    Submission,
    TestResult,
    Verdict,
    Warning,
    full_range_suffix,
    read_benchmark,
    read_confinement,
    read_device,
    read_test,
)

judged_exits = {0: "passed", 110: "CUDA error", 112: "check failed", 114: "time-out"}
"""How eval.py ends when it has judged; any other exit code means that it could not."""

noisy_share = 0.05
"""From this share of the mean on, the spread of the timings is worth a warning."""


class SetupFailed(Exception):
    """Nothing was judged because something around the submission is wrong."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass
class Observer:
    """Hears of the course while it happens. phase: a title and how many cases it has."""

    phase: Callable[[str, int], None] = field(default=lambda title, cases: None)
    device: Callable[[Device], None] = field(default=lambda device: None)
    test: Callable[[TestResult], None] = field(default=lambda result: None)
    benchmark: Callable[[BenchmarkResult], None] = field(default=lambda result: None)


@dataclass(frozen=True)
class Plan:
    """What to judge. tests, benchmarks: lines of a case file; mode: that of the benchmarks;
    run_alone: whether the submission is run by itself first, as the bot does."""

    tests: list[str]
    benchmarks: list[str]
    mode: str = "leaderboard"
    run_alone: bool = True

    @property
    def all_tests(self) -> list[str]:
        """Every test on the contest's inputs, then every one on full-range inputs."""
        return self.tests + [line + full_range_suffix for line in self.tests]


def read_submission(submission: Path) -> tuple[Submission, bytes]:
    """Path and hash of the file, and its bytes. Raises SetupFailed where it cannot be read."""
    try:
        content = submission.read_bytes()
    except OSError as error:
        raise SetupFailed(
            f"cannot read {submission}: {error.strerror}", "Name the file with custom_kernel."
        ) from error
    return Submission(str(submission), hashlib.sha256(content).hexdigest()), content


def assess(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    """Judges by the plan and fills the verdict. Raises SetupFailed.

    The run of the submission by itself goes on beside the tests, but never beside a benchmark.
    """
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(_run_alone, bot, observer) if plan.run_alone else None
        if plan.tests:
            _run_tests(bot, plan, verdict, observer)
        failure = alone.result() if alone else None
    if failure is not None:
        verdict.tests = [
            read_test({}, index, line, failure) for index, line in enumerate(plan.all_tests)
        ]
    if plan.benchmarks:
        if failure is None and verdict.contest_tests_passed:
            _run_benchmarks(bot, plan, verdict, observer)
        else:
            reason = failure or "not run: a test on the contest's inputs failed"
            status = "fail" if failure and not plan.tests else "skipped"
            verdict.benchmarks = [
                BenchmarkResult(spec=line, status=status, message=reason)
                for line in plan.benchmarks
            ]
    _warn(verdict)


@dataclass(frozen=True)
class ProfileReport:
    """text: the profiler's table, or why there is none."""

    spec: str
    passed: bool
    text: str


def profile(bot: Bot, cases: list[str], observer: Observer) -> list[ProfileReport]:
    """A profile of one call of each case. Raises SetupFailed."""
    failure = _run_alone(bot, observer)
    if failure is not None:
        return [ProfileReport(line, False, failure) for line in cases]
    observer.phase("profile", len(cases))
    ended = judged(bot.run_eval("profile", cases))
    why = _why_unjudged(ended)
    return [_read_profile(ended.values, index, line, why) for index, line in enumerate(cases)]


def _read_profile(values: dict[str, str], index: int, line: str, not_judged: str) -> ProfileReport:
    encoded = values.get(f"benchmark.{index}.report")
    if encoded is None:
        message = read_benchmark(values, index, line, not_judged).message
        return ProfileReport(line, False, message or not_judged)
    return ProfileReport(line, True, base64.b64decode(encoded).decode("utf-8", "replace"))


def _run_alone(bot: Bot, observer: Observer) -> str | None:
    """The bot's first step; the reason why the submission failed it, or None."""
    observer.phase("import", 1)
    ended = bot.run_submission()
    if ended.killed:
        return f"python submission.py did not end within {import_timeout_s:.0f} s"
    if ended.exit_code != 0:
        reason = f"python submission.py ended with exit code {ended.exit_code}"
        return f"{reason}\n{ended.stderr}".strip()
    return None


class _Listener:
    """Tells the observer of each device, test and benchmark as soon as its last line is written."""

    def __init__(self, observer: Observer, lines: list[str]) -> None:
        self._observer = observer
        self._lines = lines
        self._seen: dict[str, str] = {}

    def __call__(self, key: str, value: str) -> None:
        self._seen[key] = value
        if key == "device.emulates":  # the last of the device's facts
            device = read_device(self._seen)
            if device:
                self._observer.device(device)
            return
        kind, _, rest = key.partition(".")
        number, _, what = rest.partition(".")
        if not number.isdigit() or int(number) >= len(self._lines):
            return
        index, line = int(number), self._lines[int(number)]
        failed = value == "fail" and what == "status"  # its error is still to come
        if kind == "test" and what in ("status", "error") and not failed:
            self._observer.test(read_test(self._seen, index, line, ""))
        elif kind == "benchmark" and (what in ("worst", "error") or value == "pass"):
            self._observer.benchmark(read_benchmark(self._seen, index, line, ""))


def _run_mode(bot: Bot, mode: str, lines: list[str], verdict: Verdict, observer: Observer) -> Ended:
    """Runs eval.py over cases; notes what it says of the device and of the confinement."""
    ended = judged(bot.run_eval(mode, lines, _Listener(observer, lines)))
    verdict.device = read_device(ended.values)
    verdict.confined = read_confinement(ended.values)
    return ended


def _run_tests(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    lines = plan.all_tests
    observer.phase("tests", len(lines))
    ended = _run_mode(bot, "test", lines, verdict, observer)
    why = _why_unjudged(ended)
    verdict.tests = [read_test(ended.values, i, line, why) for i, line in enumerate(lines)]
    if all(test.status == "pass" for test in verdict.tests) and not _said_passed(ended):
        verdict.tests = [replace(test, status="fail", message=why) for test in verdict.tests]


def _run_benchmarks(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    lines = plan.benchmarks
    observer.phase("benchmarks", len(lines))
    ended = _run_mode(bot, plan.mode, lines, verdict, observer)
    why = _why_unjudged(ended)
    verdict.benchmarks = [
        read_benchmark(ended.values, i, line, why) for i, line in enumerate(lines)
    ]
    if all(each.status == "pass" for each in verdict.benchmarks) and not _said_passed(ended):
        verdict.benchmarks = [
            replace(each, status="fail", message=why) for each in verdict.benchmarks
        ]


def _said_passed(ended: Ended) -> bool:
    """Whether eval.py as a whole says what its cases say."""
    return ended.exit_code == 0 and ended.values.get("check") == "pass"


def judged(ended: Ended) -> Ended:
    """The same, if eval.py did judge. Raises SetupFailed where it could not begin."""
    if ended.exit_code in judged_exits or "test-count" in ended.values:
        return ended
    if ended.killed or "benchmark-count" in ended.values:
        return ended
    last_lines = ended.stderr.splitlines()[-1:] or [f"eval.py ended with {ended.exit_code}"]
    reason = last_lines[0].removeprefix("eval.py: ")
    raise SetupFailed(f"the judge could not begin: {reason}", "nvfp4 info shows what is here.")


def _why_unjudged(ended: Ended) -> str:
    """Why cases without a status have none."""
    if ended.killed:
        return "not judged: the judge was stopped at the time limit"
    last = ended.stderr.splitlines()[-1:]
    return "not judged: the judge ended early" + (f": {last[0]}" if last else "")


def _warn(verdict: Verdict) -> None:
    missing = [name for name, how in verdict.confined.items() if how.startswith("none")]
    if missing:
        verdict.warnings.append(
            Warning(
                "not_confined",
                f"the submission ran with less confinement than usual ({', '.join(missing)})",
                "Judge submissions you do not trust elsewhere; nvfp4 info says what is missing.",
            )
        )
    full_failures = [test for test in verdict.tests if test.inputs == "full"]
    failed = sum(test.status != "pass" for test in full_failures)
    if failed and verdict.contest_tests_passed:
        verdict.warnings.append(
            Warning(
                "full_range",
                f"right on the contest's inputs, wrong on {failed} of {len(full_failures)} tests "
                "with full-range inputs",
                "The contest's bytes are 0 to 3 and its scales 0, 1 or 2; real data use all codes.",
            )
        )
    if any(each.emulation and each.emulation["extrapolated"] for each in verdict.benchmarks):
        verdict.warnings.append(
            Warning(
                "extrapolated",
                "counts were taken on a sample of the thread blocks and scaled to all of them",
                "Results of the other thread blocks were not checked.",
            )
        )
    timed = [each for each in verdict.benchmarks if each.timed]
    if timed and verdict.device and verdict.device.kind == "cpu":
        verdict.warnings.append(
            Warning(
                "cpu_times",
                "no CUDA device was used: the times are those of this CPU",
                "Correctness counts here; compare times only with each other.",
            )
        )
    elif any((each.std_us or 0) > noisy_share * (each.mean_us or math.inf) for each in timed):
        verdict.warnings.append(
            Warning(
                "noisy",
                f"the spread of some timings is above {noisy_share:.0%} of their mean",
                "Stop other programs on this GPU and judge again.",
            )
        )
