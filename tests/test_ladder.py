"""The rungs of ladder/ as files: what each says of itself, and what it does when it is judged."""

import ast
import difflib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from imports import packages_of
from kept import judged

from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.warnings import warnings_before
from nvfp4.cli.new import ladder_folder, rung_text, rungs
from nvfp4.cli.problem import load_problem
from nvfp4.problems.nvfp4_gemv.reference import (
    check_implementation,
    generate_full_range_input,
    generate_input,
    ref_kernel,
)
from nvfp4.tuner.space import load_submission
from scripts import ladder_page

paths = rungs()
climbs = [[name for name in paths if name.startswith(f"{kind}/")] for kind in ("cute", "cuda")]
detours = [name for name in paths if name.startswith("detours/")]

public = {"dataclasses", "functools", "itertools", "torch", "cutlass", "task"}
"""What a rung may import: what Python and the contest's machines have, and the task."""

longest_file = 175
longest_diff = 130

anew = {"cute/13_tma_tcgen05", "cuda/10_tcgen05"}
"""Rungs that share next to nothing with the one before: tensor cores want another kernel."""

longest_anew = 310


def document(name: str) -> str:
    """A rung's docstring on one line."""
    return " ".join((ast.get_docstring(ast.parse(rung_text(name))) or "").split())


def parent(detour: str) -> str:
    """The rung that a detour starts from, by the first words of its docstring."""
    found = re.match(r"From ([\w/]+): ", document(detour))
    assert found
    return found[1]


def code(name: str) -> list[str]:
    """The lines below the docstring."""
    text = rung_text(name)
    return text.splitlines()[ast.parse(text).body[0].end_lineno or 0 :]


def changed_lines(before: str, after: str) -> int:
    """How many lines of code a diff shows, a changed one once."""
    matcher = difflib.SequenceMatcher(None, code(before), code(after), autojunk=False)
    differing = [each for each in matcher.get_opcodes() if each[0] != "equal"]
    return sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in differing)


def full_range_fails(name: str) -> bool:
    """Whether its docstring says that full-range inputs fail, at any k."""
    return re.search(r"full-range inputs fail(?!, where)", document(name)) is not None


@pytest.mark.parametrize("name", paths)
def test_a_rung_is_a_complete_submission(name: str) -> None:
    text = rung_text(name)
    assert text.startswith("#!POPCORN leaderboard nvfp4_gemv\n#!POPCORN gpu NVIDIA\n")
    assert warnings_before(text.encode(), load_problem()) == []
    assert packages_of(text) <= public
    assert "custom_kernel" in {
        node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
    }
    assert len(text.splitlines()) <= (longest_anew if name in anew else longest_file)
    for part in ("Idea", "Costs", "Outcome" if name in detours else "Buys"):
        assert f" {part}: " in document(name)


@pytest.mark.parametrize("climb", climbs, ids=["cute", "cuda"])
def test_rungs_are_numbered_and_neighbours_differ_by_an_idea(climb: list[str]) -> None:
    numbers = [int(paths[name].stem.partition("_")[0]) for name in climb]
    assert numbers == list(range(1, len(climb) + 1))
    for before, after in pairwise(climb):
        if after not in anew:
            assert 0 < changed_lines(before, after) <= longest_diff, after


@pytest.mark.parametrize("detour", detours)
def test_a_detour_is_a_small_step_aside(detour: str) -> None:
    assert 0 < changed_lines(parent(detour), detour) <= 30


def test_published_times_are_those_of_rungs() -> None:
    assert set(ladder_page.PUBLISHED_US) < set(paths)
    fastest = min(ladder_page.PUBLISHED_US, key=ladder_page.PUBLISHED_US.__getitem__)
    assert fastest == "cuda/09_per_shape"


@pytest.mark.parametrize(
    "name", ["cute/07_split_k_warp", "cute/split_k_warp", "ladder/cute/07_split_k_warp.py"]
)
def test_a_rung_is_found_by_its_name_and_without_its_number(name: str) -> None:
    assert rung_text(name) == paths["cute/07_split_k_warp"].read_text()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cute/07_splitk_warp", "cute/07_split_k_warp"),
        ("split_k_warp", "cute/split_k_warp"),
        ("detours/prefetching", "detours/prefetch"),
        ("?", "cute/01_template"),
        ("cuda", "cuda/"),
    ],
)
def test_an_unknown_name_is_answered_with_those_like_it(name: str, near: str) -> None:
    with pytest.raises(SetupError, match="no rung") as refused:
        rung_text(name)
    assert near in refused.value.hint


def test_the_page_shows_the_results_of_the_files_as_they_are() -> None:
    """`nvfp4 batch ladder submission.py` and `scripts.ladder_page` make it so."""
    results = ladder_page.read_results()
    assert {name: each["sha256"] for name, each in results.items()} == {
        name: ladder_page.sha256_of(path) for name, path in ladder_page.files().items()
    }
    assert ladder_page.markdown(results) in (ladder_folder() / "README.md").read_text()
    for name in paths:
        assert results[name]["full_range"] != full_range_fails(name), name


def verdict(name: str, **score: Any) -> dict[str, Any]:
    """A line of a batch that judged a rung; nothing is counted unless emulated."""
    call = {"warp_instructions_total": 64, "sectors_requested": 6, "sectors_distinct": 2}
    emulation = None if score["geomean_us"] else call
    return {
        "passed": True,
        "submission": {"sha256": ladder_page.sha256_of(paths[name])},
        "device": {"name": "NVIDIA H100", "retargeted": [{}]},
        "tests": [{"inputs": "contest", "status": "pass"}, {"inputs": "full", "status": "fail"}],
        "benchmarks": [{"spec": "m: 2; k: 16; l: 4; seed: 1", "emulation": emulation}],
        "score": {"predicted": {"us": 9.0, "low_us": 8.0, "high_us": 10.0}, **score},
    }


def test_the_page_takes_what_passed_in_a_batch(tmp_path: Path) -> None:
    changed = {"cute/01_template": {"sha256": "of another file", "us": {}}}
    names = ["cute/12_one_asm", "cuda/01_naive", "cuda/08_fused"]
    judged = [verdict(name, geomean_us=10.0 + index) for index, name in enumerate(names)]
    judged += [verdict(name, geomean_us=None) for name in names]
    judged += [{**verdict("cute/02_scales_once", geomean_us=1.0), "passed": False}]
    results = ladder_page.merged(changed, iter(judged))
    assert set(results) == set(names)
    assert ladder_page.correlations(results) == {"NVIDIA H100": (0.5, 3)}
    page = ladder_page.markdown(results)
    row = "| fail | 16.00 | 3.00 | 11.0* | 9.0 (8.0-10.0) | 2000 |"
    assert f"[01_naive](cuda/01_naive.py) {row}" in page
    assert "[01_template](cute/01_template.py) |  |  |  |  |  | 100 |" in page
    pytest.importorskip("matplotlib")
    ladder_page.draw_climb(results, tmp_path / "climb.svg")
    assert "measured, NVIDIA H100" in (tmp_path / "climb.svg").read_text()


@pytest.mark.parametrize("name", [name for name in paths if "cutlass" in rung_text(name)])
def test_a_rung_in_cute_dsl_is_right_on_a_small_shape(name: str, emulation: Any) -> None:
    """With two batches, on full-range inputs where it is to pass those."""
    generate = generate_input if full_range_fails(name) else generate_full_range_input
    data = generate(128, 640, 2, seed=1111)
    data[-1].fill_(float("nan"))
    output = load_submission(paths[name]).custom_kernel(data)
    passed, message = check_implementation(data, output, ref_kernel(data))
    assert passed, message
    (report,) = emulation.launches
    assert report.ctas_run == report.ctas_total


@pytest.mark.corpus
@pytest.mark.parametrize("name", paths)
def test_every_rung_passes_with_the_counts_that_are_known_of_it(name: str, tmp_path: Path) -> None:
    if name.startswith("cute/"):
        pytest.importorskip("cutlass")
    said = judged(tmp_path, rung_text(name), "eval", "--device", "cpu").content
    assert said["passed"], said["decided_by"]
    found, known = ladder_page.merged({}, iter([said]))[name], ladder_page.read_results()[name]
    assert found["full_range"] == known["full_range"]
    assert found["instructions"] == pytest.approx(known["instructions"], rel=0.1)


@pytest.mark.corpus
def test_the_last_rung_in_cuda_sums_in_f16_where_k_is_2048(tmp_path: Path) -> None:
    source = rung_text("cuda/09_per_shape")
    said = judged(tmp_path, source, "check", "--device", "cpu", "--shape", "128,2048,1").content
    test, *_ = said["tests"]
    assert test["failure"]["code"] == "output.mismatch"
