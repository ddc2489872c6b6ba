"""Which module may import which, read from the source."""

from __future__ import annotations

import sys
from graphlib import TopologicalSorter

import pytest
from bot import root
from imports import folders, graph, imports_of, modules, top

everything = modules()
imported = graph()


def members(folder: str) -> list[str]:
    """The modules of a folder."""
    return [name for name, path in everything.items() if path.is_relative_to(root / folder)]


def reachable(*names: str) -> set[str]:
    """Modules that these import, directly or not."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        new = imported[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def public_imports(name: str) -> set[str]:
    """Packages from outside the repository and the standard library that a module imports."""
    tops = {each.partition(".")[0] for each in imports_of(everything[name])}
    ours = {each.partition(".")[0] for each in everything}
    return tops - ours - set(sys.stdlib_module_names)


record_of_a_launch = {"nvfp4.capture.errors", "nvfp4.capture.launch", "nvfp4.capture.tensormap"}
"""What a front end hands to an executor."""

reading_ptx = {"nvfp4.emulator.errors", "nvfp4.emulator.names", "nvfp4.emulator.source"}
"""What PTX is read with, besides emulator/ptx: its errors, names and lines of source."""

allowed = {
    "harness": {"task", "reference", *members("harness")},
    "local": {
        *{"task", "reference", "nvfp4.extensions", "nvfp4.retargeting"},
        *members("harness"),
        *members("local"),
    },
    "capture": set(members("capture")),
    "emulator": {*members("emulator"), *record_of_a_launch},
    "retarget": {
        *members("retarget"),
        *members("emulator/ptx"),
        *reading_ptx,
        *record_of_a_launch,
        "nvfp4.capture.signature",
    },
    "cli": {"nvfp4", *members("cli")},
    "tuner": {"task", "reference", *members("harness"), *members("tuner")},
}

outside_the_bot = {
    "eval": {"nvfp4.local.extras", "nvfp4.local.facts", "nvfp4.local.options"},
    "worker": {
        "nvfp4.local.confinement",
        "nvfp4.local.fork_server",
        "nvfp4.local.installed_runner",
    },
    "submission_process": {"nvfp4.local.workers"},
    "buffers": {"nvfp4.local.device_memory"},
    "nvfp4.local.fork_server": {"nvfp4.emulation"},
    "nvfp4.local.emulated_runner": {"nvfp4.emulation"},
    "nvfp4.local.run_alone": {"nvfp4.emulation"},
    "nvfp4.local.execution": {
        "nvfp4.emulator",
        "nvfp4.emulator.listing",
        "nvfp4.emulator.preparation",
        "nvfp4.emulator.source",
    },
    "nvfp4.local.tracebacks": {
        "nvfp4.emulator.errors",
        "nvfp4.emulator.rendering",
        "nvfp4.emulator.source",
    },
    "nvfp4.local.facts": {"nvfp4.capture.cuda.toolchain"},
}
"""Who asks for more where nvfp4 is installed: the judge and its worker, each in one place."""


def test_only_what_the_contest_knows_lies_at_the_top() -> None:
    assert set(top) == {"submission", "task", "reference", "eval"}


def test_the_submission_imports_task_and_public_packages_only() -> None:
    assert imported["submission"] == {"task"}
    assert public_imports("submission") <= {"torch", "cutlass", "cuda"}


def test_task_imports_nothing_of_the_repository_and_the_reference_task_alone() -> None:
    assert imported["task"] == set()
    assert imported["reference"] == {"task"}


@pytest.mark.parametrize("name", [name for folder in folders for name in members(folder)])
def test_a_module_imports_what_its_folder_may(name: str) -> None:
    folder = everything[name].relative_to(root).parts[0]
    assert imported[name] <= allowed[folder] | outside_the_bot.get(name, set())


def test_the_judge_knows_harness_and_what_is_installed_beside_it() -> None:
    assert imported["eval"] <= {"reference", *members("harness"), *outside_the_bot["eval"]}
    assert {"task", "reference"} <= reachable("eval")


def test_capture_and_emulator_meet_in_one_place() -> None:
    both = {name for name in everything if _meets(name, "capture") and _meets(name, "emulator")}
    assert {name for name in both if not name.startswith("nvfp4.emulator")} == {"nvfp4.emulation"}


def _meets(name: str, folder: str) -> bool:
    return bool(imported[name] & set(members(folder)))


def test_nobody_imports_the_submission() -> None:
    assert not [name for name in everything if "submission" in imported[name]]


def test_the_worker_cannot_reach_the_reference_the_cases_or_the_result_pipe() -> None:
    hidden = {"reference", "cases", "protocol", "judge", "eval", "nvfp4.local.diagnosis"}
    assert not reachable("worker") & hidden


def test_the_executor_can_reach_neither_a_submission_nor_the_reference() -> None:
    hidden = {"runner", "submission_process", "reference", "cases", "protocol", "nvfp4.emulation"}
    found = reachable("nvfp4.local.execution")
    assert not found & hidden
    assert found & set(members("capture")) <= record_of_a_launch
    assert "torch" not in {each for name in found for each in public_imports(name)}


def test_the_emulator_knows_neither_torch_nor_cute_dsl() -> None:
    for name in members("emulator"):
        assert public_imports(name) <= {"numpy", "numba", "llvmlite"}, name


def test_the_command_imports_nothing_heavy() -> None:
    for name in members("cli"):
        assert not public_imports(name) & {"torch", "cutlass", "cuda", "numpy", "numba"}, name


def test_there_is_no_import_circle() -> None:
    assert len(list(TopologicalSorter(imported).static_order())) == len(everything)


def test_a_module_bears_neither_its_folder_s_name_nor_that_of_a_library() -> None:
    for name, path in everything.items():
        if path.stem != "__init__" and name not in top:
            assert path.stem != path.parent.name, path
    flat = {path.stem for path in (root / "harness").glob("*.py")}
    assert not flat & set(sys.stdlib_module_names)


@pytest.mark.parametrize("folder", [*folders, "nvfp4", "benchmarks", "scripts", "tests"])
def test_no_module_is_longer_than_400_lines(folder: str) -> None:
    for path in (root / folder).rglob("*.py"):
        assert len(path.read_bytes().splitlines()) <= 400, path
