"""Tables from verdicts made by hand, as far as the texts in screens/ do not show them."""

import io
import re
from dataclasses import replace

import pytest
from bot import case
from rich.console import Console

from nvfp4.cli.display.benchmark_tables import benchmark_columns, title
from nvfp4.cli.display.columns import fitted, table
from nvfp4.cli.display.render import show
from nvfp4.cli.display.sentences import failure_lines, finding_lines
from nvfp4.cli.text import microseconds
from nvfp4.cli.verdict import (
    BenchmarkResult,
    Device,
    Submission,
    TestResult,
    Verdict,
)
from nvfp4.records.failures import Failure, Finding

gpu = Device("cuda", "NVIDIA B200", "10.0", "580.1", "2.9", "13.0", "4.8", read_gbps=7000.0)

timed = BenchmarkResult(
    spec=case(7168, 16384),
    status="pass",
    timed=True,
    runs=100,
    mean_us=20.5,
    median_us=20.25,
    std_us=0.5,
    err_us=0.05,
    best_us=19.125,
    worst_us=25.0,
    bytes=66_000_000,
    floor_us=11.4,
    sol_us=8.622,
    b200_floor_us=14.9,
)


def verdict(
    tests: list[TestResult] | None = None, benchmarks: list[BenchmarkResult] | None = None
) -> Verdict:
    made = Verdict(Submission("submission.py", "0" * 64), gpu)
    made.tests = tests or []
    made.benchmarks = benchmarks or []
    return made


def both(contest: str, full: str, message: str | None = None) -> list[TestResult]:
    return [
        TestResult(case(), inputs, status, message if status == "fail" else None)
        for inputs, status in (("contest", contest), ("full", full))
    ]


def shown(made: Verdict) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None, highlight=False)
    show(console, made)
    output = console.file
    assert isinstance(output, io.StringIO)
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
    assert "20.500" in row(text, "7168 x 16384 x 1")


def test_a_skipped_benchmark_shows_no_numbers() -> None:
    skipped = BenchmarkResult(timed.spec, "skipped", message="not run")
    text = shown(verdict(both("fail", "fail", "wrong"), [skipped]))
    assert "Benchmarks: not run" in text.splitlines()
    assert "7168" not in text


def test_tests_stand_in_one_row_for_both_kinds_of_inputs() -> None:
    text = shown(verdict(both("pass", "fail", "high nibbles are skipped")))
    assert row(text, "1")[1:6] == ["128", "256", "1", "pass", "fail"]
    assert "high nibbles are skipped" in text
    assert text.splitlines()[-1].startswith("passed: ")


def test_a_message_that_repeats_is_shown_once() -> None:
    tests = both("fail", "fail", "the same\nfor all") * 5
    made = verdict(tests)
    text = shown(made)
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
    lines = [line.plain for line in failure_lines(made)]
    assert lines[1] == "  1 of 128 elements are wrong"


def test_only_the_first_different_messages_are_shown() -> None:
    tests = [TestResult(case(m=i), "contest", "fail", f"message {i}") for i in range(1, 7)]
    lines = [line.plain for line in failure_lines(verdict(tests))]
    assert [line.strip() for line in lines if "message" in line and "--json" not in line] == [
        f"message {i}" for i in (1, 2, 3)
    ]
    assert lines[-1] == "and 3 more failures; --json shows every message"


def test_a_message_is_printed_as_it_is_and_not_as_markup() -> None:
    text = shown(verdict(both("fail", "fail", "[bold]x[/bold] [/] :smile: [1, 2]")))
    assert "[bold]x[/bold] [/] :smile: [1, 2]" in text


def test_a_verdict_of_nothing_has_not_passed() -> None:
    made = verdict()
    assert not made.passed
    assert shown(made).splitlines()[-1] == "failed: nothing was judged"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0.000"),
        (8.6219, "8.622"),
        (123.456, "123.5"),
        (1234.5, "1,234"),
        (2e6, "2,000,000"),
    ],
)
def test_times_have_the_digits_that_mean_something(value: float | None, text: str) -> None:
    assert microseconds(value) == text


@pytest.mark.parametrize(
    ("tests", "benchmarks", "said"),
    [
        (["skipped"] * 2, ["skipped"], "nothing was judged"),
        (
            ["pass", "skipped"],
            ["skipped"],
            "of 2 tests 1 passed, 1 not judged; of 1 benchmark none judged",
        ),
        (["pass", "fail"], [], "of 2 tests 1 passed, 1 failed"),
    ],
)
def test_an_interrupted_verdict_counts_what_was_judged(
    tests: list[str], benchmarks: list[str], said: str
) -> None:
    made = verdict(
        [TestResult(case(), "contest", status) for status in tests],
        [BenchmarkResult(case(), status) for status in benchmarks],
    )
    made.interrupted, made.elapsed_s = True, 5.0
    assert shown(made).splitlines()[-1] == f"interrupted after 5.0 s: {said}"
    assert not made.passed


def test_tests_that_were_not_run_after_a_failure_are_told() -> None:
    made = verdict(both("fail", "skipped", "wrong"))
    closing = "failed: 1 of 2 tests, first: 128 x 256 x 1, contest inputs; 1 test not run"
    assert shown(made).splitlines()[-1] == closing


def test_a_finding_is_shown_with_its_rule() -> None:
    finding = Finding("warp_sync", "not in its mask", file="submission.py", line=3, count=2)
    finding = replace(finding, hint="name every lane", rule="PTX ISA, shfl.sync: no")
    found = TestResult(case(), "contest", "pass", findings=[finding])
    assert [str(line) for line in finding_lines(verdict([found]))] == [
        "finding: submission.py:3: not in its mask",
        "  warp_sync, 2 times in 1 cases; name every lane",
        "  rule: PTX ISA, shfl.sync: no",
    ]
