"""Judges a submission case by case."""

import base64
import hashlib
import json
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import field, replace
from functools import partial
from itertools import count
from typing import Any

import torch

from nvfp4.contract.referee import Drawn, Output, Referee
from nvfp4.judge import opened_case
from nvfp4.judge.ahead import Ahead
from nvfp4.judge.clock import timing_checks
from nvfp4.judge.clock.calibration import Calibration
from nvfp4.judge.clock.gated_clock import GatedClock
from nvfp4.judge.fresh_process import Repetition
from nvfp4.judge.later_calls import LaterCalls, make_all, refuse_state
from nvfp4.judge.observing import Hooks
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, OutOfTime
from nvfp4.judge.printed import unheard
from nvfp4.judge.protocol import Exit, ResultPipe
from nvfp4.judge.submission_process import CaseFailed, SubmissionFailed, SubmissionProcess
from nvfp4.records.base import Record
from nvfp4.records.cases import Case
from nvfp4.records.failures import OPTIONAL
from nvfp4.records.messages import Called, Profile, Profiled

longest_value_bytes = 3000
"""Limit on a failure message, or on the counts of an emulated call."""

longest_essential_bytes = 240

test_bytes, benchmark_bytes = 390, 1030
"""Room for what a verdict depends on: a case's line, whether it passed, times, a code, marks."""

report_bytes = 14 << 10
"""Limit on a profile, before base64."""


class Schedule(Record):
    """The number of calls of a benchmark, which a submission cannot change."""

    warm_up_calls: int
    timed_calls: int


schedules = {"cuda": Schedule(10, 100), "cpu": Schedule(1, 5)}


class _Measured(Record):
    """Measurements of the device."""

    calibrated: Callable[[], Calibration]
    """Returns what does not depend on the submission. It is measured before the submission is
    loaded on a GPU, and otherwise when first needed, as emulated kernels have no time."""
    own_clock: GatedClock | None
    fresh_contents: bool
    """Whether every call sees new contents."""


_share_of_emulation = 0.5
"""Share of the time left for a benchmark after which only some thread blocks are run."""

cases_at_once = 3
"""Number of cases whose further calls are interleaved; all are in memory."""


class Judge(Record, frozen=False):
    """Writes every verdict; a method for each mode."""

    _process: SubmissionProcess
    _pipe: ResultPipe
    _device: torch.device
    _deadline: float
    """On the monotonic clock, in seconds."""
    _hooks: Hooks
    _referee: Referee
    _secret: bytes = field(default_factory=lambda: os.urandom(16))
    _failures: dict[str, Exit] = field(default_factory=dict)
    """How each case that failed has ended, by its key."""
    _began_s: float = 0.0
    _unloaded: SubmissionFailed | None = None
    _looked_for_state: bool = False

    def __post_init__(self) -> None:
        self._ahead = Ahead(self._device.type == "cpu")

    def test(self, cases: list[Case], repetition: Repetition | None = None) -> Exit:
        """Judge each case once, those that decide once more, and a few of these in another
        process."""
        outputs: dict[int, Output] = {}
        ordered = self._by_cost(cases)
        later: dict[int, LaterCalls] = {}
        draws = [partial(self._first, self._referee.draw, case, case.seed) for _, case in ordered]
        self._load(draws)
        self._pipe.write("test-count", len(cases))
        self._pipe.reserve(len(cases), test_bytes)
        for place, (index, case) in enumerate(ordered):
            key = f"test.{index}"
            self._write_essential(f"{key}.spec", case.spec)
            with self._reported(key) as report, self._opened(case) as opened:
                called = self._test(opened, self._ahead.take_of(draws, place), place > 0)
                opened.check_again()
                self._hooks.observe(opened, called, report)
                outputs[index] = opened.returned()
                report["status"] = "pass"
                if repetition is not None:
                    repetition.begin()
                open_again = partial(self._opened, case)
                later[index] = self._later(case, open_again, opened.last_call_s, least=1)
        numbers = range(len(cases))
        deciding = [index for index in numbers if not cases[index].full_range] or numbers
        later = {index: each for index, each in later.items() if index in deciding}
        self._make_all(later, "test")
        failed = {index for index in numbers if f"test.{index}" in self._failures}
        if repetition is not None and failed.isdisjoint(deciding):
            left_out = failed | {index for index, each in later.items() if each.is_long}
            for index in repetition.choose(cases, left_out, self._call_seed(len(cases), 0)):
                with self._adding(f"test.{index}") as report:
                    fresh_seed = self._call_seed(index, 0)
                    try:
                        repetition.refuse_other_output(cases[index], outputs[index], fresh_seed)
                    except OutOfTime:
                        report["unverified"] = "there was no time for calls in a fresh process"
        return self._end()

    def _test(self, opened: OpenedCase, drawn: Drawn, earlier: bool) -> Called:
        """Make the call of a test.

        Without a GPU, where another process costs little, the first full-range output that is wrong
        after earlier calls is computed again in a new process.
        """
        try:
            return opened.judged_call(drawn)[0]
        except SubmissionFailed as failed:
            wrong = opened.case.full_range and failed.end is Exit.CHECK_FAILED
            if wrong and earlier and self._device.type == "cpu" and not self._looked_for_state:
                self._looked_for_state = True
                refuse_state(opened, failed, drawn)
            raise

    def benchmark(
        self, cases: list[Case], calibrated: Callable[[], Calibration], fresh_contents: bool
    ) -> Exit:
        """Judge each case on its schedule; the calibration has the cases' floors.

        calibrated: see ``_Measured``. fresh_contents: every call sees new contents and every output
        is checked; otherwise only the first and the last.
        """
        floors_ns = calibrated().floors_ns if self._device.type == "cuda" else []
        # The own clock comes before the submission is loaded.
        measured = _Measured(calibrated, self._own_clock(), fresh_contents)
        ordered = self._by_cost(cases)
        draw = self._referee.redraw if fresh_contents else self._referee.draw
        draws = [
            partial(self._first, draw, case, self._call_seed(i, 0) if fresh_contents else case.seed)
            for i, case in ordered
        ]
        self._load(draws)
        self._pipe.write("benchmark-count", len(cases))
        self._pipe.reserve(len(cases), benchmark_bytes)
        for start in range(0, len(cases), cases_at_once):
            together = draws[: start + cases_at_once]  # later calls come before the next first one
            with ExitStack() as open_cases:
                later: dict[int, LaterCalls] = {}
                for place, (index, case) in enumerate(ordered[start : start + cases_at_once]):
                    key = f"benchmark.{index}"
                    left_s = self._deadline - time.monotonic()
                    longest_s = _share_of_emulation * left_s / (len(cases) - start - place)
                    self._write_facts(key, case, floors_ns[index] if floors_ns else None)
                    with self._reported(key) as report:
                        opened = open_cases.enter_context(self._opened(case))
                        first = partial(self._ahead.take_of, together, start + place)
                        call_s = self._benchmark(opened, index, first, measured, longest_s, report)
                        full_at = secrets.randbelow(2) if self._referee.draws_full_range else None
                        later[index] = self._later(case, opened.resumed, call_s, 2, full_at)
                self._make_all(later, "benchmark")
        return self._end()

    def _by_cost(self, cases: list[Case]) -> list[tuple[int, Case]]:
        """Return the cases with their numbers.

        If a large case may take all the time, those whose inputs decide come first, the cheapest of
        them first.
        """
        numbered = list(enumerate(cases))
        if self._device.type == "cpu":
            numbered.sort(key=lambda each: math.inf if each[1].full_range else each[1].elements)
        return numbered

    def _later(self, case: Case, *arguments: Any, **named: Any) -> LaterCalls:
        def redraw(full_range: bool) -> Drawn:
            return self._referee.redraw(replace(case, full_range=full_range), secrets.randbits(62))

        return LaterCalls(case, redraw, *arguments, **named)

    def _make_all(self, later: dict[int, LaterCalls], kind: str) -> None:
        make_all(later, self._deadline, lambda index: self._adding(f"{kind}.{index}"), self._ahead)

    def _benchmark(
        self,
        opened: OpenedCase,
        index: int,
        draw: Callable[[], Drawn],
        measured: "_Measured",
        longest_s: float,
        report: dict[str, str],
    ) -> float:
        """Report counts or times of a case, and return how many seconds a call takes.

        draw: returns the inputs of the first call. longest_s: limit on an emulation.
        """
        opened.is_benchmark, opened.longest_s = True, longest_s
        data = draw()
        first, _ = opened.judged_call(data, check=False)
        call_s = opened.last_call_s
        unclear = self._why_unclear(opened, data)
        self._hooks.observe(opened, first, report)
        untimed = self._hooks.untimed(opened, first)
        report.update(untimed)
        if unclear is not None:
            raise unclear
        if opened.rewrites and opened.reuses_inputs:
            opened.call_on_changed_inputs(data)
        if untimed:
            return call_s
        self._ahead.wait()  # nothing else runs while it is timed
        if self._device.type == "cpu":
            floor_ns = measured.calibrated().floors_ns[index]
            self._write_essential(f"benchmark.{index}.floor", floor_ns)
        stats = self._time(opened, data, index, measured)
        floor_ns = measured.calibrated().limits.floor_ns(opened.plan.least_bytes)
        floor_ns = min(measured.calibrated().floors_ns[index], floor_ns)
        timing_checks.refuse_impossible(stats, floor_ns)
        if measured.own_clock is not None:
            seeds = (self._call_seed(index, -1 - call) for call in count())
            report.update(measured.own_clock.check(opened, stats, seeds))
        report.update({name: str(value) for name, value in vars(stats).items()})
        report["samples"] = ",".join(f"{each:.6g}" for each in opened.times_ns)
        return opened.last_call_s

    def _why_unclear(self, opened: OpenedCase, data: Drawn) -> CaseFailed | None:
        """Return why it is unknown whether an output is right; None if it is right. Raises
        SubmissionFailed if it is wrong."""
        if opened.sampled:
            return CaseFailed("not_judged.too_slow", opened.sampled)
        try:
            opened.check_output(opened.returned(), data)
        except SubmissionFailed as failed:
            if failed.failure.code != "not_judged.rounding":
                raise
            return failed
        return None

    def describe(self, cases: list[Case], calibration: Calibration) -> Exit:
        """Write the floor of each case, without a call."""
        for index, floor_ns in enumerate(calibration.floors_ns):
            self._write_facts(f"benchmark.{index}", cases[index], floor_ns)
        return self._end()

    def profile(self, cases: list[Case]) -> Exit:
        """Run one call of each case under a profiler; the report is written as base64."""
        self._load()
        self._pipe.write("benchmark-count", len(cases))
        for index, case in enumerate(cases):
            key = f"benchmark.{index}"
            self._pipe.write(f"{key}.spec", case.spec)
            with self._reported(key), self._opened(case) as opened:
                answer, _ = opened.judged_request(opened.draw(case.seed), Profile(), Profiled)
                encoded = base64.b64encode(answer.report.encode()[:report_bytes]).decode()
                self._pipe.write(f"{key}.report", encoded, longest_bytes=2 * report_bytes)
        return self._end()

    def _write_facts(self, key: str, case: Case, floor_ns: float | None) -> None:
        """Write the facts about a case that are known before it runs."""
        self._write_essential(f"{key}.spec", case.spec)
        published = self._referee.published(case)
        self._write_essential(f"{key}.bytes", published.least_bytes)
        for name, value in published.figures.items():
            self._write_essential(f"{key}.{name}", value)
        if floor_ns is not None:
            self._write_essential(f"{key}.floor", floor_ns)

    def _load(self, draws: Sequence[Callable[[], Drawn]] = ()) -> None:
        """Load the submission; if that fails, every case fails.

        draws: return the inputs of the first calls, which are drawn meanwhile.
        """
        for draw in draws[:1]:
            self._ahead.prepare(0, draw)
        try:
            left_s = opened_case.seconds_left(self._deadline, opened_case.longest_compile_s)
            self._process.load(left_s)
        except SubmissionFailed as failed:
            self._unloaded = failed
        except OutOfTime:  # every case says so for itself
            return

    def _time(
        self, opened: OpenedCase, data: Drawn, index: int, measured: "_Measured", attempts: int = 3
    ) -> timing_checks.Stats:
        """Time calls, after a first one on ``data``; again if a busy CPU delays answers."""
        fresh_contents = measured.fresh_contents
        schedule = schedules[self._device.type]
        samples = timing_checks.Samples(schedule.timed_calls)
        for call in count(1):
            if fresh_contents:
                seed = self._call_seed(index, call + attempts * 10**6)
                data = self._referee.redraw(opened.case, seed)
            answer, wall_ns = opened.judged_call(data, check=fresh_contents)
            if call >= schedule.warm_up_calls:
                samples.add(timing_checks.read_time(answer, wall_ns))
            if samples.complete:
                break
        if not fresh_contents:
            opened.check_output(opened.returned(), data)
        opened.check_again()
        times = samples.times
        opened.times_ns = [each.call_ns for each in times]
        stats = timing_checks.summarise(opened.times_ns)
        try:
            timing_checks.refuse_unfinished(stats, times, measured.calibrated().limits)
            if self._device.type == "cpu":
                timing_checks.refuse_slow_clock(stats, times, 9 // attempts**2)
        except SubmissionFailed:
            if attempts == 1:
                raise
            return self._time(opened, data, index, measured, attempts - 1)
        return stats

    def _own_clock(self) -> GatedClock | None:
        try:
            own_clock = self._hooks.open_clock()
        except SubmissionFailed as failed:
            self._pipe.write("confined.clock", f"none: {failed}")
            return None
        except OutOfTime:  # every case says so for itself
            return None
        if own_clock is not None:
            self._pipe.write("confined.clock", "calls behind a gate of the judge")
        return own_clock

    def _first(self, draw: Callable[[Case, int], Drawn], case: Case, seed: int) -> Drawn:
        """Return the inputs of a first call, and the expected output if it can be computed
        meanwhile."""
        drawn = draw(case, seed)
        return self._referee.expect(drawn) if self._device.type == "cpu" else drawn

    def _call_seed(self, case_index: int, call: int) -> int:
        """Return an unpredictable seed."""
        text = f"{case_index}/{call}".encode()
        digest = hashlib.blake2b(text, key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "little") % 2**63

    @contextmanager
    def _opened(self, case: Case) -> Iterator[OpenedCase]:
        if self._unloaded:  # it may have taken all the time: the first case tells
            failed, self._unloaded = self._unloaded, None
            raise failed
        if time.monotonic() >= self._deadline:
            raise OutOfTime
        setup = CaseSetup(self._process, self._device, self._deadline, self._referee, True)
        with closing(OpenedCase(setup, case)) as opened:
            yield opened

    @contextmanager
    def _reported(self, key: str, complete: bool = True) -> Iterator[dict[str, str]]:
        """Write the dictionary that the block fills into the report, or why the case failed.
        complete: whether that completes the report."""
        report: dict[str, str] = {}
        self._began_s = time.monotonic()
        try:
            yield report
        except CaseFailed as failed:
            self._fail(key, failed, report)
            if failed.end is Exit.TIMED_OUT:  # the rest would hang as long
                self._deadline = time.monotonic()
        else:
            self._write(key, report, complete)

    @contextmanager
    def _adding(self, key: str) -> Iterator[dict[str, str]]:
        """Add to the report of a case that was reported before; discard what is printed in it."""
        with self._reported(key, complete=False) as report, unheard(self._process.stdout):
            yield report

    def _fail(self, key: str, failed: CaseFailed, report: dict[str, str]) -> None:
        if failed.end is not Exit.CHECK_FAILED and failed.end not in self._failures.values():
            # The case's own message shows where it hangs.
            said = failed.failure.message if failed.end is Exit.TIMED_OUT else failed
            print(f"eval.py: {key}: {said}", file=sys.stderr)  # which the bot shows
        self._failures[key] = failed.end
        self._write_essential(f"{key}.failure", json.dumps({"code": failed.failure.code}))
        report["failure"] = failed.failure.as_json()
        if getattr(failed, "by_import", False):
            report["by_import"] = "true"
        self._write(key, {**report, "status": "fail", "error": str(failed)})

    def _write(self, key: str, report: dict[str, str], complete: bool = True) -> None:
        """Write the fields that a verdict depends on first, then the others while there is room."""
        self._hooks.end_case(report)
        if report and complete:
            report["elapsed_s"] = f"{time.monotonic() - self._began_s:.3f}"
        for name, value in report.items():
            if name not in OPTIONAL:
                self._write_essential(f"{key}.{name}", value)
        dropped = []
        for name in [each for each in OPTIONAL if each in report]:
            if not self._pipe.write(f"{key}.{name}", report[name], longest_value_bytes):
                dropped.append(name)
        if dropped:
            self._write_essential(f"{key}.dropped", ",".join(dropped))
        if report and complete:
            self._pipe.complete(key)

    def _write_essential(self, key: str, value: object) -> None:
        self._pipe.write(key, value, longest_essential_bytes, essential=True)

    def _end(self) -> Exit:
        self._pipe.verdict(passed=not self._failures)
        worst_first = (Exit.TIMED_OUT, Exit.CUDA_ERROR, Exit.CHECK_FAILED)
        return next((end for end in worst_first if end in self._failures.values()), Exit.PASSED)
