"""Every submission of the corpus gets the verdict that is expected of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("cutlass")

from corpus import Submission
from judged import TIME_LIMIT_S, judge_apart, make_case, prepare

from field.expectation import SHAPES, all_cases, expectation, name_of
from nvfp4.capture.cuda.image_headers import cutlass_folders

HAS_TRITON = importlib.util.find_spec("triton") is not None
HAS_CUTLASS = bool(cutlass_folders())
ENDLESS_LIMIT_S = 12.0


def marks(case: Submission) -> list[pytest.MarkDecorator]:
    """Compilers take seconds for each: `make corpus` judges those that do not call themselves quick."""
    slow = case.folder.name in ("cuda", "triton") and "quick" not in case.directives
    return [pytest.mark.corpus] if slow else []


CASES = [
    pytest.param(case, id=name_of(case), marks=marks(case))
    for case in all_cases()
    if (HAS_TRITON or case.folder.name != "triton")
    and (HAS_CUTLASS or "#include <cutlass/" not in case.source)
]


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare()


@pytest.mark.parametrize("case", CASES)
def test_a_submission_gets_its_verdict(case: Submission, tmp_path: Path) -> None:
    expected = expectation(case)
    inputs = (True,) if expected.on == "full_range" else (False, True)
    cases = [make_case(*shape, full) for shape in SHAPES[expected.on] for full in inputs]
    limit_s = ENDLESS_LIMIT_S if "endless" in expected.causes else TIME_LIMIT_S
    said = expected.complaint(judge_apart(case.write(tmp_path), cases, limit_s))
    assert said is None, said
