"""The course of a judgement: the submission alone, the tests, then the benchmarks."""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from nvfp4.cli import verdict as verdicts
from nvfp4.cli.errors import SetupError, no_room
from nvfp4.cli.judging.bot import Bot, ProcessResult, import_timeout_s, side_by_side
from nvfp4.cli.judging.build_ahead import free_bytes
from nvfp4.cli.judging.overlap import Abandoned, BesideTests
from nvfp4.cli.judging.unclear_policy import Pace, refusal_of
from nvfp4.cli.judging.warnings import warnings_of
from nvfp4.cli.mistakes import Mistake
from nvfp4.cli.problem import Problem, read_file, shape_of
from nvfp4.cli.text import visible_json
from nvfp4.cli.verdict import BenchmarkResult, CaseResult, Device, Result, Submission, Verdict
from nvfp4.records.base import Record
from nvfp4.records.cases import full_range_suffix
from nvfp4.records.failures import Failure, read_failure
from nvfp4.records.processes import VARIABLE, end_last_turn, wait_for_another_turn

judged_exits = {0: "passed", 110: "CUDA error", 112: "check failed", 114: "timeout"}
"""Exit codes of eval.py when it has judged; any other means that it could not."""


interrupted = "not judged: interrupted"

_part_bytes = 3 << 30
"""Memory that a judge of large benchmarks may take with its processes."""

_least_shared = 8
"""Fewer tests than this are not worth a second judge."""


class Observer:
    """Progress callbacks, which do nothing here. Times are those of the monotonic clock."""

    def phase(self, noun: str, lines: list[str], ends_s: float) -> None:
        """A phase begins: test or benchmark, the lines of its cases, and when it ends at most."""

    def device(self, device: Device) -> None:
        """The device is known."""

    def started(self, index: int, at_s: float) -> None:
        """A case of the phase begins."""

    def activity(self, word: str) -> None:
        """The submission's process is busy with something; see ``read_activity``."""

    def finished(self, index: int, result: CaseResult) -> None:
        """A case is over; one that has passed may fail later."""


class Plan(Record):
    """The cases to judge, and how."""

    tests: list[str]
    """The cases of the tests, as lines of a case file."""
    benchmarks: list[str]
    problem: Problem
    run_alone: bool = True
    """Whether the submission is run by itself first, as the bot does."""
    inputs: tuple[str, ...] = ("contest", "full")
    """The kinds of inputs of the tests."""
    second_look: tuple[str, ...] = ()
    """Tests to run in addition, on every kind of inputs, as lines of a case file."""
    stop_at: str | None = None
    """The status, pass or fail, with which a test ends the tests; None for neither."""
    repeat: bool = True
    """Whether some tests run again in a fresh process."""

    @classmethod
    def of(cls, problem: Problem, **others: Any) -> "Plan":
        """Return a plan of all of a problem's cases, or of those in ``others``."""
        named = {"tests": problem.tests, "benchmarks": problem.benchmarks, **others}
        return cls(problem=problem, inputs=problem.inputs, **named)

    @property
    def all_tests(self) -> list[str]:
        """Return every test on the contest's inputs, every one on full-range inputs, and the second
        look."""
        suffixes = {"contest": "", "full": full_range_suffix}
        tests = [line + suffixes[each] for each in self.inputs for line in self.tests]
        return [*tests, *self.second_look]


_kinds = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_submission(submission: Path) -> tuple[Submission, bytes]:
    """Return path and hash of the file, and its bytes. Raises SetupError if it cannot be read."""
    hint = "Name the file with custom_kernel."
    try:
        kind = submission.stat().st_mode
        if not stat.S_ISREG(kind):
            message = f"{submission} is {_kinds.get(stat.S_IFMT(kind), 'no file')}, not a file"
            raise SetupError(message, hint)
        content = read_file(submission)
    except OSError as error:
        message = f"cannot read {submission}: {error.strerror or error}"
        raise SetupError(message, hint, "setup.unreadable") from error
    return Submission(str(submission), hashlib.sha256(content).hexdigest()), content


def assess(bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
    """Judges by the plan and fills the verdict. Raises SetupError.

    The submission runs by itself while the tests run, but never during a benchmark. An interrupt
    ends the judgement; the cases that were not judged then say so.
    """
    started = time.monotonic()
    try:
        _Judgement(bot, plan, verdict, observer).run()
    except KeyboardInterrupt:
        verdict.interrupted = True
        if not verdict.tests:
            tests = (verdicts.read_test({}, 0, line) for line in plan.all_tests)
            verdict.tests = [_left_out(test, interrupted) for test in tests]
        if not verdict.benchmarks:
            verdict.benchmarks = _skipped(plan.benchmarks, interrupted)
    end_last_turn()
    verdict.elapsed_s = (verdict.elapsed_s or 0.0) + time.monotonic() - started
    _mark_tests_without_kernels(verdict)
    verdict.warnings = warnings_of(verdict)


def _mark_tests_without_kernels(verdict: Verdict) -> None:
    """Mark tests without a kernel as unverified if a benchmark has one, since they do not test the
    kernel."""
    if not any(each.emulation for each in verdict.benchmarks):
        return
    for number, test in enumerate(verdict.tests):
        if test.status == "pass" and not test.emulated and not test.unverified:
            why = f"{shape_of(test.spec)} launches no kernel, a benchmark does"
            verdict.tests[number] = replace(test, unverified=why)


def _skipped(lines: list[str], reason: str) -> list[BenchmarkResult]:
    return [BenchmarkResult(spec=line, status="skipped", message=reason) for line in lines]


def _run_alone(bot: Bot) -> tuple[str | None, bool]:
    """Run the submission by itself, as the bot does first and ignores how that ends. Return how it
    failed, or None, and whether it took too long."""
    ended = bot.run_submission()
    if ended.killed:
        return f"python submission.py did not end within {import_timeout_s:.0f} s", True
    reason = f"python submission.py ended with exit code {ended.exit_code}\n{ended.stderr}".strip()
    return reason if ended.exit_code else None, False


class _Listener(Record, frozen=False):
    """Tells the observer about the device and the beginning and end of each case, and the pace
    about its duration."""

    observer: Observer
    pace: Pace
    lines: list[str]
    read_plainly: Callable[..., Any]
    """A function such as ``verdict.read_test``."""
    stop_at: str | None = None
    on_device: Callable[[bool], None] | None = None
    """Called where kernels are emulated, with True, and on a GPU, with False."""
    import_failure: str | None = None
    stopped: bool = False
    seen: dict[str, str] = field(default_factory=dict)
    """Every value so far."""
    complete: set[int] = field(default_factory=set)
    """The numbers of the cases whose values have all come."""

    def __call__(self, key: str, value: str) -> bool:
        """Note a value; return whether the rest need not be judged."""
        self.seen[key] = value
        name, _, last = key.rpartition(".")
        if last == "error" and f"{name}.by_import" in self.seen:
            failure = read_failure(visible_json(self.seen.get(f"{name}.failure")))
            if failure is None or refusal_of(failure) is None:
                self.import_failure = verdicts.unescape(value)
                return True
        if key == "device.complete" and (device := verdicts.read_device(self.seen)):
            self.observer.device(device)
        number = name.partition(".")[2]
        if number.isdecimal() and int(number) < len(self.lines):
            index = int(number)
            if last == "spec":
                self.observer.started(index, time.monotonic())
            if last == "complete":
                self.complete.add(index)
                result = self._read(self.seen, index)
                self.pace.add(result)
                self.stopped = result.status == self.stop_at
                self.observer.finished(index, result)
        if self.on_device and (last == "emulated" or (key, value) == ("device.kind", "cuda")):
            self.on_device(last == "emulated")
        return self.stopped

    def results(
        self, values: dict[str, str], why: Failure = verdicts.judge_ended, left_out: str = ""
    ) -> list[Any]:
        """Return the result of each case once no more values come. why: the failure of a case
        without a status. left_out: why cases were not judged that are not complete."""
        results = [self._read(values, index, why) for index in range(len(self.lines))]
        if left_out:
            for index in set(range(len(results))) - self.complete:
                results[index] = _left_out(results[index], left_out)
        return results

    def _read(self, values: dict[str, str], index: int, why: Failure = verdicts.judge_ended) -> Any:
        return self.decided(self.read_plainly(values, index, self.lines[index], why), values)

    def decided(self, result: Result, values: dict[str, str]) -> Result:
        """See ``Pace.decided``."""
        return self.pace.decided(result, emulated=values.get("device.kind") == "cpu")


def _left_out(result: Result, reason: str) -> Result:
    return replace(result, status="skipped", message=reason, failure=None)


class _Judgement(Record, frozen=False):
    """A judgement in progress, which fills the verdict."""

    bot: Bot
    plan: Plan
    verdict: Verdict
    observer: Observer
    pace: Pace = field(default_factory=Pace)

    def run(self) -> None:
        """Judge the tests, then the benchmarks; the submission by itself meanwhile."""
        bot, plan, verdict = self.bot, self.plan, self.verdict
        with (
            side_by_side(2) as pool,
            BesideTests(pool, self._run_apart, verdict, self.observer) as beside,
        ):
            alone = pool.submit(_run_alone, bot) if plan.run_alone else None
            if plan.tests:
                self._run_tests(beside.start if plan.benchmarks else None)
            if alone:
                verdict.alone, verdict.alone_too_long = alone.result()
            right = verdict.full_range_only_warns and not verdict.mistake
            if plan.benchmarks and right:
                wait_for_another_turn()
            if beside.started and right:
                beside.finish(verdict)
                return
        if plan.benchmarks and not verdict.mistake:
            if right:
                self._run_benchmarks()
            else:
                reason = "not run: a test on the contest's inputs failed"
                if verdict.keeps_state:
                    reason = "not run: what earlier calls left decides a test"
                elif verdict.unclear:
                    reason = "not run: not every test on the contest's inputs could be judged"
                verdict.benchmarks = _skipped(plan.benchmarks, reason)

    def _run_apart(
        self, verdict: Verdict, observer: Any, turn: AbstractContextManager[None], beside: bool
    ) -> None:
        apart = replace(self, bot=replace(self.bot, turn=turn), verdict=verdict, observer=observer)
        apart._run_benchmarks(beside)

    def _run_tests(self, on_device: Callable[[bool], None] | None) -> None:
        bot, plan, lines = self.bot, self.plan, self.plan.all_tests
        listener = _Listener(
            self.observer, self.pace, lines, verdicts.read_test, plan.stop_at, on_device=on_device
        )
        # A GPU waits for compilers and for processes: the tests are two judges', unless others are
        # tested at the same time.
        halves = not bot.may_emulate and len(lines) >= _least_shared and VARIABLE not in os.environ
        run = partial(bot.run_in_parts, parts=2) if halves else bot.run_eval
        self._run_mode(run, "test", listener)

    def _run_benchmarks(self, beside: bool = False) -> None:
        """Time the benchmarks, or count their work. beside: whether to start all parts at once,
        because the tests have launched emulated kernels."""
        bot, lines = self.bot, self.plan.benchmarks
        listener = _Listener(self.observer, self.pace, lines, verdicts.read_benchmark)
        fitting = min(len(lines), os.cpu_count() or 1, free_bytes() // _part_bytes)
        parts = max(1, fitting) if bot.may_emulate else 1
        run = partial(bot.run_in_parts, parts=parts, at_once=beside) if parts > 1 else bot.run_eval
        self._run_mode(run, "leaderboard", listener)

    def _run_mode(self, run: Callable[..., ProcessResult], mode: str, listener: _Listener) -> None:
        """Runs eval.py over cases and reads a result for each; notes what it says of the device and
        of the confinement. Results that disagree with how eval.py ended fail. An interrupt, or
        Abandoned, leaves those that are known so far. run: as `Bot.run_eval`.
        """
        verdict, lines, values = self.verdict, listener.lines, listener.seen
        noun = "test" if mode == "test" else "benchmark"
        results: list[Any] = verdict.tests if mode == "test" else verdict.benchmarks
        self.observer.phase(noun, lines, time.monotonic() + self.bot.options.timeout_s)
        try:
            told = self.observer.activity
            process = judged(run(mode, lines, on_result=listener, on_activity=told))
            values = process.values
        except (KeyboardInterrupt, Abandoned):
            results[:] = listener.results(values, left_out=interrupted)
            raise
        finally:
            verdict.device = verdicts.read_device(values)
            verdict.confined = verdicts.read_confinement(values)
        if listener.import_failure:
            verdict.mistake = Mistake("import", listener.import_failure, "submission.py")
            return
        why = _why_unjudged(process)
        reason = "not run: another test failed before" if listener.stopped else ""
        results[:] = listener.results(values, why, reason)
        passed = process.exit_code == 0 and values.get("check") == "pass"
        if all(each.status == "pass" for each in results) and not (passed or listener.stopped):
            for index, each in enumerate(results):
                failed = replace(each, status="fail", message=why.message, failure=why)
                results[index] = listener.decided(failed, values)


def judged(process: ProcessResult) -> ProcessResult:
    """Return the result if eval.py has judged. Raises SetupError if it could not start."""
    began = "test-count" in process.values or "benchmark-count" in process.values
    if began or process.killed or process.exit_code in judged_exits:
        return process
    lines = process.stderr.splitlines() or [f"eval.py ended with {process.exit_code}"]
    told = [each.removeprefix("eval.py: ") for each in lines if each.startswith("eval.py: ")]
    if not told and "No space left on device" in process.stderr:
        raise no_room
    reason, hint = (told or lines)[-1], "nvfp4 info shows what is here."
    if no_case := re.match(r"line \d+ of \S*cases\.txt: (.*)", reason):
        raise SetupError(f"there is no such case: {no_case[1]}", "Name other sizes.", "usage")
    if reason.startswith("the problem's own code"):
        hint = "docs/problems.md says what its folder must hold; a case needs all of its sizes."
    raise SetupError(f"the judge could not start: {reason}", hint, "setup.judge")


def _why_unjudged(process: ProcessResult) -> Failure:
    """Return why there are cases without a status."""
    if "check" in process.values:
        return verdicts.no_result
    if process.killed:
        if not any(name.startswith("confined.") for name in process.values):  # as its worker says
            what = "not judged: nothing of the submission had begun at the time limit"
            return replace(verdicts.judge_ended, message=what)
        return Failure("timeout.mode", "not judged: the judge was stopped at the time limit")
    last = process.stderr.splitlines()[-1:]
    return replace(verdicts.judge_ended, message=": ".join([verdicts.judge_ended.message, *last]))
