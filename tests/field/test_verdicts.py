"""Every submission of the corpus in CuTe DSL or plain torch gets the verdict that is expected of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cutlass")

from corpus import Submission
from judged import prepare

from field.expectation import all_cases, complaint, name_of

COMPILED = "cuda", "triton"
"""Folders whose submissions `test_compiled_verdicts` judges."""


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare()


@pytest.mark.parametrize(
    "case", [each for each in all_cases() if each.folder.name not in COMPILED], ids=name_of
)
def test_a_submission_gets_its_verdict(case: Submission, tmp_path: Path) -> None:
    said = complaint(case, tmp_path)
    assert said is None, said
