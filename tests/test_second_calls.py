"""What is kept from call to call is found out without a GPU, too."""

from pathlib import Path

import pytest
from bot import root
from click.testing import CliRunner

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


def judged(path: Path) -> str:
    """What nvfp4 bench says."""
    return CliRunner().invoke(main, ["bench", str(path), "--shape", "128,256,1"]).output


def test_an_answer_that_is_kept_is_wrong_the_second_time(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(kernel.read_text() + keeps)
    said = judged(path)
    assert "failed: 1 of 1 benchmark in" in said, said
    assert "in another call with other inputs of the same shape" in said, said


def test_what_a_second_call_prints_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(kernel.read_text().replace("    a, b, sfa", "    print('here')\n    a, b, sfa"))
    said = judged(path)
    assert "passed: 1 benchmark" in said, said
    assert "here\n  here" not in said, said


def test_a_full_range_output_that_earlier_calls_decide_fails(tmp_path: Path) -> None:
    """It is right on the contest's inputs, and only once on others."""
    path = tmp_path / "submission.py"
    honest = root / "nvfp4" / "selftest" / "honest" / "chunked_torch.py"
    path.write_text(honest.read_text() + keeps)
    done = CliRunner().invoke(main, ["test", str(path), "-k", "256x7168"])
    assert "in a process of its own this call is right" in done.output, done.output
    assert done.exit_code == 1
