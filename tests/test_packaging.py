"""What the contest's bot gets, and what a wheel holds."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

from bot import problem, root
from imports import folders

longest_bundle = 50_000
"""Characters of the bot's request: the contest's own folder is at 23,360."""


def sources() -> dict[str, Path]:
    """Name in the bot's folder to the file of this repository."""
    entries = {entry["name"]: entry["source"] for entry in problem()["files"]}
    return {
        name: root / (name if source == "@SUBMISSION@" else source)
        for name, source in entries.items()
    }


def test_task_yml_lists_the_files_of_the_top_and_of_harness_and_nothing_else() -> None:
    files = {path.name: path for path in (*root.glob("*.py"), *(root / "harness").glob("*.py"))}
    assert sources() == {**files, "task.yml": root / "task.yml"}


def test_the_bundle_that_the_bot_sends_is_small() -> None:
    """In the order of task.yml, where similar files stand next to each other: all are compressed
    together."""
    contents = {name: path.read_text(encoding="utf-8") for name, path in sources().items()}
    request = base64.b64encode(zlib.compress(json.dumps(contents).encode()))
    assert len(request) < longest_bundle


def test_a_wheel_has_one_top_level_name_and_whole_folders_in_it() -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[tool.hatch.build.targets.wheel")[2].partition("\n[tool.ruff")[0]
    assert re.findall(r"^packages = (.+)$", section, re.MULTILINE) == ['["nvfp4"]']
    included = dict(re.findall(r'^"(.+)" = "(.+)"$', section, re.MULTILINE))
    top = {path.name for path in root.glob("*.py")} | {"task.yml"}
    judged = {"ladder", "nvfp4/selftest/cheats", "nvfp4/selftest/honest"}
    assert included == {name: f"nvfp4/{name}" for name in {*folders, *top, *judged}}


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
