"""Submissions whose threads exchange data get the verdict that is expected of them."""

from pathlib import Path

import pytest

pytest.importorskip("cutlass")

from corpus import Submission

from field.expectation import cases_of, complaint


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("case", cases_of("pipelines", "races", "shared", "warps"))
def test_threads_that_exchange_data_get_their_verdict(case: Submission, tmp_path: Path) -> None:
    said = complaint(case, tmp_path)
    assert said is None, said
