"""The examples of docs/agents.md run as they stand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bot import root

from nvfp4.cli.problem import load_problem
from nvfp4.cli.selftest import load_corpus
from scripts.codes import judge_codes, own_records

text = (root / "docs" / "agents.md").read_text(encoding="utf-8")
examples = re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

with_recorded_verdicts = f"""
import os, sys

sys.path[:1] = [{str(root)!r}, {str(root / "tests")!r}]
del sys.modules["nvfp4"]
from nvfp4.cli import invocation
from nvfp4.cli.main import main
from recorded_verdicts import recorded_verdict


def assess(bot, plan, verdict, observer):
    found = vars(recorded_verdict(os.environ["RECORDED"]))
    observer.device(found["device"])
    vars(verdict).update({{name: found[name] for name in ("device", "tests", "benchmarks")}})


invocation.assess = assess
main()
"""
"""The command; what it would judge has the verdict of a run in tests/recorded/."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mine.py in which `nvfp4` is a command."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "mine.py").write_text("def custom_kernel(data):\n    return data[6]\n")
    (folder / "nvfp4").mkdir()
    (folder / "nvfp4" / "__init__.py").touch()
    (folder / "nvfp4" / "__main__.py").write_text(with_recorded_verdicts)
    command = folder / "bin" / "nvfp4"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nvfp4 "$@"\n')
    command.chmod(0o755)
    return folder


def run(folder: Path, number: int, recorded: str) -> subprocess.CompletedProcess[str]:
    """An example where every judgement ends like a recorded one."""
    language, program = examples[number]
    command = ["bash", "-e", "-c"] if language == "sh" else [sys.executable, "-c"]
    if number == 0:  # it looks at the exit code itself
        command = ["bash", "-c"]
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command, program],
        cwd=folder,
        env={**os.environ, "PATH": path, "RECORDED": recorded},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_every_example_is_run_here() -> None:
    assert [language for language, _ in examples] == ["sh", "python", "python", "sh", "python"]


def test_the_exit_code_says_how_it_ended(folder: Path) -> None:
    done = run(folder, 0, "passed")
    assert done.stdout == "passed\n", done.stderr
    assert done.stderr == ""
    assert json.loads((folder / "verdict.json").read_text())["passed"] is True
    assert "judging on" in (folder / "progress.txt").read_text()


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        ("mismatch", "output.mismatch None None {'wrong': 256, 'elements': 256}"),
        ("raised", "call.exception submission.py 5 {'type': 'ValueError'}"),
    ],
)
def test_a_program_reads_why_a_test_failed(folder: Path, recorded: str, why: str) -> None:
    first, second, *_ = run(folder, 1, recorded).stdout.splitlines()
    assert re.fullmatch(r"(\d+) of \1 tests failed, first m: \d+; .*", first)
    assert second == why


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ("emulated", r"\d+ warp instructions, [\d.]+ x the bytes\n"),
        ("cpu_times", r"plain torch on a CPU: .*\n"),
    ],
)
def test_a_program_does_not_take_a_cpu_s_time_for_a_gpu_s(
    folder: Path, recorded: str, said: str
) -> None:
    assert re.fullmatch(said, run(folder, 2, recorded).stdout)


def test_reports_are_written(folder: Path) -> None:
    run(folder, 3, "passed")
    assert (folder / "verdict.txt").read_text().splitlines()[-1].startswith("passed: ")


def test_a_folder_is_judged_and_its_lines_are_read(folder: Path) -> None:
    (folder / "kernels").mkdir()
    for name in ("one.py", "two.py"):
        (folder / "kernels" / name).write_text("def custom_kernel(:\n")
    (folder / "kernels" / "three.py").symlink_to("nowhere")
    assert run(folder, 4, "").stdout.splitlines() == [
        "kernels/one.py cannot run: syntax",
        "kernels/three.py was not judged: setup.unreadable",
        "kernels/two.py cannot run: syntax",
    ]


def test_the_codes_that_the_page_names_are_codes() -> None:
    known = {*judge_codes, *own_records}
    families = {code.partition(".")[0] for code in known} | {"build", "kernel"}
    named = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    for code in re.findall(r"`([a-z]+\.[a-z_*]+)`", " ".join(named)):
        family, _, rest = code.partition(".")
        assert family in families
        assert rest == "*" or code in known, code


def test_every_cheat_of_the_corpus_names_the_code_that_catches_it() -> None:
    codes = (root / "docs" / "codes.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `([\w.]+)`", codes, re.MULTILINE))
    cheats = [each for each in load_corpus(load_problem()) if each.family is not None]
    assert {each.name for each in cheats if each.caught is None} == set()
    for each in cheats:
        ways = re.split(r"\|(?=[a-z_]+[.:])", each.caught or "")
        assert {re.split(r":(?!/)", way)[0] for way in ways} <= known, each.name
