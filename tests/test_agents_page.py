"""The examples of docs/agents.md run as they stand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bot import root
from conftest import right_source, small_copy

from scripts.codes import judge_codes, own_records

text = (root / "docs" / "agents.md").read_text(encoding="utf-8")
examples = re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

sources = {
    "right": f"{right_source}\ncustom_kernel = gemv\n",
    "twice": f"{right_source}\ndef custom_kernel(data):\n    return gemv(data) * 2\n",
    "raises": "def custom_kernel(data):\n    a, b = data\n    return a\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with one small test, where `nvfp4` is a command."""
    tests = [{"m": 128, "k": 256, "l": 2, "seed": 1111}]
    folder = small_copy(tmp_path_factory.mktemp("repository"), tests=tests)
    command = folder / "bin" / "nvfp4"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nvfp4 "$@"\n')
    command.chmod(0o755)
    return folder


def run(folder: Path, number: int, source: str) -> subprocess.CompletedProcess[str]:
    """An example with a submission as mine.py."""
    language, program = examples[number]
    (folder / "mine.py").write_text(sources[source], encoding="utf-8")
    command = ["bash", "-e", "-c"] if language == "sh" else [sys.executable, "-c"]
    if number == 0:  # it looks at the exit code itself
        command = ["bash", "-c"]
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*command, program],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_every_example_is_run_here() -> None:
    assert [language for language, _ in examples] == ["sh", "python", "python", "sh", "python"]


def test_the_exit_code_says_how_it_ended(folder: Path) -> None:
    done = run(folder, 0, "right")
    assert done.stdout == "passed\n", done.stderr
    assert done.stderr == ""
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["passed"] is True
    assert "judging on" in (folder / "progress.txt").read_text()


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            "twice",
            [
                "2 of 2 tests failed, first m: 128; k: 256; l: 2; seed: 1111",
                "output.mismatch None None {'wrong': 256, 'elements': 256}",
            ],
        ),
        (
            "raises",
            [
                "2 of 2 tests failed, first m: 128; k: 256; l: 2; seed: 1111",
                "call.exception submission.py 2 {'type': 'ValueError'}",
            ],
        ),
    ],
)
def test_a_program_reads_why_a_test_failed(folder: Path, source: str, lines: list[str]) -> None:
    done = run(folder, 1, source)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == lines


def test_a_program_does_not_take_a_cpu_s_time_for_a_gpu_s(folder: Path) -> None:
    done = run(folder, 2, "right")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"plain torch on a CPU: .*\n|[\d.]+ \+- [\d.]+ us\n", done.stdout)


def test_reports_are_written(folder: Path) -> None:
    done = run(folder, 3, "right")
    assert done.returncode == 0, done.stderr
    assert "passed: 2 tests" in (folder / "verdict.txt").read_text().splitlines()[-1]


def test_a_folder_is_judged_and_its_lines_are_read(folder: Path) -> None:
    (folder / "kernels").mkdir()
    for name in ("one.py", "two.py"):
        (folder / "kernels" / name).write_text("def custom_kernel(:\n")
    (folder / "kernels" / "three.py").symlink_to("nowhere")
    done = run(folder, 4, "right")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
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
