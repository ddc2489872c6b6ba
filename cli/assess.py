"""The course of a judgement: the submission by itself, the tests, then the benchmarks."""

import base64
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from nvfp4.cli.bot import Bot, ProcessResult, import_timeout_s
from nvfp4.cli.errors import SetupError
from nvfp4.cli.text import visible
from nvfp4.cli.verdict import (
    BenchmarkResult,
    Device,
    Submission,
    TestResult,
    Verdict,
    full_range_suffix,
    read_benchmark,
    read_confinement,
    read_device,
    read_test,
)
from nvfp4.cli.warnings import warnings_of

judged_exits = {0: "passed", 110: "CUDA error", 112: "check failed", 114: "timeout"}
"""Exit codes of eval.py when it has judged; any other means that it could not."""


@dataclass
class Observer:
    """Is told what happens while it happens. phase: a title and how many cases it has."""

    phase: Callable[[str, int], None] = field(default=lambda title, cases: None)
    device: Callable[[Device], None] = field(default=lambda device: None)
    test: Callable[[TestResult], None] = field(default=lambda result: None)
    benchmark: Callable[[BenchmarkResult], None] = field(default=lambda result: None)


@dataclass(frozen=True)
class Plan:
    """What to judge. tests, benchmarks: lines of a case file; mode: that of the benchmarks;
    run_alone: whether the submission is run by itself first, as the bot does.
    """

    tests: list[str]
    benchmarks: list[str]
    mode: str = "leaderboard"
    run_alone: bool = True

    @property
    def all_tests(self) -> list[str]:
        """Every test on the contest's inputs, then every one on full-range inputs."""
        return self.tests + [line + full_range_suffix for line in self.tests]


def read_submission(submission: Path) -> tuple[Submission, bytes]:
    """Path and hash of the file, and its bytes. Raises SetupError where it cannot be read."""
    try:
        content = submission.read_bytes()
    except OSError as error:
        raise SetupError(
            f"cannot read {submission}: {error.strerror}", "Name the file with custom_kernel."
        ) from error
    return Submission(str(submission), hashlib.sha256(content).hexdigest()), content


def assess(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    """Judges by the plan and fills the verdict. Raises SetupError.

    The submission runs by itself while the tests run, but never during a benchmark.
    """
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(_run_alone, bot, observer) if plan.run_alone else None
        if plan.tests:
            _run_tests(bot, plan, verdict, observer)
        verdict.alone = alone.result() if alone else None
    if plan.benchmarks:
        if verdict.contest_tests_passed:
            _run_benchmarks(bot, plan, verdict, observer)
        else:
            reason = "not run: a test on the contest's inputs failed"
            verdict.benchmarks = [
                BenchmarkResult(spec=line, status="skipped", message=reason)
                for line in plan.benchmarks
            ]
    verdict.warnings = warnings_of(verdict)


@dataclass(frozen=True)
class ProfileReport:
    """text: the profiler's table, or why there is none."""

    spec: str
    passed: bool
    text: str


def profile(bot: Bot, cases: list[str], observer: Observer) -> list[ProfileReport]:
    """A profile of one call of each case. Raises SetupError."""
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
    return ProfileReport(line, True, visible(base64.b64decode(encoded).decode("utf-8", "replace")))


def _run_alone(bot: Bot, observer: Observer) -> str | None:
    """The bot's first step, whose result it ignores; how the submission failed it, or None."""
    observer.phase("import", 1)
    ended = bot.run_submission()
    if ended.killed:
        return f"python submission.py did not end within {import_timeout_s:.0f} s"
    if ended.exit_code != 0:
        reason = f"python submission.py ended with exit code {ended.exit_code}"
        return f"{reason}\n{ended.stderr}".strip()
    return None


class _Listener:
    """Tells the observer of the device, each test and each benchmark once it is complete."""

    def __init__(self, observer: Observer, lines: list[str]) -> None:
        self._observer = observer
        self._lines = lines
        self._seen: dict[str, str] = {}

    def __call__(self, key: str, value: str) -> None:
        self._seen[key] = value
        name, _, last = key.rpartition(".")
        if last != "complete":
            return
        if name == "device":
            device = read_device(self._seen)
            if device:
                self._observer.device(device)
            return
        kind, _, number = name.partition(".")
        if not number.isdecimal() or int(number) >= len(self._lines):
            return
        index, line = int(number), self._lines[int(number)]
        if kind == "test":
            self._observer.test(read_test(self._seen, index, line, ""))
        elif kind == "benchmark":
            self._observer.benchmark(read_benchmark(self._seen, index, line, ""))


Result = TypeVar("Result", TestResult, BenchmarkResult)


def _run_mode(
    bot: Bot,
    mode: str,
    lines: list[str],
    read: Callable[[dict[str, str], int, str, str], Result],
    verdict: Verdict,
    observer: Observer,
) -> list[Result]:
    """Runs eval.py over cases and reads a result for each; notes what it says of the device and of
    the confinement. Results that disagree with how eval.py ended fail.
    """
    process = judged(bot.run_eval(mode, lines, _Listener(observer, lines)))
    verdict.device = read_device(process.values)
    verdict.confined = read_confinement(process.values)
    why = _why_unjudged(process)
    results = [read(process.values, index, line, why) for index, line in enumerate(lines)]
    if all(each.status == "pass" for each in results) and not _said_passed(process):
        return [replace(each, status="fail", message=why) for each in results]
    return results


def _run_tests(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    lines = plan.all_tests
    observer.phase("tests", len(lines))
    verdict.tests = _run_mode(bot, "test", lines, read_test, verdict, observer)


def _run_benchmarks(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    lines = plan.benchmarks
    observer.phase("benchmarks", len(lines))
    verdict.benchmarks = _run_mode(bot, plan.mode, lines, read_benchmark, verdict, observer)


def _said_passed(process: ProcessResult) -> bool:
    """Whether eval.py as a whole says what its cases say."""
    return process.exit_code == 0 and process.values.get("check") == "pass"


def judged(process: ProcessResult) -> ProcessResult:
    """The same, if eval.py did judge. Raises SetupError where it could not start."""
    if process.exit_code in judged_exits or "test-count" in process.values:
        return process
    if process.killed or "benchmark-count" in process.values:
        return process
    last_lines = process.stderr.splitlines()[-1:] or [f"eval.py ended with {process.exit_code}"]
    reason = last_lines[0].removeprefix("eval.py: ")
    raise SetupError(f"the judge could not start: {reason}", "nvfp4 info shows what is here.")


def _why_unjudged(process: ProcessResult) -> str:
    """Why cases without a status have none."""
    if process.killed:
        return "not judged: the judge was stopped at the time limit"
    last = process.stderr.splitlines()[-1:]
    return "not judged: the judge ended early" + (f": {last[0]}" if last else "")
