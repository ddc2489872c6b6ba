"""An installed wheel judges without the repository, wherever it is started."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from bot import problem, root

from nvfp4.cli.problem import load_problem
from nvfp4.cli.selftest import load_corpus

pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the repository, with nothing downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, "wheel", *options, str(root)], check=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of an environment with the wheel and all that it requires.

    What it requires is read where the tests have it, without the .pth file there that puts the
    repository on the path: Python follows such files in an environment's own folder alone.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (found,) = folder.glob("lib/python*/site-packages")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(found), str(wheel)], check=True)
    (found / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (found / "sitecustomize.py").write_text(without_loops)
    (found / "enum.py").write_text("raise ImportError('for older versions of Python')")
    return found


without_loops = """
import sys

if "nvfp4.executor" in sys.orig_argv:
    from nvfp4.executor import machine_code

    machine_code._compile = lambda folder, lines: None
"""
"""Plain torch needs none of the emulator's loops, which would be compiled for each folder anew."""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with a submission, and with folders of the user's named like ours."""
    for name in ("cli", "capture", "emulator", "local", "tuner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this one is not nvfp4')\n")
    plain = next(each for each in load_corpus(load_problem()) if each.name == "plain")
    (tmp_path / "mine.py").write_text(plain.source)
    return tmp_path


def python(packages: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the environment's Python in a folder."""
    interpreter = packages.parents[2] / "bin" / "python"
    without = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(interpreter), *arguments],
        cwd=folder,
        env={**without, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_has_one_top_level_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition("/")[0] for name in archive.namelist()}
    assert names == {"nvfp4", "-".join(wheel.name.split("-")[:2]) + ".dist-info"}


def test_every_module_comes_from_the_wheel(packages: Path, elsewhere: Path) -> None:
    code = (
        "import sys, nvfp4, nvfp4.emulation, nvfp4.cli.invocation, nvfp4.tuner.tune\n"
        "ours = [name for name in sys.modules if name.partition('.')[0] == 'nvfp4']\n"
        "print(*(getattr(sys.modules[name], '__file__', name) for name in ours), sep='\\n')"
    )
    ended = python(packages, elsewhere, "-c", code)
    assert ended.returncode == 0, ended.stderr
    files = [Path(line) for line in ended.stdout.splitlines()]
    assert len(files) > 20
    assert [path for path in files if packages / "nvfp4" not in path.parents] == []


def test_it_judges_a_submission(packages: Path, elsewhere: Path) -> None:
    command = ("-m", "nvfp4", "check", "mine.py", "--shape", "128,256,1", "--device", "cpu")
    ended = python(packages, elsewhere, *command)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "128 x 256 x 1" in ended.stdout


# What the contest's bot gets, and what a wheel holds.


def test_task_yml_lists_the_five_files_of_the_contract() -> None:
    sources = {entry["name"]: entry["source"] for entry in problem()["files"]}
    assert set(sources) == {"submission.py", "task.py", "reference.py", "eval.py", "utils.py"}
    assert sources.pop("submission.py") == "@SUBMISSION@"
    for name, source in sources.items():
        assert (root / source).name == name
        assert (root / source).is_file()


def test_what_the_top_shows_is_what_the_package_has() -> None:
    contract = root / "nvfp4" / "problems" / "nvfp4_gemv"
    for name in ("task.py", "reference.py", "eval.py", "task.yml"):
        assert (contract / name).resolve() == root / name
    assert (root / "nvfp4" / "selftest" / "submission.py").resolve() == root / "submission.py"
    assert (root / "cli").resolve() == root / "nvfp4" / "cli"
    assert (root / "nvfp4" / "ladder").resolve() == root / "ladder"


def test_a_wheel_is_the_package_and_nothing_is_copied_into_it() -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r"^packages = (.+)$", text, re.MULTILINE) == ['["nvfp4"]']
    assert "force-include" not in text


def test_the_contest_s_cases_stand_in_task_yml() -> None:
    tests = [(128, 256, 1), (128, 1536, 1), (128, 3072, 1), (256, 7168, 1), (256, 7168, 1)]
    tests += [(2432, 4608, 2), (384, 7168, 2), (512, 512, 2), (512, 4096, 2), (512, 1536, 2)]
    benchmarks = [(7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4)]
    content = problem()
    for kind, shapes in (("tests", tests), ("benchmarks", benchmarks)):
        assert [(case["m"], case["k"], case["l"]) for case in content[kind]] == shapes
        assert {case["seed"] for case in content[kind]} == {1111}
    assert content["ranking_by"] == "geom"
    assert content["config"]["main"] == "eval.py"
    assert content["lang"] == "py"


def test_the_submission_begins_with_the_contest_s_directives() -> None:
    lines = (root / "submission.py").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["#!POPCORN leaderboard nvfp4_gemv", "#!POPCORN gpu NVIDIA"]
