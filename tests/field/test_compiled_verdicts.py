"""Submissions in CUDA C++ or Triton get the verdict that is expected of them."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("cutlass")

from corpus import Submission

from field.expectation import cases_of, complaint
from nvfp4.capture.cuda.image_headers import cutlass_folders

HAS_TRITON = importlib.util.find_spec("triton") is not None
HAS_CUTLASS = bool(cutlass_folders())
CASES = [
    each
    for each in cases_of("cuda", *(["triton"] if HAS_TRITON else []))
    if HAS_CUTLASS or "#include <cutlass/" not in each.values[0].source
]


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("case", CASES)
def test_a_compiled_submission_gets_its_verdict(case: Submission, tmp_path: Path) -> None:
    said = complaint(case, tmp_path)
    assert said is None, said
