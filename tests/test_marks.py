"""What only the submission's own process says is shown as that, wherever it is shown."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_verdicts import recorded_verdict
from rich.console import Console

from nvfp4.cli.batch.progress import result_line
from nvfp4.cli.display.benchmark_tables import benchmark_columns
from nvfp4.cli.display.sentences import closing_line, finding_lines
from nvfp4.cli.history.database import History
from nvfp4.cli.history.judgements import keep, show_log
from nvfp4.cli.judging.assess import Observer, Plan, assess
from nvfp4.cli.judging.warnings import warnings_of
from nvfp4.cli.verdict import Submission, Verdict, no_result, read_benchmark, read_test
from nvfp4.judge.findings import findings_of
from nvfp4.records.failures import Finding
from nvfp4.records.messages import Called, Ended

why = "its process says: host code reads c"


@pytest.fixture
def emulated() -> Verdict:
    """Passed without a GPU, with counts that are its own word."""
    verdict = recorded_verdict("emulated")
    verdict.benchmarks = [replace(each, unverified=why) for each in verdict.benchmarks]
    verdict.warnings = warnings_of(verdict)
    return verdict


def shown(show: Any, *arguments: Any) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    show(console, *arguments)
    return console.export_text()


def test_the_table_of_counts_says_whose_they_are(emulated: Verdict) -> None:
    (column,) = (each for each in benchmark_columns(emulated) if each.heading == "counts")
    assert {str(cell) for cell in column.cells} == {"unverified"}
    assert "(unverified)" in closing_line(emulated).plain
    own = [replace(each, unverified=None) for each in emulated.benchmarks]
    emulated.benchmarks = own
    assert all(each.heading != "counts" for each in benchmark_columns(emulated))


def test_the_warning_says_why(emulated: Verdict) -> None:
    (warning,) = (each for each in emulated.warnings if each.code == "unverified")
    assert warning.message == f"counts of benchmarks are unverified: {why}"


def test_the_log_marks_a_bound(
    emulated: Verdict, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NVFP4_NO_LOG", raising=False)
    history = History(tmp_path / "history.sqlite3")
    assert keep(emulated, b"", history)
    show_log(history, 10, None, as_json=False)
    assert "unverified" in capsys.readouterr().out
    show_log(history, 10, None, as_json=True)
    (listed,) = json.loads(capsys.readouterr().out)["judgements"]
    assert listed["unverified"] == len(emulated.benchmarks)


def test_a_line_of_a_batch_marks_it(emulated: Verdict) -> None:
    line = {**emulated.as_json(), "same_as": None}
    assert "unverified" in result_line(line).plain


def test_a_finding_says_whose_word_it_is(emulated: Verdict) -> None:
    found = Finding("shared_race", "a race", file="mine.py", line=3, count=1)
    for teller, said in (("judge", False), ("submission", True)):
        listed = [replace(found, told_by=teller)]
        emulated.benchmarks = [replace(each, findings=listed) for each in emulated.benchmarks]
        text = "\n".join(line.plain for line in finding_lines(emulated))
        assert ("its own process says" in text) is said


class Opened:
    """A case whose host code has said something of a stream."""

    output_dtype = torch.float16
    error_share = 0.0
    ended = Ended([], [["unjoined_stream", "it did"]], "", "", {}, {}, [])


def test_findings_of_kernels_that_the_judge_ran_are_its_own() -> None:
    listed = [{"code": each, "message": "it did"} for each in ("shared_race", "unjoined_stream")]
    called = Called(1.0, 1.0, False, "float16", [{"findings": listed}])
    opened: Any = Opened()
    assert [each.told_by for each in findings_of(opened, called)] == ["judge", "submission"]


def test_strict_without_a_gpu_says_what_it_cannot_see(emulated: Verdict) -> None:
    assert all(each.code != "strict" for each in warnings_of(emulated))
    emulated.strict = True
    assert any(each.code == "strict" for each in warnings_of(emulated))


def test_a_full_range_benchmark_that_is_wrong_warns(emulated: Verdict) -> None:
    tried = [replace(each, full_range="fail") for each in emulated.benchmarks]
    emulated.benchmarks = tried
    (warning,) = (each for each in warnings_of(emulated) if each.code == "full_range")
    assert f"wrong on {len(tried)} of {len(tried)} benchmark" in warning.message
    assert emulated.passed


def test_a_test_without_a_result_fails_whatever_its_inputs() -> None:
    verdict = Verdict(Submission("mine.py", "0" * 64))
    lines = ("m: 128; k: 256; l: 1; seed: 1", "m: 128; k: 256; l: 1; seed: 1; inputs: full")
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
    nothing = Plan([], [], run_alone=False)
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
