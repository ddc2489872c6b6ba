"""Tables from verdicts made by hand, as far as the texts in screens/ do not show them."""

import io
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bot import case
from recorded_verdicts import recorded_verdict
from rich.console import Console
from screens.verdicts import Clock, cpu, gpu, play
from screens.verdicts import emulated as emulated_benchmark
from screens.verdicts import timed as benchmark_near_the_floor

from gemv import plan_of
from nvfp4.capture import activity
from nvfp4.cli.batch.progress import result_line
from nvfp4.cli.display.benchmark_tables import benchmark_columns, title
from nvfp4.cli.display.console import Column, fitted, new_console, say, show_table, table
from nvfp4.cli.display.progress import Progress, observed
from nvfp4.cli.display.render import show
from nvfp4.cli.display.sentences import closing_line, failure_lines, finding_lines
from nvfp4.cli.history.database import History
from nvfp4.cli.history.judgements import keep, show_log
from nvfp4.cli.judging.assess import Observer, Plan, assess
from nvfp4.cli.judging.bot import Bot, ProcessResult
from nvfp4.cli.judging.warnings import warnings_of
from nvfp4.cli.problem import load_problem
from nvfp4.cli.text import first_lines, microseconds, most_lines, seconds, visible, visible_json
from nvfp4.cli.verdict import (
    BenchmarkResult,
    Submission,
    TestResult,
    Verdict,
    Warning,
    full_range_suffix,
    no_result,
    read_benchmark,
    read_test,
)
from nvfp4.contract.referee import Output
from nvfp4.judge.observing import findings_of
from nvfp4.records.failures import Failure, Finding, read_findings
from nvfp4.records.files import clear
from nvfp4.records.messages import Called, Ended
from nvfp4.records.options import Options

timed = benchmark_near_the_floor(case(7168, 16384))


def verdict(
    tests: list[TestResult] | None = None, benchmarks: list[BenchmarkResult] | None = None
) -> Verdict:
    made = Submission("submission.py", "0" * 64)
    return Verdict(made, gpu, tests=tests or [], benchmarks=benchmarks or [])


def both(contest: str, full: str, message: str | None = None) -> list[TestResult]:
    return [
        TestResult(case(), status, message if status == "fail" else None, inputs=inputs)
        for inputs, status in (("contest", contest), ("full", full))
    ]


def shown(made: Verdict) -> str:
    output = io.StringIO()
    show(Console(file=output, width=140, color_system=None, highlight=False), made)
    return output.getvalue()


def row(text: str, start: str) -> list[str]:
    """The cells of the first table row that begins so; two spaces or more lie between cells."""
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if cells[0] == start:
            return cells
    raise AssertionError(f"no row {start!r} in\n{text}")


def test_the_table_has_room_and_names_the_flush() -> None:
    wide = replace(timed, worst_us=1234.5, batched_us=20.123, mean_us=199.4, floor_us=199.4)
    made = verdict([], [wide] * 3)
    made.device = replace(gpu, flush="contest")
    for width in (80, 100):
        lines = table(fitted(benchmark_columns(made), width), width)
        assert max(line.cell_len for line in lines) <= width
    assert "after the contest's flush" in title(made)
    made.device = replace(gpu, flush="clean")
    assert "after a clean flush" in title(made)


def test_times_that_are_all_long_are_shown_in_milliseconds() -> None:
    scale = {
        name: getattr(timed, name) * 1000
        for name in ("mean_us", "median_us", "err_us", "best_us", "worst_us", "floor_us")
    }
    text = shown(verdict([], [replace(timed, **scale)]))
    assert "times in ms" in text
    assert f"{timed.mean_us:.3f}" in row(text, "7168 x 16384 x 1")


def test_a_message_that_repeats_is_shown_once() -> None:
    text = shown(verdict(both("fail", "fail", "the same\nfor all") * 5))
    assert text.count("the same") == 1
    assert "and 9 more failures" in text
    assert text.splitlines()[-1] == "failed: 10 of 10 tests, first: 128 x 256 x 1, contest inputs"


def failing_for_two_reasons() -> Verdict:
    """Full-range tests fail for one reason, which only warns, and a benchmark for another."""
    failure = Failure("output.mismatch", "64 of 7168 elements are wrong")
    slow = replace(timed, status="fail", message=failure.message, failure=failure)
    return verdict([*both("pass", "fail", "high nibbles are skipped")] * 5, [slow])


def test_the_reason_that_decides_comes_first_and_what_only_warns_is_not_called_a_failure() -> None:
    made = failing_for_two_reasons()
    lines = [line.plain for line in failure_lines(made)]
    assert lines[0].startswith("failed: benchmark, m: 7168; k: 16384")
    assert lines[2].startswith("only a warning: test, full inputs")
    assert not any(line.startswith("failed: test") for line in lines)
    assert shown(made).splitlines()[-1] == (
        "failed: 1 of 1 benchmark, first: 7168 x 16384 x 1; "
        "5 tests with full-range inputs failed, which only warns"
    )


def test_the_object_names_the_case_that_decides() -> None:
    decided = failing_for_two_reasons().as_json()["decided_by"]
    assert (decided["kind"], decided["inputs"]) == ("benchmark", None)
    assert decided["failure"]["code"] == "output.mismatch"
    assert verdict(both("pass", "fail", "wrong")).as_json()["decided_by"] is None
    both_kinds = verdict(both("fail", "fail", "wrong")).as_json()["decided_by"]
    assert (both_kinds["kind"], both_kinds["inputs"]) == ("test", "contest")


def test_a_full_range_test_decides_where_earlier_calls_made_it_wrong() -> None:
    message = "1 of 128 elements are wrong\nin a process of its own this call is right: why"
    state = replace(both("pass", "fail", message)[1], failure=Failure("output.state"))
    made = verdict([*both("pass", "fail", "wrong"), state])
    decided = made.as_json()["decided_by"]
    assert (made.outcome, decided["failure"]["code"]) == ("failed", "output.state")
    assert list(failure_lines(made))[1].plain == "  1 of 128 elements are wrong"


def test_only_the_first_different_messages_are_shown() -> None:
    tests = [TestResult(case(m=i), "fail", f"message {i}") for i in range(1, 7)]
    lines = [line.plain for line in failure_lines(verdict(tests))]
    assert [line.strip() for line in lines if "message" in line and "--json" not in line] == [
        f"message {i}" for i in (1, 2, 3)
    ]
    assert lines[-1] == "and 3 more failures; --json shows every message"


def test_a_message_is_printed_as_it_is_and_not_as_markup() -> None:
    text = shown(verdict(both("fail", "fail", "[bold]x[/bold] [/] :smile: [1, 2]")))
    assert "[bold]x[/bold] [/] :smile: [1, 2]" in text


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        *((microseconds, None, "-"), (microseconds, 0.0, "0.000"), (microseconds, 8.6219, "8.622")),
        *((microseconds, 123.456, "123.5"), (microseconds, 1234.5, "1,234")),
        (microseconds, 2e6, "2,000,000"),
        *((seconds, 0.04, "0.0 s"), (seconds, 17.21, "17.2 s"), (seconds, 119.9, "119.9 s")),
        (seconds, 185.4, "3 min 5 s"),
    ],
)
def test_times_have_the_digits_that_mean_something(
    unit: Callable[[float | None], str], value: float | None, text: str
) -> None:
    assert unit(value) == text


@pytest.mark.parametrize(
    ("tests", "benchmarks", "interrupted", "closing"),
    [
        ("", "", False, "failed: nothing was judged"),
        ("skipped skipped", "skipped", True, "interrupted after 5.0 s: nothing was judged"),
        (
            *("pass skipped", "skipped", True),
            "interrupted after 5.0 s: of 2 tests 1 passed, 1 not judged; "
            "of 1 benchmark none judged",
        ),
        ("pass fail", "", True, "interrupted after 5.0 s: of 2 tests 1 passed, 1 failed"),
        (
            *("fail skipped", "", False),
            "failed: 1 of 2 tests in 5.0 s, first: 128 x 256 x 1, contest inputs; 1 test not run",
        ),
    ],
)
def test_the_last_line_counts_what_was_judged(
    tests: str, benchmarks: str, interrupted: bool, closing: str
) -> None:
    made = verdict(
        [TestResult(case(), status, "wrong") for status in tests.split()],
        [BenchmarkResult(case(), status) for status in benchmarks.split()],
    )
    made.interrupted, made.elapsed_s = interrupted, 5.0 if tests else None
    assert shown(made).splitlines()[-1] == closing
    assert not made.passed


def test_a_finding_is_shown_with_its_rule() -> None:
    finding = Finding("warp_sync", "not in its mask", file="submission.py", line=3, count=2)
    finding = replace(finding, hint="name every lane", rule="PTX ISA, shfl.sync: no")
    found = TestResult(case(), "pass", findings=[finding])
    assert [str(line) for line in finding_lines(verdict([found]))] == [
        "finding: submission.py:3: not in its mask",
        "  warp_sync, 2 times in 1 cases; name every lane",
        "  rule: PTX ISA, shfl.sync: no",
    ]


# What only the submission's own process says is shown as that, wherever it is shown.

why = "its process says: host code reads c"


@pytest.fixture
def emulated() -> Verdict:
    """Passed without a GPU, with counts that are its own word."""
    verdict = recorded_verdict("emulated")
    verdict.benchmarks = [replace(each, unverified=why) for each in verdict.benchmarks]
    verdict.warnings = warnings_of(verdict)
    return verdict


def test_unverified_counts_are_marked_wherever_they_are_shown(
    emulated: Verdict, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    (column,) = (each for each in benchmark_columns(emulated) if each.heading == "counts")
    assert {str(cell) for cell in column.cells} == {"unverified"}
    assert "(unverified)" in closing_line(emulated).plain
    (warning,) = (each for each in emulated.warnings if each.code == "unverified")
    assert warning.message == f"counts of benchmarks are unverified: {why}"
    emulated.warnings.append(Warning("full_range", "", ""))
    line = result_line({**emulated.as_json(), "same_as": None}).plain
    assert line.endswith("  unverified  not right on full-range inputs")
    assert keep(emulated, b"", history)
    show_log(history, 10, as_json=False)
    assert "unverified" in capsys.readouterr().out
    show_log(history, 10, as_json=True)
    (listed,) = json.loads(capsys.readouterr().out)["judgements"]
    assert listed["unverified"] == len(emulated.benchmarks)
    emulated.benchmarks = [replace(each, unverified=None) for each in emulated.benchmarks]
    assert all(each.heading != "counts" for each in benchmark_columns(emulated))


def test_a_finding_says_whose_word_it_is(emulated: Verdict) -> None:
    found = Finding("shared_race", "a race", file="mine.py", line=3, count=1)
    for teller, said in (("judge", False), ("submission", True)):
        listed = [replace(found, told_by=teller)]
        emulated.benchmarks = [replace(each, findings=listed) for each in emulated.benchmarks]
        text = "\n".join(line.plain for line in finding_lines(emulated))
        assert ("its own process says" in text) is said


class Opened:
    """A case whose host code has said something of a stream."""

    error_share = 0.0
    changed: ClassVar[list[str]] = []
    plan = plan_of(128, 256, 1)
    noted: ClassVar = {"code": "stream.unordered", "message": "it did"}
    ended = Ended([], [["stream.unordered", "it did"]], "", "", {}, {}, [], alone=[noted])

    def returned(self) -> Output:
        return Output(self.plan.expected, [])


def test_findings_of_kernels_that_the_judge_ran_are_its_own() -> None:
    called = Called(1.0, 1.0, False, {}, [{"findings": [Opened.noted | {"code": "shared_race"}]}])
    opened: Any = Opened()
    assert [each.told_by for each in findings_of(opened, called)] == ["judge", "submission"]


def test_a_verdict_warns_of_what_it_does_not_show(emulated: Verdict) -> None:
    assert {each.code for each in warnings_of(emulated)} & {"strict", "full_range"} == set()
    emulated.strict = True
    tried = [replace(each, full_range="fail") for each in emulated.benchmarks]
    emulated.benchmarks = tried
    warned = {each.code: each.message for each in warnings_of(emulated)}
    assert "strict" in warned
    assert f"wrong on {len(tried)} of {len(tried)} benchmark" in warned["full_range"]
    assert emulated.passed


def test_a_test_without_a_result_fails_whatever_its_inputs() -> None:
    verdict = Verdict(Submission("mine.py", "0" * 64))
    lines = ("m: 128; k: 256; l: 1; seed: 1", "m: 128; k: 256; l: 1; seed: 1; full-range inputs")
    values = {"test.0.status": "pass", "check": "pass"}
    verdict.tests = [read_test(values, index, line, no_result) for index, line in enumerate(lines)]
    assert not verdict.passed
    assert verdict.outcome == "failed"


def test_a_test_without_kernels_shows_nothing_of_those_that_are_benchmarked(
    emulated: Verdict,
) -> None:
    emulated.benchmarks = [replace(each, unverified=None) for each in emulated.benchmarks]
    lines = ["m: 128; k: 256; l: 1; seed: 1", "m: 256; k: 256; l: 1; seed: 1"]
    values = {"test.0.status": "pass", "test.1.status": "pass", "test.1.emulated": "true"}
    emulated.tests = [read_test(values, number, line) for number, line in enumerate(lines)]
    nothing = Plan([], [], load_problem(), run_alone=False)
    assess(None, nothing, emulated, Observer())  # type: ignore[arg-type]
    (warning,) = (each for each in emulated.warnings if each.code == "unverified")
    assert "128 x 256 x 1 launches no kernel, a benchmark does" in warning.message
    assert [bool(each.unverified) for each in emulated.tests] == [True, False]


def test_what_was_dropped_is_told() -> None:
    values = {"benchmark.0.status": "pass", "benchmark.0.dropped": "output,findings,nonsense"}
    result = read_benchmark(values, 0, "m: 128; k: 256; l: 1; seed: 1")
    assert result.dropped == ["output", "findings"]
    verdict = Verdict(Submission("mine.py", "0" * 64), benchmarks=[result])
    assert any(each.code == "dropped" for each in warnings_of(verdict))


# What the live line says: cases, elapsed time, and what happens now.


def progress_on_a_clock() -> tuple[Clock, Progress, io.StringIO]:
    clock, file = Clock(), io.StringIO()
    return clock, Progress(Console(file=file, width=100), clock), file


def test_the_line_says_what_is_done_and_what_happens_now() -> None:
    again = "some of them again, with other inputs or in a fresh process"
    clock, progress, _ = progress_on_a_clock()
    assert [progress.line.plain for _ in play(progress, clock)] == [
        "0 of 20 tests, 3.5 s, at most 2 min 50 s left: importing",
        "5 of 20 tests, 8.4 s, about 40 s left: compiling 2432 x 4608 x 2, 0.8 s",
        f"20 of 20 tests, 26.2 s: {again}",
        "1 of 3 benchmarks, 47.9 s, about 55 s left: emulating 4096 x 7168 x 8, 3.0 s",
    ]


def test_a_case_is_imported_compiled_and_emulated() -> None:
    _, told, _ = progress_on_a_clock()
    assert told.line.plain.endswith("no case yet, 0.0 s: starting")
    told.phase("test", [case(), case() + full_range_suffix], 1100.0)
    for word in ("importing", "compiling"):
        told.activity(word)
        assert told.line.plain == f"0 of 2 tests, 0.0 s: {word}"
    told.device(cpu)
    told.started(1, 1000.0)
    for word, shown, last in (
        ("importing", "running", "0.0 s"),
        ("emulating", "emulating", "0.0 s"),
        ("emulating 37%", "emulating", "37%"),
    ):
        told.activity(word)
        line = f"at most 100 s left: {shown} 128 x 256 x 1, full-range inputs, {last}"
        assert told.line.plain.endswith(line)


def test_benchmarks_that_run_side_by_side_end_in_any_order() -> None:
    clock, told, file = progress_on_a_clock()
    lines = [case(512), case(256), case(1024)]
    told.phase("benchmark", lines, 60.0)
    told.device(cpu)
    for number in (0, 1):
        told.started(number, clock())
        clock.passes(1.0)
    for number, line in ((1, "1 of 3"), (0, "2 of 3")):
        told.finished(number, replace(emulated_benchmark(lines[number]), elapsed_s=2.0 - number))
        assert told.line.plain.startswith(line)
    ended = file.getvalue().splitlines()[1:]
    assert [each.rpartition("in ")[2] for each in ended] == ["1.0 s", "2.0 s"]


def test_a_check_shows_nothing_but_the_line() -> None:
    file = io.StringIO()
    with observed(Console(file=file, width=100), Clock(), brief=True) as told:
        told.phase("test", [case()], 60.0)
        told.device(cpu)
        told.started(0, 0.0)
        told.finished(0, TestResult(case(), "pass"))
    assert file.getvalue() == ""


def test_a_case_that_fails_in_a_fresh_process_is_told_again_and_counted_once() -> None:
    clock, told, file = progress_on_a_clock()
    told.phase("test", [case(), case() + full_range_suffix], 60.0)
    told.started(0, 0.0)
    clock.passes(2.0)
    told.finished(0, TestResult(case(), "pass", elapsed_s=2.0))
    clock.passes(5.0)
    told.finished(0, TestResult(case(), "fail", "not repeatable"))
    assert told.line.plain.startswith("1 of 2 tests")
    first, second = file.getvalue().splitlines()
    assert first.endswith("pass  in 2.0 s")
    assert second.endswith("fail")


def test_activities_nest_and_are_told_when_they_change(request: pytest.FixtureRequest) -> None:
    told: list[str] = []
    activity.tell(told.append)
    request.addfinalizer(lambda: activity.tell(None))
    with activity.busy("importing"), activity.busy("compiling"), activity.busy("compiling"):
        pass
    assert told == ["importing", "compiling", "importing", "running"]


# What a submission writes reaches a terminal as text, and bounded.

escape = "\x1b[2J\x1b[1;1Hpassed\r\x9b1A\u202e"


def test_control_characters_become_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visible("a\tb\nc é \u00a0") == "a\tb\nc é \u00a0"
    assert visible(escape) == r"\x1b[2J\x1b[1;1Hpassed\r\x9b1A\u202e"
    text = r'[{"code": "x", "message": "a\u001b[2J", "hint": null}]'
    assert all("\x1b" not in str(each) for each in read_findings(visible_json(text)))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert visible("at::a\n  ::error b\n##[c]") == "at::a\n  \\::error b\n\\##[c]"


def test_a_long_message_is_shown_in_part() -> None:
    message = "\n".join("passed" for _ in range(1000))
    assert first_lines(message)[-1] == f"... and {1000 - most_lines} more lines"
    assert shown(verdict(both("fail", "fail", message))).count("passed") < 2 * most_lines


def test_what_a_run_by_itself_writes_is_bounded_and_visible(tmp_path: Path) -> None:
    source = (
        "import os, sys\n"
        "for fd in (1, 2):\n"
        "    for _ in range(2000):\n"
        "        os.write(fd, bytes(1 << 16))\n"
        f"sys.exit({escape!r})\n"
    )
    ended = Bot(load_problem(), source.encode(), Options(device="cpu")).run_submission()
    assert ended.exit_code == 1
    assert ended.stderr.endswith(visible(escape))
    assert len(ended.stderr) < 5 * (8 << 10)
    assert "\0" not in ended.stderr


def test_what_comes_through_the_result_pipe_is_visible() -> None:
    read_fd, write_fd = os.pipe()
    with os.fdopen(write_fd, "w", newline="") as file:
        file.write(f"test.0.error: {escape}\n")
    ended = ProcessResult(0, "")
    ended.take_all(read_fd, time.monotonic() + 60)
    os.close(read_fd)
    assert ended.values == {"test.0.error": visible(escape)}


def test_a_folder_of_any_depth_is_cleared(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(top)
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        os.chmod(".", 0)
    clear(top, within_s=60)
    assert not top.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_long_to_clear_has_gone_at_once(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "file").touch()
    process = clear(top, within_s=0)
    assert not top.exists()
    assert process is not None
    process.wait(30)
    assert list(tmp_path.iterdir()) == []


def test_whatever_is_printed_shows_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """A problem's list may give any name, as may a file."""
    console = new_console()
    say(console, "a\x1b[2Jb\u202e")
    show_table(console, "x\x07", [Column("name", ["\x1b]0;[red]t\x07"])])
    said = capsys.readouterr().out
    assert not set(said) & set("\x1b\x07\u202e")
    assert r"a\x1b[2Jb\u202e" in said
    assert r"\x1b]0;[red]t" in said
