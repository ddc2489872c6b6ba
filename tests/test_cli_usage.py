"""The command where it judges nothing: wrong usage, a bad task.yml."""

import importlib.metadata
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

import nvfp4
from nvfp4.cli.main import main
from nvfp4.cli.problem import ProblemError, load_problem

unwritten = "def custom_kernel(data):\n    return data[6]\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["eval", "missing.py"], "cannot read missing.py: No such file or directory"),
        (["eval", "."], ". is a folder, not a file"),
        (["eval", "--flush", "fast"], "'fast' is not one of"),
        (["eval", "--device", "tpu"], "'tpu' is not auto"),
        (["eval", "--device", "cuda:x"], "'cuda:x' is not auto"),
        (["eval", "--seed", "-1"], "-1 is not in the range"),
        (["eval", "--timeout", "0"], "not in the range"),
        (["eval", "--output", "nowhere/verdict.json"], "cannot write nowhere/verdict.json"),
        (["bench", "--shape", "128"], "'128' is not M,K,L, such as 7168,16384,1"),
        (["bench", "--shape", "128,100,1"], "k must be a positive multiple of 64"),
        (["bench", "--shape", "0,64,1"], "m and l must be at least 1"),
        (["bench", "--shape", "a,b,c"], "is not M,K,L"),
        (["judge"], "No such command"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_reason(
    arguments: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "submission.py").write_text(unwritten)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert why in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot read"),
        ("{", "cannot read"),
        ("tests: 5", "does not hold tests and benchmarks"),
    ],
)
def test_a_bad_task_yml_is_refused_with_the_reason(
    content: str | None, why: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "task.yml").write_text(content)
    with pytest.raises(ProblemError, match=why):
        load_problem(tmp_path)


def test_the_version_is_known_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    shown = CliRunner().invoke(main, ["--version"]).output
    assert shown == f"nvfp4, version {nvfp4.__version__}\n"
