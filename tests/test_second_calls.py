"""What is kept from call to call is found out without a GPU, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from corpus import read

from nvfp4.cli.main import main

triton = pytest.importorskip("triton")

kernel = Path(__file__).parent / "field" / "triton" / "warp_per_row.py"
keeps = """

_right, _kept = custom_kernel, {}


def custom_kernel(data):
    shape = tuple(data[0].shape)
    if shape not in _kept:
        _kept[shape] = _right(data).clone()
    return data[6].copy_(_kept[shape])
"""
shapes = "128,256,1", "128,512,1", "128,768,1"


def judged(path: Path) -> str:
    """What nvfp4 bench says."""
    words = [word for shape in shapes for word in ("--shape", shape)]
    return CliRunner().invoke(main, ["bench", str(path), *words]).output


def test_an_answer_that_is_kept_is_wrong_the_second_time(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(kernel.read_text() + keeps)
    said = judged(path)
    assert "failed: 3 of 3 benchmarks" in said, said
    assert "in another call with other inputs of the same shape" in said, said


def test_what_a_second_call_prints_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(kernel.read_text().replace("    a, b, sfa", "    print('here')\n    a, b, sfa"))
    said = judged(path)
    assert "passed: 3 benchmarks" in said, said
    assert "here\n  here" not in said, said


def test_a_full_range_output_that_earlier_calls_decide_fails(tmp_path: Path) -> None:
    """It is right on the contest's inputs, and only once on others."""
    path = tmp_path / "submission.py"
    path.write_text(kernel.read_text() + keeps)
    words = ["-k", "256x7168", "-k", "128x256"]
    done = CliRunner().invoke(main, ["test", str(path), *words])
    assert "in a process of its own this call is right" in done.output, done.output
    assert done.exit_code == 1


def test_inputs_that_are_wrong_in_any_process_only_warn(tmp_path: Path) -> None:
    path = read(kernel.parents[1] / "misreadings", "high_nibbles_skipped").write(tmp_path)
    done = CliRunner().invoke(main, ["test", str(path), "-k", "128x256", "-k", "512x512"])
    assert "process of its own" not in done.output, done.output
    assert "full-range inputs" in done.output
    assert done.exit_code == 0
