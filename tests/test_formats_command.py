"""--json and -o of the commands that judge; the judge itself is replaced by a recorded run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from recorded_verdicts import recorded_verdict

from nvfp4.cli import invocation as judging
from nvfp4.cli.display.render import plain_text
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


def test_the_object_is_all_that_stands_on_stdout(command: Command, verdict: Verdict) -> None:
    assert json.loads(command("--json").stdout) == json.loads(json.dumps(verdict.as_json()))


@pytest.mark.parametrize("name", ["verdict.json", "verdict"])
def test_a_file_gets_the_object_and_stdout_the_tables(
    name: str, command: Command, verdict: Verdict, tmp_path: Path
) -> None:
    done = command("-o", name)
    assert json.loads((tmp_path / name).read_text()) == json.loads(json.dumps(verdict.as_json()))
    assert done.stdout.splitlines()[-1].startswith("passed" if verdict.passed else "failed")


def test_a_file_of_text_has_the_tables_without_colours(
    command: Command, verdict: Verdict, tmp_path: Path
) -> None:
    command("--json", "-o", "out.TXT")
    text = (tmp_path / "out.TXT").read_text()
    assert text == plain_text(verdict) + "\n"
    assert "\x1b" not in text
