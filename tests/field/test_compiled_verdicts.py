"""Every submission of the corpus in CUDA C++ or Triton gets the verdict that is expected of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("cutlass")

from corpus import Submission
from judged import prepare

from field.expectation import all_cases, complaint, name_of
from nvfp4.capture.cuda.image_headers import cutlass_folders

HAS_TRITON = importlib.util.find_spec("triton") is not None
HAS_CUTLASS = bool(cutlass_folders())
FOLDERS = ("cuda", "triton") if HAS_TRITON else ("cuda",)

# Compilers take seconds for each: `make corpus` judges those that do not call themselves quick.
CASES = [
    pytest.param(
        case, id=name_of(case), marks=[] if "quick" in case.directives else [pytest.mark.corpus]
    )
    for case in all_cases()
    if case.folder.name in FOLDERS and (HAS_CUTLASS or "#include <cutlass/" not in case.source)
]


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare()


@pytest.mark.parametrize("case", CASES)
def test_a_compiled_submission_gets_its_verdict(case: Submission, tmp_path: Path) -> None:
    said = complaint(case, tmp_path)
    assert said is None, said
