"""Judges a submission case by case."""

import base64
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import torch

from nvfp4.contract.task import input_t
from nvfp4.judge.cases import Case
from nvfp4.judge.clock import timing_checks
from nvfp4.judge.clock.device_limits import DeviceLimits
from nvfp4.judge.clock.stats import Stats, summarise
from nvfp4.judge.hooks import Clock, Hooks, Repetition
from nvfp4.judge.opened_case import (
    OpenedCase,
    OutOfTime,
    generate,
    longest_compile_s,
    seconds_left,
)
from nvfp4.judge.protocol import Exit, ResultPipe
from nvfp4.judge.submission_process import CaseFailed, SubmissionFailed, SubmissionProcess
from nvfp4.records.messages import Profile, Profiled

longest_value_bytes = 3000
"""Of a failure message or the counts of an emulated call."""

report_bytes = 14 << 10
"""Of a profile, before base64."""


@dataclass(frozen=True)
class Schedule:
    """How often a benchmark is called, whatever the submission does."""

    warm_up_calls: int
    timed_calls: int


schedules = {"cuda": Schedule(10, 100), "cpu": Schedule(1, 5)}


class Judge:
    """Writes every verdict; a method for each mode."""

    def __init__(
        self,
        process: SubmissionProcess,
        pipe: ResultPipe,
        device: torch.device,
        deadline: float,
        hooks: Hooks,
    ) -> None:
        """deadline: on the monotonic clock, in seconds."""
        self._process = process
        self._pipe = pipe
        self._device = device
        self._deadline = deadline
        self._hooks = hooks
        self._secret = os.urandom(16)
        self._failures: list[Exit] = []
        self._unloaded: SubmissionFailed | None = None

    def test(self, cases: list[Case], repetition: Repetition | None = None) -> Exit:
        """Each case once, and a few of them again in another process. Raises CannotRun."""
        self._load()
        outputs: list[torch.Tensor] = []
        self._pipe.write("test-count", len(cases))
        for index, case in enumerate(cases):
            key = f"test.{index}"
            self._pipe.write(f"{key}.spec", case.spec)
            opening = self._opened(case, self._hooks.open_test)
            with self._reported(key) as report, opening as opened:
                called, _ = opened.judged_call(generate(case, case.seed))
                opened.check_again()
                self._hooks.observe(opened, called, report)
                outputs.append(opened.output())
                report["status"] = "pass"
        if repetition is not None and not self._failures:
            for index in repetition.choose(cases, self._call_seed(len(cases), 0)):
                with self._reported(f"test.{index}"):
                    fresh_seed = self._call_seed(index, 0)
                    repetition.refuse_other_output(cases[index], outputs[index], fresh_seed)
        return self._end()

    def benchmark(self, cases: list[Case], limits: DeviceLimits, fresh_contents: bool) -> Exit:
        """Each case on its schedule.

        fresh_contents: every call sees new contents and every output is checked; otherwise the
        first and the last. Raises CannotRun.
        """
        floors = self._hooks.floors_ns(cases, limits)
        own_clock = self._own_clock()  # all before the submission is loaded
        self._load()
        self._pipe.write("benchmark-count", len(cases))
        for index, case in enumerate(cases):
            key = f"benchmark.{index}"
            self._write_floor(key, case, floors[index])
            opening = self._opened(case, self._hooks.open_benchmark)
            with self._reported(key) as report, opening as opened:
                data = generate(case, self._call_seed(index, 0) if fresh_contents else case.seed)
                first, _ = opened.judged_call(data)
                self._hooks.observe(opened, first, report)
                untimed = self._hooks.untimed(opened, first)
                if untimed:
                    report.update(untimed)
                    continue
                stats = self._time(opened, data, index, limits, fresh_contents)
                least_ns = min(floors[index], limits.floor_ns(case.bytes))
                timing_checks.refuse_impossible(stats, least_ns)
                if own_clock is not None:
                    seeds = (self._call_seed(index, -1 - call) for call in count())
                    report.update(own_clock.check(opened, stats, seeds))
                report.update({name: str(value) for name, value in vars(stats).items()})
        return self._end()

    def describe(self, cases: list[Case], limits: DeviceLimits) -> Exit:
        """The floor of each case, without a call."""
        for index, floor_ns in enumerate(self._hooks.floors_ns(cases, limits)):
            self._write_floor(f"benchmark.{index}", cases[index], floor_ns)
        return self._end()

    def profile(self, cases: list[Case]) -> Exit:
        """One call of each case under a profiler; its report as base64. Raises CannotRun."""
        self._load()
        self._pipe.write("benchmark-count", len(cases))
        for index, case in enumerate(cases):
            key = f"benchmark.{index}"
            self._pipe.write(f"{key}.spec", case.spec)
            with self._reported(key), self._opened(case, OpenedCase) as opened:
                data = generate(case, case.seed)
                answer, _ = opened.judged_request(data, Profile(), Profiled)
                encoded = base64.b64encode(answer.report.encode()[:report_bytes]).decode()
                self._pipe.write(f"{key}.report", encoded, longest_bytes=2 * report_bytes)
        return self._end()

    def _write_floor(self, key: str, case: Case, floor_ns: float) -> None:
        """What is known before it runs."""
        self._pipe.write(f"{key}.spec", case.spec)
        self._pipe.write(f"{key}.bytes", case.bytes)
        self._pipe.write(f"{key}.floor", floor_ns)

    def _load(self) -> None:
        """Where it fails, so does every case."""
        try:
            self._process.load(seconds_left(self._deadline, longest_compile_s))
        except SubmissionFailed as failed:
            self._unloaded = failed
        except OutOfTime:  # every case says so for itself
            return

    def _time(
        self,
        opened: OpenedCase,
        data: input_t,
        index: int,
        limits: DeviceLimits,
        fresh_contents: bool,
        attempts: int = 3,
    ) -> Stats:
        """After a first call on ``data``; again if a busy CPU delays answers."""
        schedule = schedules[self._device.type]
        samples = timing_checks.Samples(schedule.timed_calls)
        for call in count(1):
            if fresh_contents:
                data = generate(opened.case, self._call_seed(index, call + attempts * 10**6))
            answer, wall_ns = opened.judged_call(data, check=fresh_contents)
            if call >= schedule.warm_up_calls:
                samples.add(timing_checks.read_time(answer, wall_ns))
            if samples.complete:
                break
        if not fresh_contents:
            opened.check_output(opened.output(), data)
        opened.check_again()
        times = samples.times
        opened.times_ns = [each.call_ns for each in times]
        stats = summarise(opened.times_ns)
        timing_checks.refuse_unfinished(stats, times, limits)
        if self._device.type == "cpu":
            try:
                timing_checks.refuse_slow_clock(stats, times, 9 // attempts**2)
            except SubmissionFailed:
                if attempts == 1:
                    raise
                return self._time(opened, data, index, limits, fresh_contents, attempts - 1)
        return stats

    def _own_clock(self) -> Clock | None:
        if self._hooks.open_clock is None:
            return None
        try:
            own_clock = self._hooks.open_clock()
        except SubmissionFailed as failed:
            self._pipe.write("confined.clock", f"none: {failed}")
            return None
        except OutOfTime:  # every case says so for itself
            return None
        self._pipe.write("confined.clock", "calls behind a gate of the judge")
        return own_clock

    def _call_seed(self, case_index: int, call: int) -> int:
        """Unforeseeable."""
        text = f"{case_index}/{call}".encode()
        digest = hashlib.blake2b(text, key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "little") % 2**63

    @contextmanager
    def _opened(self, case: Case, open_case: Callable[..., OpenedCase]) -> Iterator[OpenedCase]:
        if self._unloaded:  # it may have taken all the time: the first case tells
            failed, self._unloaded = self._unloaded, None
            raise failed
        if time.monotonic() >= self._deadline:
            raise OutOfTime
        explain = self._hooks.explain
        opened = open_case(self._process, case, self._device, self._deadline, explain)
        try:
            yield opened
        finally:
            opened.close()

    @contextmanager
    def _reported(self, key: str) -> Iterator[dict[str, str]]:
        """Writes what the block puts into the report, or why it failed."""
        report: dict[str, str] = {}
        try:
            yield report
        except CaseFailed as failed:
            self._fail(key, failed, report)
            if failed.end is Exit.TIMED_OUT:  # the rest would hang as long
                self._deadline = time.monotonic()
        else:
            self._write(key, report)

    def _fail(self, key: str, failed: CaseFailed, report: dict[str, str]) -> None:
        if failed.end is not Exit.CHECK_FAILED and failed.end not in self._failures:
            timed_out = failed.end is Exit.TIMED_OUT  # the case's own message shows where it hangs
            said = failed.failure.message if timed_out else failed
            print(f"eval.py: {key}: {said}", file=sys.stderr)  # which the bot shows
        self._failures.append(failed.end)
        report["failure"] = failed.failure.as_json()
        if getattr(failed, "by_import", False):
            report["by_import"] = "true"
        self._write(key, {**report, "status": "fail", "error": str(failed)})

    def _write(self, key: str, report: dict[str, str]) -> None:
        self._hooks.end_case(report)
        for name, value in report.items():
            self._pipe.write(f"{key}.{name}", value, longest_bytes=longest_value_bytes)
        if report:
            self._pipe.complete(key)

    def _end(self) -> Exit:
        self._pipe.verdict(passed=not self._failures)
        for end in (Exit.TIMED_OUT, Exit.CUDA_ERROR, Exit.CHECK_FAILED):
            if end in self._failures:
                return end
        return Exit.PASSED
