"""What this machine is too slow to emulate does not fail; what hangs does."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from bot import case
from kept import invoke

from nvfp4.cli.display.sentences import closing_line
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.assess import Observer, Plan, assess
from nvfp4.cli.judging.bot import Bot, ProcessResult, side_by_side
from nvfp4.cli.judging.overlap import BesideTests
from nvfp4.cli.judging.unclear_policy import Pace, way_out
from nvfp4.cli.problem import case_line, load_problem
from nvfp4.cli.verdict import (
    BenchmarkResult,
    Submission,
    TestResult,
    Verdict,
    read_benchmark,
    read_test,
)
from nvfp4.records.failures import Failure
from nvfp4.records.options import Options

small, large = case(128, 256), case(7168, 16384)


def passed_in(seconds: float) -> Pace:
    pace = Pace()
    pace.add(TestResult(small, "pass", elapsed_s=seconds))
    return pace


def failed(spec: str, code: str, **arguments: float) -> TestResult:
    return TestResult(
        spec, "fail", "why", inputs="full", failure=Failure(code, arguments=arguments)
    )


def not_ended(spec: str, seconds: float, ours_s: float = 0.0) -> TestResult:
    """ours_s: of compiling and emulating."""
    more = {"not_its_own_s": ours_s} if ours_s else {}
    return failed(spec, "timeout.call", seconds=seconds, **more)


def not_imported(seconds: float, ours_s: float = 0.0) -> TestResult:
    result = not_ended(large, seconds, ours_s)
    assert result.failure
    return replace(result, failure=replace(result.failure, code="timeout.import"))


def read_failed(kind: str, spec: str, message: str, record: dict[str, Any]) -> Any:
    """A test or benchmark as the command reads it from a judge's lines."""
    values = {f"{kind}.0.status": "fail", f"{kind}.0.failure": json.dumps(record)}
    values[f"{kind}.0.error"] = message
    return (read_test if kind == "test" else read_benchmark)(values, 0, spec)


@pytest.mark.parametrize(
    ("result", "passed_s", "emulated", "status"),
    [
        (not_ended(large, 60), 0.4, True, "skipped"),
        (not_ended(case(128, 1536), 60), 0.4, True, "fail"),  # it should have taken a sixth of 1 s
        (not_ended(small, 0.4), 0.4, True, "skipped"),
        (not_ended(small, 60), 0.4, True, "fail"),
        (failed(large, "timeout.mode"), 0.4, True, "skipped"),
        (failed(large, "output.mismatch"), 0.4, True, "fail"),
        (TestResult(large, "pass", inputs="full"), 0.4, True, "pass"),
        (not_imported(0.02), 0.4, True, "skipped"),
        (not_imported(150), 0.4, True, "fail"),
        # Where nothing has passed, the time that is left decides.
        (not_ended(small, 60), 0, True, "fail"),
        (not_ended(large, 60), 0, True, "skipped"),  # a thread alone takes hours
        (not_ended(small, 1.44), 0, True, "skipped"),
        (not_ended(small, 60, ours_s=50), 0, True, "skipped"),
        (not_imported(150, ours_s=140), 0, True, "skipped"),
        (not_imported(150, ours_s=2), 0, True, "fail"),
        # One that got little of the processor is not said to hang.
        (failed(small, "kernel.runaway_kernel", seconds=60, cpu_s=60), 0, True, "fail"),
        (failed(small, "kernel.runaway_kernel", seconds=60, cpu_s=4), 0, True, "skipped"),
        # A compiler may be too slow where a GPU is not.
        (not_imported(150), 0, False, "fail"),
        (not_imported(150, ours_s=2), 0, False, "fail"),
        (not_imported(150, ours_s=140), 0, False, "skipped"),
    ],
)
def test_a_call_fails_only_where_it_should_have_ended(
    result: TestResult, passed_s: float, emulated: bool, status: str
) -> None:
    pace = passed_in(passed_s) if passed_s else Pace()
    decided = pace.decided(result, emulated)
    assert decided.status == status
    if status != "skipped":
        assert decided == result
    else:
        assert decided.failure
        assert decided.failure.code in ("not_judged.too_slow", "timeout.mode")


def test_a_kernel_that_is_still_running_says_for_how_long() -> None:
    message = "mine.py:7:3: error: the kernel is still running after 56 s: 9 rounds of this loop"
    record = {"code": "kernel.runaway_kernel", "message": message, "arguments": {"seconds": 56}}
    slow, endless = (
        read_failed("benchmark", spec, message, record) for spec in (large, case(256, 512))
    )
    decided = passed_in(0.4).decided(slow, emulated=True)
    assert decided.status == "skipped"
    assert decided.message == f"not judged: too slow here: {message}"
    assert passed_in(0.4).decided(endless, emulated=True).status == "fail"


def test_what_is_not_emulated_may_be_right() -> None:
    message = "mine.py:3:1: error: wmma.mma is not emulated [unsupported_instruction]"
    record = {"code": "kernel.unsupported_instruction", "message": message, "line": 3}
    decided = Pace().decided(read_failed("test", small, message, record), emulated=True)
    assert (decided.status, decided.message) == ("skipped", f"not judged: not emulated: {message}")
    verdict = Verdict(Submission("mine.py", "0" * 64), tests=[decided])
    assert verdict.unclear
    assert not verdict.passed
    assert str(closing_line(verdict)) == "unclear: nothing was judged; on a GPU it can be judged"


def test_the_first_case_may_have_compiled_for_long() -> None:
    pace = passed_in(40.0)
    pace.add(TestResult(case(256, 7168), "pass", elapsed_s=1.0))
    assert pace.decided(not_ended(case(512, 7168), 60), emulated=True).status == "fail"


class Slow:
    """eval.py on a machine on which the second test and the benchmark take too long."""

    repeat = True
    may_emulate = False
    options = Options()

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def run_submission(self) -> ProcessResult:
        return ProcessResult(0, "")

    def run_eval(self, mode, cases, on_result, on_activity, parts=1) -> ProcessResult:  # type: ignore[no-untyped-def]
        kind = "test" if mode == "test" else "benchmark"
        lines = [("device.kind", self._kind), (f"{kind}-count", str(len(cases)))]
        for index, spec in enumerate(cases):
            ended = kind == "test" and index != 1
            lines.append((f"{kind}.{index}.spec", spec))
            lines.append((f"{kind}.{index}.status", "pass" if ended else "fail"))
            if not ended:
                lines.append((f"{kind}.{index}.failure", '{"code": "timeout.mode"}'))
            lines.append((f"{kind}.{index}.complete", "true"))
        lines.append(("check", "fail"))
        for key, value in lines:
            on_result(key, value)
        return ProcessResult(114, "", values=dict(lines))

    run_in_parts = run_eval


def judged(kind: str, **plan: object) -> Verdict:
    verdict = Verdict(Submission("mine.py", "0" * 64))
    assess(Slow(kind), Plan(problem=load_problem(), **plan), verdict, Observer())  # type: ignore[arg-type]
    return verdict


def test_a_verdict_is_unclear_where_only_the_time_was_short() -> None:
    verdict = judged("cpu", tests=[small, large], benchmarks=[], inputs=("contest",))
    assert [each.status for each in verdict.tests] == ["pass", "skipped"]
    assert (verdict.unclear, verdict.passed) == (True, False)
    line = str(closing_line(verdict))
    assert line.startswith("unclear in ")
    assert line.endswith("of 2 tests 1 passed, 1 not judged; --timeout gives more time")


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (("timeout.mode",), "--timeout gives more time"),
        (("not_judged.judge_ended", "timeout.mode"), "--timeout gives more time"),
        (("not_judged.judge_ended",), "try again"),
        (("not_judged.too_slow", "not_judged.not_emulated"), "on a GPU it can be judged"),
        (("not_judged.machine_limit", "timeout.mode"), "on a larger machine it can be judged"),
    ],
)
def test_what_would_help_is_said(codes: tuple[str, ...], said: str) -> None:
    assert way_out(set(codes)) == said


def test_benchmarks_that_take_too_long_or_do_not_run_leave_it_unclear() -> None:
    slow, not_run = (
        judged("cpu", tests=tests, benchmarks=[large]) for tests in ([small], [small, large])
    )
    for verdict in (slow, not_run):
        assert [each.status for each in verdict.benchmarks] == ["skipped"]
        assert verdict.unclear
    reason = "not run: not every test on the contest's inputs could be judged"
    assert not_run.benchmarks[0].message == reason


def test_full_range_tests_that_take_too_long_are_no_reason_to_warn() -> None:
    verdict = judged("cpu", tests=[small], benchmarks=[])
    assert verdict.passed
    assert not verdict.unclear
    assert not verdict.warnings
    assert str(closing_line(verdict)).endswith("; not judged: 1 test with full-range inputs")


def test_a_gpu_is_never_too_slow() -> None:
    verdict = judged("cuda", tests=[small, large], benchmarks=[], inputs=("contest",))
    assert [each.status for each in verdict.tests] == ["pass", "fail"]
    assert not verdict.unclear


def test_where_one_case_is_wrong_nothing_is_unclear() -> None:
    wrong = TestResult(small, "fail", "1 of 128 elements are wrong")
    left = TestResult(large, "skipped", "not judged: the time limit was reached")
    assert not Verdict(Submission("mine.py", "0" * 64), tests=[wrong, left]).unclear
    verdict = Verdict(Submission("mine.py", "0" * 64), benchmarks=[BenchmarkResult(large, "pass")])
    assert not verdict.unclear


@pytest.mark.parametrize("command", ["check", "test"])
def test_an_import_that_needs_what_is_not_emulated_is_unclear(command: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import ctypes\n\nctypes.CDLL('libcudart.so.12')\ncustom_kernel = len\n")
    ended = invoke(command, str(path))
    assert ended.exit_code == 3, ended.output
    assert "not emulated: its own process says: the import failed" in ended.output
    assert "libcudart, opened by ctypes, needs a GPU" in ended.output


# A judge that is started before its turn has everything loaded, and judges only then.

CASE = case_line({"m": 128, "k": 256, "l": 1, "seed": 1})
SUBMISSION = b"def custom_kernel(data):\n    return data[6]\n"


def test_a_judge_says_nothing_before_its_turn_and_ends_within_it() -> None:
    told: list[tuple[str, str]] = []

    @contextmanager
    def turn() -> Iterator[None]:
        time.sleep(2.0)
        assert told == []
        yield
        told.append(("turn", "over"))

    bot = Bot(load_problem(), SUBMISSION, Options(device="cpu"), turn=turn())
    ended = bot.run_eval("test", [CASE], lambda key, value: told.append((key, value)))
    assert told[-1] == ("turn", "over")
    assert len(told) > 1
    assert ended.values == dict(told[:-1])


class Run:
    """Benchmarks that only note when their turn begins."""

    def __init__(self) -> None:
        self.started, self.judged = threading.Event(), threading.Event()

    def __call__(self, verdict: Verdict, observer: Any, turn: Any, beside: bool) -> None:
        self.started.set()
        with turn, turn:  # each judge of a part has it
            observer.started(0, 0.0)
            self.judged.set()
            verdict.benchmarks = [BenchmarkResult(spec=CASE, status="pass")]


@pytest.fixture
def beside() -> Iterator[tuple[BesideTests, Run, Verdict]]:
    run, verdict = Run(), Verdict(Submission("mine.py", ""))
    with ThreadPoolExecutor(1) as pool, BesideTests(pool, run, verdict, Observer()) as benchmarks:
        yield benchmarks, run, verdict


@pytest.mark.parametrize("judges", [False, True])
def test_on_a_gpu_benchmarks_wait_for_the_end_of_the_tests(
    beside: tuple[BesideTests, Run, Verdict], judges: bool
) -> None:
    benchmarks, run, verdict = beside
    benchmarks.start(judges)
    assert run.started.wait(5)
    assert run.judged.wait(0.3) == judges
    benchmarks.finish(verdict)
    assert [each.status for each in verdict.benchmarks] == ["pass"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SetupError("no judge", "")])
def test_what_ends_the_tests_ends_benchmarks_that_wait_for_them(error: BaseException) -> None:
    run, verdict = Run(), Verdict(Submission("mine.py", ""))

    def judge() -> None:
        with side_by_side(2) as pool, BesideTests(pool, run, verdict, Observer()) as benchmarks:
            benchmarks.start(False)
            assert run.started.wait(5)
            raise error

    assert ThreadPoolExecutor(1).submit(judge).exception(timeout=5) is error
    assert not run.judged.is_set()
    assert verdict.benchmarks == []


@dataclass(frozen=True)
class InParts(Bot):
    """A bot whose judges say what stands in a part's cases."""

    def run_eval(self, mode: str, cases: list[str], *tell: Any) -> ProcessResult:
        on_result = tell[0]
        on_result("device.kind", "cpu")
        on_result("benchmark-count", str(len(cases)))
        for number, each in enumerate(cases):
            on_result(f"benchmark.{number}.status", each)
        if "killed" in cases:
            return ProcessResult(-9, "", killed=True)
        failed = "fail" in cases
        return ProcessResult(112 * failed, "", values={"check": "fail" if failed else "pass"})


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("cases", [["pass", "pass", "pass"], ["pass", "fail", "pass"]])
def test_judges_that_share_cases_say_what_one_would(cases: list[str], at_once: bool) -> None:
    told: list[tuple[str, str]] = []
    bot = InParts(load_problem(), b"")

    def tell(*result: str) -> None:
        told.append((result[0], result[1]))

    ended = bot.run_in_parts("leaderboard", cases, 2, tell, at_once=at_once)
    statuses = {f"benchmark.{number}.status": each for number, each in enumerate(cases)}
    assert {key: value for key, value in told if key in statuses} == statuses
    assert [key for key, _ in told].count("device.kind") == 1
    assert ended.values["check"] == min(cases)
    assert ended.exit_code == (112 if "fail" in cases else 0)


def test_a_judge_that_waits_for_another_has_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    had_s: list[float] = []

    def judge(self: Bot, mode: str, cases: list[str], on_result: Any, look: Any) -> Any:
        had_s.append(self.options.timeout_s)
        time.sleep(0.2)
        on_result("benchmark.0.emulated", "true")
        return ProcessResult(0, "", values={"check": "pass"})

    monkeypatch.setattr(Bot, "run_eval", judge)
    bot = Bot(load_problem(), b"", Options(timeout_s=60.0))
    bot.run_in_parts("leaderboard", ["a", "b"], 2, lambda *_: None, at_once=False)
    assert had_s[0] == pytest.approx(60.0, abs=0.1)
    assert had_s[1] < had_s[0] - 0.15


def test_a_judge_whose_result_ends_the_run_is_the_last() -> None:
    told: list[str] = []
    bot = InParts(load_problem(), b"")

    def stop(key: str, value: str) -> bool:
        told.append(key)
        return key == "benchmark.0.status"

    bot.run_in_parts("leaderboard", ["pass", "pass"], 2, stop, at_once=False)
    assert "benchmark.1.status" not in told


def test_a_judge_that_is_killed_leaves_no_outcome_of_the_whole() -> None:
    bot = InParts(load_problem(), b"")
    ended = bot.run_in_parts("leaderboard", ["pass", "killed", "pass"], 2, lambda *_: None)
    assert (ended.exit_code, ended.killed, "check" in ended.values) == (-9, True, False)
