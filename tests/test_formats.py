"""A verdict in every format: what it says, and what a hostile submission cannot make it say."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from bot import case
from hypothesis import given
from hypothesis import strategies as st
from recorded_verdicts import every_verdict, recorded_verdict, timed_verdict

from nvfp4.cli.display.formats import format_of, formatted
from nvfp4.cli.display.formats.rows import columns
from nvfp4.cli.parameters import formats
from nvfp4.cli.text import visible
from nvfp4.cli.verdict import Device, Submission, TestResult, Verdict, Warning
from nvfp4.records.failures import Failure, Finding, read_failure

verdicts = every_verdict()

hostile = [
    "two\nlines\r\nand\rmore\u2028\x85\x0b\x0c",
    "]]></failure><testcase name='x'/>",
    "<!-- & -- > &amp; ]]>",
    "\x00\x01\x1b[31m\x7f\x9b\ufffe\uffff\ud800",
    "::error file=eval.py,line=1::forged\n::stop-commands::x",
    "%0A::error::forged%25",
    "a,line=1,title=x::y",
    "=HYPERLINK(1)",
    "+1\n=2",
    "-1",
    "@SUM(1)",
    "\t=1",
    "\uff1d1",
    'quote " and, comma; and\ttab',
    "| cell | cell |\n|---|\n\\| \\",
    "``` `` ` @everyone #1 <script> [x](http://x) ![x](y)",
    "",
    "x" * 5000,
]


def verdict_with(text: str) -> Verdict:
    """A verdict in which everything that a submission can say is this text."""
    told: dict[str, Any] = {
        "code": "call.exception",
        "message": text,
        "file": text,
        "kernel": text,
        "line": 3,
    }
    causes = [{"code": "scales.shift", "operand": text, "or": []}]
    told |= {"hint": text, "arguments": {text: text}, "causes": causes}
    failure = read_failure(told)
    finding = Finding(text, text, kernel=text, file=text, line=4, count=1, hint=text, rule=text)
    test = TestResult(case(), "contest", "fail", text, 0.5, [finding], failure)
    verdict = Verdict(Submission(text, "0" * 64), Device("cpu", text, emulates=text))
    verdict.tests = [test, replace(test, inputs="full")]
    verdict.warnings = [Warning("noisy", text, text)]
    return verdict


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("name", formats)
@pytest.mark.parametrize("verdict", verdicts.values(), ids=list(verdicts))
def test_every_verdict_has_every_format(name: str, verdict: Verdict) -> None:
    assert formatted(verdict, name)


@pytest.mark.parametrize("text", hostile)
def test_no_text_breaks_the_xml(text: str) -> None:
    written = formatted(verdict_with(text), "junit")
    root = Xml.fromstring(written.encode("utf-8", "surrogatepass"))
    assert [each.tag for each in root] == ["testsuite"]
    assert [each.tag for each in root[0]] == ["testcase", "testcase"]
    assert root.get("failures") == "2"
    kept = re.sub(r"[^a-zA-Z ]", "", text)[:60]
    assert kept in re.sub(r"[^a-zA-Z ]", "", "".join(root.itertext()))


@given(st.text())
def test_xml_takes_any_text(text: str) -> None:
    root = Xml.fromstring(formatted(verdict_with(text), "junit").encode("utf-8"))
    assert root.get("failures") == "2"


@pytest.mark.parametrize("text", hostile)
def test_no_text_becomes_a_command_of_github(text: str) -> None:
    lines = formatted(verdict_with(text), "github").split("\n")
    assert len(lines) == 4  # the failure once for both cases, a finding, a warning, the verdict
    commands = [re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line) for line in lines]
    kinds = [command.group(1) if command else None for command in commands]
    assert kinds == ["error", "warning", "warning", "error"]
    for command in commands:
        assert command
        names = [each.partition("=")[0] for each in command.group(2).split(",")]
        assert set(names) <= {"file", "line", "col", "title"}
        assert len(names) == len(set(names))
        assert re.fullmatch(r"[^\x00-\x08\x0a-\x1f\x7f]*", command.group(3))


@given(st.text(min_size=1))
def test_github_reads_back_any_message(text: str) -> None:
    line = formatted(verdict_with(text), "github").split("\n")[0]
    message = line.partition("::")[2].partition("::")[2]
    read = message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    assert read == visible(text)


@pytest.mark.parametrize("text", hostile)
def test_no_text_breaks_the_table_of_a_pull_request(text: str) -> None:
    written = formatted(verdict_with(text), "markdown")
    lines = [line for line in written.split("\n") if line.startswith("|")]
    # As GitHub splits a row: a backslash hides the character after it.
    cells = [re.findall(r"(?:\\.|[^|\\])+", line) for line in lines]
    assert {len(row) for row in cells} == {4}
    assert len(lines) == 4
    assert not re.search(r"^(?!\||###|- |`|$)", written, re.MULTILINE)


@given(st.text(min_size=1))
def test_text_stays_in_its_code_span(text: str) -> None:
    for line in formatted(verdict_with(text), "markdown").split("\n"):
        outside = re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", line)
        assert "`" not in outside
        assert re.fullmatch(r"[\w\s|:.,*()#-]*", outside), outside


@pytest.mark.parametrize("text", hostile)
def test_no_text_is_a_formula_or_breaks_a_row(text: str) -> None:
    found = rows(formatted(verdict_with(text), "csv"))
    assert len(found) == 2
    for row in found:
        assert set(row) == set(columns)
        for cell in row.values():
            assert not cell.startswith(tuple("=+-@\t\r\n\uff1d"))


@given(st.text())
def test_csv_takes_any_text(text: str) -> None:
    written = formatted(verdict_with(text), "csv")
    assert len(rows(written)) == 2
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", written)


def test_junit_says_where_and_why() -> None:
    root = Xml.fromstring(formatted(recorded_verdict("fault"), "junit"))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "2", "0")
    [suite] = root
    assert suite.get("name") == "tests"
    assert suite[0].get("name") == "128 x 256 x 2, contest inputs"
    failure = suite[0].find("failure")
    assert failure is not None
    assert failure.get("type") == "kernel.out_of_bounds"
    assert (failure.get("message") or "").startswith("write of 2 bytes outside every tensor")
    assert "mC[row, 0, l]" in (failure.text or "")
    assert suite[0].findtext("system-out") == "mine.py:40:9"


def test_junit_fails_where_the_exit_code_does() -> None:
    """A full-range test that fails alone is a warning: the leaderboard takes the submission."""
    verdict = recorded_verdict("mismatch")
    verdict.tests[0] = replace(verdict.tests[0], status="pass", message=None, failure=None)
    root = Xml.fromstring(formatted(verdict, "junit"))
    assert (root.get("failures"), root.get("skipped")) == ("0", "1")
    lines = formatted(verdict, "github").split("\n")
    assert [line.split()[0] for line in lines] == ["::warning", "::notice"]


def test_junit_has_the_time_of_a_call_in_seconds() -> None:
    root = Xml.fromstring(formatted(timed_verdict(), "junit"))
    [[entry]] = root
    assert entry.attrib == {
        "classname": "nvfp4.benchmark",
        "name": "7168 x 16384 x 1",
        "time": "0.000025105",
    }


def test_github_marks_the_line_of_the_user_s_file() -> None:
    lines = formatted(recorded_verdict("fault"), "github").split("\n")
    assert lines[0].startswith(
        "::error file=mine.py,line=40,col=9,title=nvfp4%3A kernel.out_of_bounds%2C "
        "128 x 256 x 2%2C contest inputs and 1 more case::Traceback"
    )
    assert lines[-1] == "::error title=nvfp4::failed: 0 of 2 tests passed"
    found = formatted(recorded_verdict("races"), "github").split("\n")
    assert re.match(r"::warning file=mine\.py,line=\d+,title=nvfp4%3A global_race::", found[0])
    assert found[-1] == "::notice title=nvfp4::passed: 2 of 2 tests passed"


def test_github_shows_ten_annotations_of_a_kind_at_most() -> None:
    verdict = verdict_with("x")
    failed = verdict.tests[0]
    verdict.tests = [
        replace(failed, failure=Failure("call.exception", file="mine.py", line=line))
        for line in range(1, 40)
    ]
    lines = formatted(verdict, "github").split("\n")
    assert sum(line.startswith("::error") for line in lines) == 10
    assert lines[-1].startswith("::error title=nvfp4::failed")


def test_markdown_is_a_table_with_times_where_there_are_some() -> None:
    written = formatted(timed_verdict(), "markdown")
    assert "| benchmark | 7168 x 16384 x 1 | pass | 25.105 | 97.6% |" in written
    assert written.startswith("### nvfp4: passed: 1 of 1 benchmarks passed, geometric mean 25.105")
    emulated = formatted(recorded_verdict("emulated"), "markdown")
    assert "mean us" not in emulated
    assert "emulated as `sm_100a`: right or wrong, no times" in emulated
    fault = formatted(recorded_verdict("fault"), "markdown")
    assert "| **fault**" not in fault
    assert (
        "| test, contest | 128 x 256 x 2 | **fail** | `kernel.out_of_bounds` at `mine.py:40:9`:"
        in (fault)
    )


def test_csv_has_a_row_for_each_case() -> None:
    [row] = rows(formatted(timed_verdict(), "csv"))
    assert (row["kind"], row["m"], row["k"], row["l"]) == ("benchmark", "7168", "16384", "1")
    assert (row["status"], row["timed"], row["mean_us"]) == ("pass", "true", "25.105")
    fault = rows(formatted(recorded_verdict("fault"), "csv"))
    assert [each["inputs"] for each in fault] == ["contest", "full"]
    place = ("code", "file", "line", "column", "kernel")
    assert [fault[0][name] for name in place] == [
        "kernel.out_of_bounds",
        "mine.py",
        "40",
        "9",
        "kernel",
    ]
    [counts] = rows(formatted(recorded_verdict("emulated"), "csv"))
    assert int(counts["warp_instructions"]) > int(counts["sectors_distinct"]) > 0
    assert counts["mean_us"] == ""


def test_text_is_what_a_person_sees_without_colours() -> None:
    written = formatted(recorded_verdict("fault"), "text")
    assert "kernel" in written
    assert "\x1b" not in written


@pytest.mark.parametrize(
    ("file", "chosen", "name"),
    [
        ("verdict.json", None, "json"),
        ("report.XML", None, "junit"),
        ("comment.md", None, "markdown"),
        ("rows.csv", None, "csv"),
        ("out.txt", None, "text"),
        ("verdict", None, "json"),
        ("verdict.json", "csv", "csv"),
        ("report.xml", "text", "text"),
    ],
)
def test_a_file_has_the_chosen_format_or_that_of_its_ending(
    file: str, chosen: str | None, name: str
) -> None:
    assert format_of(Path(file), chosen) == name
