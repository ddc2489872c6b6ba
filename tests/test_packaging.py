"""What the contest's bot gets, and what a wheel holds."""

import re

from bot import problem, root


def test_task_yml_lists_the_five_files_of_the_contract() -> None:
    sources = {entry["name"]: entry["source"] for entry in problem()["files"]}
    assert set(sources) == {"submission.py", "task.py", "reference.py", "eval.py", "utils.py"}
    assert sources.pop("submission.py") == "@SUBMISSION@"
    for name, source in sources.items():
        assert (root / source).name == name
        assert (root / source).is_file()


def test_what_the_top_shows_is_what_the_package_has() -> None:
    contract = root / "nvfp4" / "contract"
    for name in ("task.py", "reference.py", "eval.py", "submission.py", "task.yml"):
        assert (contract / name).resolve() == root / name
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
