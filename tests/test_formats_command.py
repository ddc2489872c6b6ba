"""--format and -o of the commands that judge; the judge itself is replaced by a recorded run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from click.testing import CliRunner, Result
from recorded_verdicts import recorded_verdict

from nvfp4.cli.display.formats import formatted
from nvfp4.cli.judging import invocation as judging
from nvfp4.cli.main import main
from nvfp4.cli.verdict import Verdict

Command = Callable[..., Result]


@pytest.fixture(params=["fault", "passed"])
def verdict(request: pytest.FixtureRequest) -> Verdict:
    """What the judge finds."""
    return recorded_verdict(request.param)


@pytest.fixture
def command(verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`nvfp4 test mine.py` with more arguments, in a folder of its own."""

    def found(bot: Any, plan: Any, into: Verdict, observer: Any) -> None:
        verdict.submission = into.submission
        vars(into).update(vars(verdict))

    monkeypatch.setattr(judging, "assess", found)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def custom_kernel(data):\n    return data[6]\n")

    def run(*arguments: str) -> Result:
        done = CliRunner().invoke(main, ["test", "mine.py", *arguments])
        assert done.exit_code == (0 if verdict.passed else 1), done.output
        return done

    return run


@pytest.mark.parametrize("name", ["json", "junit", "github", "markdown", "csv"])
def test_the_chosen_format_is_all_that_stands_on_stdout(
    name: str, command: Command, verdict: Verdict
) -> None:
    done = command("--format", name)
    assert done.stdout == formatted(verdict, name) + "\n"


def test_json_is_short_for_its_format(command: Command) -> None:
    assert command("--json").stdout == command("--format", "json").stdout


@pytest.mark.parametrize(
    ("file", "name"),
    [("a.json", "json"), ("a.xml", "junit"), ("a.md", "markdown"), ("a.csv", "csv"), ("a", "json")],
)
def test_a_file_gets_the_format_of_its_ending_and_stdout_the_tables(
    file: str, name: str, command: Command, verdict: Verdict, tmp_path: Path
) -> None:
    done = command("-o", file)
    assert (tmp_path / file).read_text(encoding="utf-8") == formatted(verdict, name) + "\n"
    assert done.stdout.splitlines()[-1].startswith("failed" if not verdict.passed else "passed")


def test_a_file_gets_the_chosen_format_whatever_its_ending(
    command: Command, verdict: Verdict, tmp_path: Path
) -> None:
    command("--format", "csv", "--output", "rows.json")
    assert (tmp_path / "rows.json").read_text() == formatted(verdict, "csv") + "\n"
    command("--json", "-o", "verdict.md")
    assert json.loads((tmp_path / "verdict.md").read_text())["schema"] == 3


def test_a_file_of_text_has_no_colours(command: Command, tmp_path: Path) -> None:
    command("--format", "text", "-o", "out.xml")
    assert "Tests" in (tmp_path / "out.xml").read_text()
    assert "\x1b" not in (tmp_path / "out.xml").read_text()


def test_the_count_of_failures_is_that_of_the_exit_code(command: Command) -> None:
    done = command("--format", "junit")
    failures = int(Xml.fromstring(done.stdout.encode()).get("failures") or "0")
    assert (failures > 0) is (done.exit_code == 1)
