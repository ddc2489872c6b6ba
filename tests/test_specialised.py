"""Submissions that are right for the contest's shapes alone pass; see specialised/README.md."""

import importlib.util
import json
from pathlib import Path

import pytest
from bot import root
from click.testing import CliRunner
from field.expectation import all_cases, expectation

from nvfp4.cli.main import main

pytest.importorskip("cutlass")

paths = sorted((root / "tests" / "specialised").glob("*.py"))
has_triton = importlib.util.find_spec("triton") is not None


def each_one(*slow: str) -> pytest.MarkDecorator:
    """Every file; those whose compilers are slow only in `make corpus`."""
    cases = [
        pytest.param(path, id=path.stem, marks=[pytest.mark.corpus] if path.stem in slow else [])
        for path in paths
        if has_triton or not path.stem.startswith("triton")
    ]
    return pytest.mark.parametrize("path", cases)


@each_one("triton_whole_blocks", "cuda_templates")
def test_check_passes_what_is_right_for_the_contest_s_shapes(path: Path, tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    done = CliRunner().invoke(main, ["check", str(path), "--output", str(verdict)])
    assert done.exit_code == 0, done.output
    content = json.loads(verdict.read_text())
    assert [test["status"] for test in content["tests"]] == ["pass", "pass", "fail"]
    assert "other_shape" in [each["code"] for each in content["warnings"]]


def right_files() -> dict[str, str]:
    """Every rung of the ladder, and what is right in tests/field: name to source."""
    rungs = {path.stem: path.read_text() for path in sorted((root / "ladder").glob("*/*.py"))}
    right = [each for each in all_cases() if expectation(each).verdict == "pass"]
    return rungs | {f"{each.folder.name}/{each.name}": each.source for each in right}


@pytest.mark.corpus
@pytest.mark.parametrize("name", right_files())
def test_check_passes_what_is_right(name: str, tmp_path: Path) -> None:
    source = right_files()[name]
    if "import triton" in source and not has_triton:
        pytest.skip("Triton is not installed")
    path = tmp_path / "mine.py"
    path.write_text(source)
    done = CliRunner().invoke(main, ["check", str(path)])
    assert done.exit_code == 0, done.output


@pytest.mark.corpus
@each_one()
def test_they_are_right_at_every_shape_of_the_contest(path: Path) -> None:
    done = CliRunner().invoke(main, ["eval", str(path)])
    assert done.exit_code == 0, done.output
