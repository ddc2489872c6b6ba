"""Which module may import which, read from the source."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from bot import problem, root

modules = {path.stem: path for path in root.glob("*.py")}
packages = ("cli", "emulator")


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports anywhere in it, by its full dotted name.

    Relative imports are left out: they cannot leave their package.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return found


def local_imports(path: Path) -> set[str]:
    """The modules and packages of this repository that a file imports."""
    tops = {name.partition(".")[0] for name in imports_of(path)}
    return tops & (set(modules) | set(packages))


def public_imports(path: Path) -> set[str]:
    """Packages from outside the repository and the standard library."""
    tops = {name.partition(".")[0] for name in imports_of(path)}
    return tops - set(modules) - set(packages) - set(sys.stdlib_module_names)


def reachable(name: str) -> set[str]:
    """Top-level modules that a top-level module imports, directly or not."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for each in local_imports(modules[waiting.pop()]) & set(modules):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return seen


sources = [path for name in packages for path in sorted((root / name).rglob("*.py"))]


def test_the_submission_imports_task_and_public_packages_only() -> None:
    assert local_imports(modules["submission"]) == {"task"}
    assert public_imports(modules["submission"]) <= {"torch", "cutlass", "cuda"}


def test_task_imports_nothing_of_the_repository() -> None:
    assert local_imports(modules["task"]) == set()


def test_the_reference_stands_on_task_alone() -> None:
    assert reachable("reference") == {"task", "exact", "diagnosis"}
    assert local_imports(modules["exact"]) == {"task"}
    assert local_imports(modules["diagnosis"]) == {"task", "exact"}


def test_the_judge_reaches_task_and_reference() -> None:
    assert {"task", "reference"} <= reachable("eval")


def test_neither_judge_nor_worker_imports_the_submission() -> None:
    for name in modules:
        assert "submission" not in local_imports(modules[name]), name


def test_the_worker_cannot_reach_the_reference_the_cases_or_the_result_pipe() -> None:
    hidden = {"reference", "exact", "diagnosis", "cases", "protocol", "judge", "eval"}
    assert not reachable("worker") & hidden


@pytest.mark.parametrize("path", sources, ids=lambda path: str(path.relative_to(root)))
def test_command_and_emulator_import_none_of_the_judge(path: Path) -> None:
    assert not local_imports(path) & set(modules)
    if path.is_relative_to(root / "cli"):
        assert not public_imports(path) & {"torch", "cutlass", "cuda", "numpy", "numba"}
        assert "emulator" not in local_imports(path)
    else:
        assert "cli" not in local_imports(path)


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {name: local_imports(path) & set(modules) for name, path in modules.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules)


def test_task_yml_names_every_top_level_module_and_nothing_else() -> None:
    named = {entry["name"] for entry in problem()["files"]}
    assert named == {path.name for path in modules.values()}


def test_the_judge_imports_its_own_modules_by_name_and_the_submission_never() -> None:
    scripts = {"eval", "worker", "harness", "submission"}
    assert harness.modules == set(modules) - scripts


def test_task_yml_takes_every_file_from_its_own_name_but_the_submission() -> None:
    sources_by_name = {entry["name"]: entry["source"] for entry in problem()["files"]}
    assert sources_by_name.pop("submission.py") == "@SUBMISSION@"
    assert all(name == source for name, source in sources_by_name.items())


def tuner_modules() -> set[str]:
    """Modules in scripts/ that the tuner imports, itself among them."""
    found, waiting = {"kernel_tune"}, ["kernel_tune"]
    while waiting:
        names = imports_of(root / "scripts" / f"{waiting.pop()}.py")
        ours = {name.removeprefix("scripts.") for name in names if name.startswith("scripts.")}
        waiting += ours - found
        found |= ours
    return found


def test_the_tuner_needs_nothing_that_a_wheel_has_not() -> None:
    needed = {name for each in tuner_modules() for name in local_imports(tuner_path(each))}
    assert needed <= {entry["name"].removesuffix(".py") for entry in problem()["files"]}


def tuner_path(name: str) -> Path:
    return root / "scripts" / f"{name}.py"


def test_a_wheel_holds_task_yml_what_it_names_the_corpus_of_selftest_and_the_tuner() -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[tool.hatch.build.targets.wheel.force-include]")[2].partition("\n[")[
        0
    ]
    included = dict(re.findall(r'^"(.+)" = "(.+)"$', section, re.MULTILINE))
    names = {"task.yml", "tests/cheats", "tests/honest"}
    names |= {entry["name"] for entry in problem()["files"]}
    names |= {f"scripts/{name}.py" for name in ("__init__", *tuner_modules())}
    assert included == {name: f"cli/problem/{name}" for name in names}


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
    lines = modules["submission"].read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["#!POPCORN leaderboard nvfp4_gemv", "#!POPCORN gpu NVIDIA"]
