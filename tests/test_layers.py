"""Which module may import which, read from the source: arrows point downward only."""

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from imports import graph, imports_of, modules

everything = modules()

layers = (
    ("records",),
    ("contract", "capture", "emulator"),
    ("gpu", "retarget", "emulation", "sandbox"),
    ("retargeting", "model", "problems"),
    ("worker", "referee"),
    ("executor",),
    ("judge",),
    ("tuner",),
)
"""Folders and modules of nvfp4, from the bottom. Each may import those below it and itself."""

below = {
    name: {each for lower in layers[:number] for each in lower}
    for number, layer in enumerate(layers)
    for name in layer
}
below["cli"] = {"records"}
"""The command starts processes; it imports none of what they run."""

reading_ptx = {"nvfp4.emulator.errors", "nvfp4.records.texts", "nvfp4.records.source"}
"""What PTX is read with, besides emulator/ptx: its errors, names and lines of source."""


order_in_the_emulator = (
    *("source", "names", "errors", "arrays", "updates", "work", "report", "software", "cost"),
    *("loops", "ptx", "arithmetic", "state", "instructions", "compiler", "execution", "listing"),
    *("rendering", ""),
)
"""Folders and modules of the emulator, each of which may import its own and what stands before."""


def folder_of(name: str) -> str:
    """The folder, or the module beside the folders, that a module of nvfp4 belongs to."""
    return name.split(".")[1] if "." in name else ""


def members(folder: str) -> list[str]:
    return [name for name in everything if folder_of(name) == folder]


def reachable(*names: str) -> set[str]:
    """Modules that these import, directly or not."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        new = graph()[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def public_imports(name: str) -> set[str]:
    """Packages from outside the repository and the standard library that a module imports."""
    tops = {each.partition(".")[0] for each in imports_of(everything[name])}
    return tops - {each.partition(".")[0] for each in everything} - set(sys.stdlib_module_names)


def test_the_submission_imports_what_the_bot_gives_it_and_nothing_else_of_ours() -> None:
    assert graph()["submission"] <= {"task"}
    assert public_imports("submission") <= {"torch", "cutlass", "cuda"}


def test_the_task_imports_nothing_of_the_repository_and_the_reference_task_alone() -> None:
    assert graph()["task"] == set()
    assert graph()["reference"] == {"nvfp4.problems.nvfp4_gemv.task"}


def test_the_entry_of_the_bot_imports_the_judge_s_alone() -> None:
    assert graph()["eval"] == {"nvfp4.judge.entry"}


@pytest.mark.parametrize("name", [name for name in everything if folder_of(name) in below])
def test_a_module_imports_its_own_folder_and_those_below(name: str) -> None:
    folder = folder_of(name)
    assert {folder_of(each) for each in graph()[name]} - {"", folder} <= below[folder], name


def test_every_folder_has_its_layer() -> None:
    assert {folder_of(name) for name in everything} - {"", "__main__"} == set(below)


def test_there_is_no_import_circle() -> None:
    assert len(list(TopologicalSorter(graph()).static_order())) == len(everything)


@pytest.mark.parametrize("folder", sorted({name.rpartition(".")[0] for name in everything} - {""}))
def test_there_is_no_circle_of_folders_at_any_depth(folder: str) -> None:
    """Of what each folder and module right below a folder imports of the others there."""
    depth = folder.count(".") + 2
    inside = [name for name in everything if name.startswith(f"{folder}.")]
    arrows: dict[str, set[str]] = {}
    for name in inside:
        own = ".".join(name.split(".")[:depth])
        others = {".".join(each.split(".")[:depth]) for each in graph()[name] & set(inside)}
        arrows.setdefault(own, set()).update(others - {own})
    assert len(list(TopologicalSorter(arrows).static_order())) == len(arrows)


def test_the_judge_does_not_import_the_worker() -> None:
    """It distrusts that process; what both know is in records and gpu."""
    found = {each for name in members("judge") for each in graph()[name]}
    assert not [each for each in found if folder_of(each) == "worker"]


def test_records_import_the_standard_library_alone() -> None:
    for name in members("records"):
        assert public_imports(name) <= {"typing_extensions"}, name  # for type checkers, in base.py


def test_capture_and_emulator_meet_in_one_place() -> None:
    both = {
        name
        for name in everything
        if folder_of(name) not in ("capture", "emulator", "retarget")
        if {"capture", "emulator"} <= {folder_of(each) for each in graph()[name]}
    }
    assert both == {"nvfp4.emulation"}


def test_retargeting_reads_ptx_and_emulates_nothing() -> None:
    found = {each for name in members("retarget") for each in graph()[name]}
    emulator = {each for each in found if folder_of(each) == "emulator"}
    assert {each for each in emulator if not each.startswith("nvfp4.emulator.ptx")} <= reading_ptx


def test_nobody_imports_the_submission() -> None:
    assert not [name for name in everything if graph()[name] & {"submission"}]


def test_the_worker_cannot_reach_the_reference() -> None:
    assert "nvfp4.problems.nvfp4_gemv.reference" not in reachable(*members("worker"))


def test_the_executor_can_reach_neither_a_submission_nor_the_reference() -> None:
    found = reachable(*members("executor"))
    hidden = {"nvfp4.worker.runner", "nvfp4.problems.nvfp4_gemv.reference", "nvfp4.emulation"}
    assert not found & hidden
    assert not [each for each in found if folder_of(each) == "capture"]
    assert "torch" not in {each for name in found for each in public_imports(name)}


def test_the_emulator_knows_neither_torch_nor_cute_dsl() -> None:
    for name in members("emulator"):
        assert public_imports(name) <= {"numpy", "numba", "llvmlite"}, name


def place_in_the_emulator(name: str) -> int:
    return order_in_the_emulator.index(f"{name}.".split(".")[2])


@pytest.mark.parametrize("name", members("emulator"))
def test_every_import_in_the_emulator_goes_down(name: str) -> None:
    for other in graph()[name] & set(members("emulator")):
        assert place_in_the_emulator(other) <= place_in_the_emulator(name), other


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nvfp4.emulator import a\n",
        "def late():\n    import nvfp4.emulator.a\n",
    ],
)
def test_an_import_is_found_wherever_it_hides(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.py").write_text(text)
    assert "nvfp4.emulator.a" in imports_of(tmp_path / "b.py")


def test_the_command_imports_nothing_heavy() -> None:
    for name in members("cli"):
        assert not public_imports(name) & {"torch", "cutlass", "cuda", "numpy", "numba"}, name


@pytest.mark.parametrize("name", ["nvfp4.retarget.nvcc", "nvfp4.retarget.extensions"])
def test_what_runs_for_every_call_of_nvcc_imports_nothing_heavy(name: str) -> None:
    code = f"import sys, {name}; print(sorted({{'torch', 'numba', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_module_bears_neither_its_folder_s_name_nor_that_of_a_library() -> None:
    for name, path in everything.items():
        if path.stem != "__init__" and "." in name:
            assert path.stem != path.parent.name, path
