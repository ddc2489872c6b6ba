"""The course of a judgement: the submission by itself, the tests, then the benchmarks."""

import base64
import hashlib
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from nvfp4.cli.bot import Bot, ProcessResult, import_timeout_s
from nvfp4.cli.errors import SetupError
from nvfp4.cli.mistakes import Mistake, import_failed
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
    unescape,
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
    run_alone: whether the submission is run by itself first, as the bot does. inputs: of the tests.
    stop_early: whether the first failure ends the tests. repeat: whether some tests run again in a
    fresh process.
    """

    tests: list[str]
    benchmarks: list[str]
    mode: str = "leaderboard"
    run_alone: bool = True
    inputs: tuple[str, ...] = ("contest", "full")
    stop_early: bool = False
    repeat: bool = True

    @property
    def all_tests(self) -> list[str]:
        """Every test on the contest's inputs, then every one on full-range inputs."""
        suffixes = {"contest": "", "full": full_range_suffix}
        return [line + suffixes[each] for each in self.inputs for line in self.tests]


_kinds = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_submission(submission: Path) -> tuple[Submission, bytes]:
    """Path and hash of the file, and its bytes. Raises SetupError where it cannot be read."""
    try:
        kind = submission.stat().st_mode
        if not stat.S_ISREG(kind):
            raise SetupError(
                f"{submission} is {_kinds.get(stat.S_IFMT(kind), 'no file')}, not a file",
                "Name the file with custom_kernel.",
            )
        content = submission.read_bytes()
    except OSError as error:
        raise SetupError(
            f"cannot read {submission}: {error.strerror}",
            "Name the file with custom_kernel.",
            "setup.unreadable",
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
    if plan.benchmarks and not verdict.mistake:
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

    def __init__(self, observer: Observer, lines: list[str], stop_early: bool) -> None:
        self._observer = observer
        self._lines = lines
        self._stop_early = stop_early
        self._seen: dict[str, str] = {}
        self.import_failure: str | None = None
        self.stopped = False

    def __call__(self, key: str, value: str) -> bool:
        """Whether the rest need not be judged."""
        self._seen[key] = value
        name, _, last = key.rpartition(".")
        if last == "error" and value.startswith(import_failed):
            self.import_failure = unescape(value)
            return True
        if last == "complete":
            self._tell(name)
            self.stopped = self._stop_early and self._seen.get(f"{name}.status") == "fail"
        return self.stopped

    def _tell(self, name: str) -> None:
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
    stop_early: bool = False,
) -> list[Result]:
    """Runs eval.py over cases and reads a result for each; notes what it says of the device and of
    the confinement. Results that disagree with how eval.py ended fail.
    """
    listener = _Listener(observer, lines, stop_early)
    process = judged(bot.run_eval(mode, lines, listener))
    verdict.device = read_device(process.values)
    verdict.confined = read_confinement(process.values)
    if listener.import_failure:
        verdict.mistake = Mistake("import", listener.import_failure, "submission.py")
        return []
    why = _why_unjudged(process)
    results = [read(process.values, index, line, why) for index, line in enumerate(lines)]
    if listener.stopped:
        return [_skipped(each) if each.message == why else each for each in results]
    if all(each.status == "pass" for each in results) and not _said_passed(process):
        return [replace(each, status="fail", message=why) for each in results]
    return results


def _skipped(result: Result) -> Result:
    reason = "not run: another test failed before"
    return replace(result, status="skipped", message=reason)


def _run_tests(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    lines = plan.all_tests
    observer.phase("tests", len(lines))
    verdict.tests = _run_mode(bot, "test", lines, read_test, verdict, observer, plan.stop_early)


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
    hint = "nvfp4 info shows what is here."
    raise SetupError(f"the judge could not start: {reason}", hint, "setup.judge")


def _why_unjudged(process: ProcessResult) -> str:
    """Why cases without a status have none."""
    if process.killed:
        return "not judged: the judge was stopped at the time limit"
    last = process.stderr.splitlines()[-1:]
    return "not judged: the judge ended early" + (f": {last[0]}" if last else "")
