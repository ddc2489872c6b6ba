"""nvfp4 report: one file of HTML that needs nothing else and shows what is hostile as text."""

import base64
import hashlib
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from kept import Judge, content, is_error, kept_in, named, refused, succeeds
from problem_folder import REFERENCE, make_problem
from recorded_verdicts import (
    every_verdict,
    hostile,
    predicted_verdict,
    prediction,
    recorded_verdict,
    verdict_with,
)
from screens.verdicts import benchmark_lines, verdicts

from nvfp4.cli import invocation as judging
from nvfp4.cli.explain.command import Explained
from nvfp4.cli.history.database import History
from nvfp4.cli.invocation import Invocation
from nvfp4.cli.main import main
from nvfp4.cli.problem import shape_of
from nvfp4.cli.report import source
from nvfp4.cli.verdict import Submission
from nvfp4.records.costs import Kernel, LineCost
from nvfp4.records.failures import Finding

pytestmark = pytest.mark.usefixtures("data", "cwd")

kernel_source = b"import torch\n\n\ndef custom_kernel(data):\n    return launch(data)\n"


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attributes)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self.text += " " if tag in ("td", "th") else ""

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.text += data

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def all(self, tag: str, name: str = "") -> list[Any]:
        """What each element of a kind says: of an attribute, or all of them."""
        found = [attributes for each, attributes in self.elements if each == tag]
        return [each.get(name) for each in found] if name else found


def reported(*arguments: str) -> Page:
    """The page of a report without costs."""
    succeeds("report", "--no-cost", "-o", "page.html", *arguments)
    return read("page.html")


def read(path: str) -> Page:
    text = Path(path).read_text(encoding="utf-8")
    assert len(text.encode()) < 3_000_000
    page = Page(text)
    refuse_references(page, text)
    return page


def refuse_references(page: Page, text: str) -> None:
    """No script but the page's own, which is the only one that may run, and nothing that a browser
    would fetch."""
    assert page.all("script") == [{}]
    own = re.findall(r"(?s)<script>(.*?)</script>", text)[-1]
    assert not page.tags() & {"link", "iframe", "object", "embed", "base", "form", "img"}
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), attributes
            if name in ("src", "href", "xlink:href", "action", "data"):
                assert (value or "").startswith("#"), attributes
    styles = re.findall(r"(?s)<style>(.*?)</style>", text)
    assert len(styles) == 1
    assert "@import" not in styles[0]
    drawn = re.sub(r"(?s)<code>.*?</code>|<pre.*?</pre>", "", text)
    assert set(re.findall(r"url\(\s*['\"]?(.)", drawn)) <= {"#"}
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    policy += f"; script-src 'sha256-{digest}'"
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in page.all("meta")


def test_a_report_has_every_section(history: History) -> None:
    for _ in range(2):
        kept_in(history, named(verdicts()["timed-passed"]), kernel_source)
    page = reported("2")
    for word in ("Benchmarks, times in us", "Tests", "Source", "Environment", "Warnings"):
        assert word in page.text
    for line in benchmark_lines:
        assert str(shape_of(line)) in page.text
    bars = page.text.partition("Times and bounds in us")[2].partition("Tests")[0]
    kinds = re.findall(r"7168 x 2048 x 4 +(\w.*\w) +[\d.]+", bars)
    assert kinds == ["mean", "floor here", "B200 speed of light"]
    assert "geometric mean" in page.text
    for words in ("for nvfp4_gemv on NVIDIA B200", "return launch(data)", "580.1"):
        assert words in page.text


@pytest.mark.parametrize("name", [*every_verdict(), *verdicts()])
def test_every_kind_of_verdict_can_be_reported(history: History, name: str) -> None:
    verdict = {**every_verdict(), **verdicts()}[name]
    kept_in(history, named(verdict), kernel_source)
    page = reported()
    for test in verdict.tests:
        assert test.status in page.text
    for warning in verdict.warnings:
        assert warning.message in page.text
    for benchmark in verdict.benchmarks:
        assert benchmark.predicted is None or benchmark.predicted.text in page.text


@pytest.mark.parametrize("text", [*hostile, "$x^2$ {{ 7 * 7 }} {% raw %} </style></code></pre>"])
def test_what_a_submission_says_is_text(history: History, text: str) -> None:
    verdict = verdict_with(text)
    verdict.submission = Submission(text or "mine.py", "0" * 64)
    verdict.tests = [replace(each, output=text) for each in verdict.tests]
    kept_in(history, verdict, f"# {text}\n".encode("utf-8", "replace"))
    kept_in(history, named(recorded_verdict("passed")), content)
    alone, usual = reported("1"), reported("2")
    assert alone.tags() <= usual.tags() | {"pre"}
    if "<" in text and "\n" not in text:
        assert alone.text.count(text) >= 4
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", alone.text)
    assert reported("1", "2").text.count("Side by side") == 1


def test_several_are_compared_at_the_top(history: History) -> None:
    kept_in(history, named(verdicts()["timed-passed"], "fast.py"), content)
    kept_in(history, named(predicted_verdict(prediction), "emulated.py"), kernel_source)
    kept_in(history, named(every_verdict()["mismatch"], "wrong.py"), b"other")
    page = reported("1", "2", "3")
    table = page.text.partition("Side by side")[2].partition("nvfp4")[0]
    for word in ("fast.py", "emulated.py", "wrong.py", "passed", "failed", "NVIDIA B200", "28.9"):
        assert word in table
    assert page.all("a", "href") == ["#s1", "#s2", "#s3"]
    assert {"s1", "s2", "s3"} <= set(page.all("section", "id"))
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names)), "identifiers are unique"


def test_a_file_is_judged_once_and_then_taken_from_the_history(
    history: History, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge("test", "--no-log", found=verdicts()["timed-passed"])  # which puts the verdict in place
    judged: list[int] = []
    given = judging.assess

    def assess(*given_to_it: Any) -> None:
        judged.append(1)
        given(*given_to_it)

    monkeypatch.setattr(judging, "assess", assess)
    assert "mine.py" in reported("mine.py").text
    assert [each.id for each in history.entries()] == [1]
    assert Path("mine.py").read_text().splitlines()[0] in reported("mine.py").text
    shutil.copy("mine.py", "copy.py")
    assert "copy.py" in reported("copy.py").text
    assert len(judged) == 1
    with Path("mine.py").open("a") as file:
        file.write("# changed\n")
    reported("mine.py", "--no-log")
    assert len(judged) == 2
    assert len(history.entries()) == 1
    own = make_problem(Path())
    for count, changed in ((3, REFERENCE), (3, REFERENCE), (4, f"{REFERENCE}#"), (4, REFERENCE)):
        (own / "reference.py").write_text(changed)
        reported("mine.py", "--problem", str(own))
        assert len(judged) == count


def test_a_history_that_cannot_be_used_does_not_keep_a_file_from_being_reported(
    data: Path, judge: Judge
) -> None:
    judge("test", "--no-log", found=verdicts()["emulated-passed"])
    data.parent.mkdir(parents=True)
    data.write_bytes(b"no database" * 999)
    assert "not kept" in reported("mine.py").text
    refused("report", "1")


def test_what_cannot_be_reported_is_told_in_a_sentence(history: History) -> None:
    for arguments in ([], ["7"], ["missing.py"], ["missing.py", "-o", "nowhere/page.html"]):
        assert is_error(refused("report", *arguments))
        assert not Path("report.html").exists()


def line_of(number: int, instructions: int, file: str = "mine.py") -> LineCost:
    return LineCost(file, number, instructions, 0, 0, 0, 0.0, [], {"add.f32": instructions}, [], [])


def test_costs_and_findings_stand_at_their_lines(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = verdicts()["emulated-passed"]
    finding = Finding("shared_race", "a race of <b>", file="mine.py", line=4)
    verdict.tests[0] = replace(verdict.tests[0], findings=[finding])
    kept_in(history, named(verdict), kernel_source)
    lines = [line_of(5, 3_000_000), line_of(4, 1_000_000), line_of(99, 1), line_of(1, 9, "a.py")]
    one = (1, 1, 1)
    kernel = Kernel("k", one, one, 0, 0, 1, 1, 1, 4_000_010, lines, None, None, [], [], None)
    asked: list[Any] = []

    def explain(text: bytes, cases: list[str], *others: object) -> list[Explained]:
        asked.append((text, cases))
        return [Explained(cases[0], shape_of(cases[0]), [kernel], [], None)]

    monkeypatch.setattr(source, "explain", explain)
    succeeds("report")
    assert asked == [(kernel_source, benchmark_lines[:1])]
    text = re.sub(r"\s+", " ", read("report.html").text)
    assert " 4 25.0% 1.00M def custom_kernel(data): finding: a race of <b> " in text
    assert " 5 75.0% 3.00M return launch(data) " in text


def test_a_huge_source_is_cut(history: History) -> None:
    text = b"".join(b"x%d = '%s'\n" % (number, b"<" * 900) for number in range(3000))
    kept_in(history, named(verdicts()["timed-failed"], text=text), text)
    assert "more lines are not shown" in reported().text
    kept_in(history, named(verdicts()["timed-passed"], text=content), content)
    assert "more lines are not shown" in reported("1", "2", "1").text


def test_the_options_that_a_file_is_judged_with_are_those_of_eval() -> None:
    context = main.commands["eval"].make_context("eval", ["mine.py"])
    own = {"submission", "mode", "stop_early", "watch"}
    given = {name: context.params[name] for name in context.params if name not in own}
    assert Invocation.of(given) == Invocation(kept=True)
