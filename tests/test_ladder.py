"""The rungs of ladder/ as files: what each says of itself, and what it does when it is judged."""

from __future__ import annotations

import ast
import difflib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bot import root
from imports import packages_of

from nvfp4.cli.display.progress import Observer
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.warnings import warnings_before
from nvfp4.cli.ladder.measuring import climber
from nvfp4.cli.ladder.results import (
    Rung,
    all_rungs,
    find_rungs,
    ladder_folder,
    no_gpu,
    own_submission,
    read_steps,
    rung_text,
)
from nvfp4.cli.problem import load_problem
from nvfp4.contract.reference import (
    check_implementation,
    generate_full_range_input,
    generate_input,
    ref_kernel,
)
from nvfp4.tuner.space import load_submission
from scripts.ladder_page import markdown

rungs = {rung.name: rung for rung in all_rungs() if rung.name != own_submission}
climbs = [[rung for rung in rungs.values() if rung.folder == name] for name in ("cute", "cuda")]
detours = [rung for rung in rungs.values() if rung.folder == "detours"]

public = {"dataclasses", "functools", "itertools", "torch", "cutlass", "task"}
"""What a rung may import: what Python and the contest's machines have, and the task."""

longest_file = 175
longest_diff = 130

anew = {"cute/13_tma_tcgen05", "cuda/10_tcgen05"}
"""Rungs that share next to nothing with the one before: tensor cores want another kernel."""

longest_anew = 310


def document(rung: Rung) -> str:
    """A rung's docstring on one line."""
    return " ".join((ast.get_docstring(ast.parse(rung_text(rung.name))) or "").split())


def parent(detour: Rung) -> Rung:
    """The rung that a detour starts from, by the first words of its docstring."""
    found = re.match(r"From ([\w/]+): ", document(detour))
    assert found
    return rungs[found[1]]


def code(rung: Rung) -> list[str]:
    """The lines below the docstring."""
    text = rung_text(rung.name)
    return text.splitlines()[ast.parse(text).body[0].end_lineno or 0 :]


def changed_lines(before: Rung, after: Rung) -> int:
    """How many lines of code a diff shows, a changed one once."""
    matcher = difflib.SequenceMatcher(None, code(before), code(after), autojunk=False)
    differing = [each for each in matcher.get_opcodes() if each[0] != "equal"]
    return sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in differing)


def full_range_fails(rung: Rung) -> bool:
    """Whether its docstring says that full-range inputs fail, at any k."""
    return re.search(r"full-range inputs fail(?!, where)", document(rung)) is not None


@pytest.mark.parametrize("name", rungs)
def test_a_rung_is_a_complete_submission(name: str) -> None:
    text = rung_text(name)
    assert text.startswith("#!POPCORN leaderboard nvfp4_gemv\n#!POPCORN gpu NVIDIA\n")
    path = rungs[name].path
    assert warnings_before(path.read_bytes()) == []
    assert packages_of(text) <= public
    assert "custom_kernel" in {
        node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
    }
    assert len(text.splitlines()) <= (longest_anew if name in anew else longest_file)


@pytest.mark.parametrize("name", rungs)
def test_a_rung_says_what_it_buys_and_costs(name: str) -> None:
    third = "Outcome" if rungs[name].folder == "detours" else "Buys"
    for part in ("Idea", "Costs", third):
        assert f" {part}: " in document(rungs[name])


@pytest.mark.parametrize("climb", climbs, ids=["cute", "cuda"])
def test_rungs_are_numbered_and_neighbours_differ_by_an_idea(climb: list[Rung]) -> None:
    numbers = [int(rung.path.stem.partition("_")[0]) for rung in climb]
    assert numbers == list(range(1, len(climb) + 1))
    for before, after in pairwise(climb):
        if after.name not in anew:
            assert 0 < changed_lines(before, after) <= longest_diff, after.name


@pytest.mark.parametrize("detour", detours, ids=lambda rung: rung.name)
def test_a_detour_is_a_small_step_aside(detour: Rung) -> None:
    assert 0 < changed_lines(parent(detour), detour) <= 30


def test_published_times_are_those_of_rungs() -> None:
    published = [rung for rung in rungs.values() if rung.published_us]
    assert len(published) == 14
    assert min(published, key=lambda rung: rung.published_us or 0).name == "cuda/09_per_shape"


def test_a_rung_is_found_by_its_name_and_without_its_number() -> None:
    wanted = rungs["cute/07_split_k_warp"]
    for name in ("cute/07_split_k_warp", "cute/split_k_warp", "ladder/cute/07_split_k_warp.py"):
        assert find_rungs([name]) == [wanted]
        assert rung_text(name) == wanted.path.read_text()
    assert find_rungs(["cuda", "cute/template"]) == [rungs["cute/01_template"], *climbs[1]]
    assert find_rungs([])[-1].name == own_submission


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cute/07_splitk_warp", "cute/07_split_k_warp"),
        ("split_k_warp", "cute/split_k_warp"),
        ("detours/prefetching", "detours/prefetch"),
        ("?", "cute/01_template"),
    ],
)
def test_an_unknown_name_is_answered_with_those_like_it(name: str, near: str) -> None:
    with pytest.raises(SetupError, match="no rung") as refused:
        rung_text(name)
    assert near in refused.value.hint


def test_a_folder_is_no_text() -> None:
    with pytest.raises(SetupError, match="folder"):
        rung_text("cuda")


def test_the_page_shows_what_was_found_of_the_files_as_they_are() -> None:
    """`nvfp4 ladder --state ladder/results.json` and `scripts.ladder_page` make it so."""
    steps = read_steps(ladder_folder() / "results.json")
    assert {name: step.sha256 for name, step in steps.items()} == {
        rung.name: rung.sha256 for rung in all_rungs()
    }
    assert markdown(all_rungs(), steps) in (ladder_folder() / "README.md").read_text()
    for rung in rungs.values():
        judged = steps[rung.name].on[no_gpu]
        assert judged.passed
        assert judged.tests == 20
        assert judged.full_range != full_range_fails(rung), rung.name


@pytest.fixture(scope="module")
def emulation() -> Iterator[Any]:
    """Runs what CuTe DSL launches in this process."""
    pytest.importorskip("cutlass")
    from nvfp4.emulation import install

    with install() as active:
        yield active


@pytest.mark.parametrize("name", [name for name in rungs if "cutlass" in rung_text(name)])
def test_a_rung_in_cute_dsl_is_right_on_a_small_shape(name: str, emulation: Any) -> None:
    """With two batches, on full-range inputs where it is to pass those."""
    rung = rungs[name]
    generate = generate_input if full_range_fails(rung) else generate_full_range_input
    data = generate(128, 640, 2, seed=1111)
    data[-1].fill_(float("nan"))
    emulation.clear()
    passed, message = check_implementation(
        data, load_submission(rung.path).custom_kernel(data), ref_kernel(data)
    )
    assert passed, message
    (report,) = emulation.launches
    assert report.ctas_run == report.ctas_total


@pytest.mark.corpus
@pytest.mark.parametrize("name", rungs)
def test_every_rung_passes_with_the_counts_that_are_known_of_it(name: str) -> None:
    if rungs[name].folder == "cute":
        pytest.importorskip("cutlass")
    known = read_steps(ladder_folder() / "results.json")[name]
    climbing = climber(load_problem(), "cpu", "contest", False, lambda: nullcontext(Observer()))
    (step,) = climbing.climb([rungs[name]], {})
    found, expected = step.on[no_gpu], known.on[no_gpu]
    assert (found.passed, found.full_range) == (True, expected.full_range), found.message
    assert step.counts
    assert known.counts
    assert step.counts.instructions == pytest.approx(known.counts.instructions, rel=0.1)
    assert step.counts.registers
    assert step.counts.warps_per_sm


@pytest.mark.corpus
def test_the_last_rung_in_cuda_sums_in_f16_where_k_is_2048(tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    path = rungs["cuda/09_per_shape"].path
    command = ["-m", "nvfp4", "check", str(path), "--shape", "128,2048,1", "--device", "cpu"]
    ended = subprocess.run([sys.executable, *command, "-o", str(verdict)], cwd=root)
    assert ended.returncode == 1
    (test,) = json.loads(verdict.read_text())["tests"]
    assert test["failure"]["code"] == "output.mismatch"
