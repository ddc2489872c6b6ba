"""Submissions of the corpus get the verdict that is expected of them."""

from pathlib import Path

import pytest

pytest.importorskip("cutlass")

from corpus import Submission

from field.expectation import cases_of, complaint

OF_ONE_THREAD = "bounds", "host", "launch", "template", "torch_only", "unset"
ON_ORDER = "pipelines", "races", "shared", "warps"


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("case", cases_of(*OF_ONE_THREAD, *ON_ORDER))
def test_a_submission_gets_its_verdict(case: Submission, tmp_path: Path) -> None:
    said = complaint(case, tmp_path)
    assert said is None, said
