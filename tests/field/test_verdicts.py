"""Every submission of the corpus gets the verdict that is expected of it."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("cutlass")

from field.corpus import Entry, load
from field.judged import Judgement, complaint, judged

HAS_TRITON = importlib.util.find_spec("triton") is not None
ENTRIES = [entry for entry in load() if HAS_TRITON or not entry.name.startswith("triton/")]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Judgement]:
    """The verdict on each, by name; they are judged side by side."""
    return {entry.name: judgement for entry, judgement in judged(ENTRIES)}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_submission_gets_its_verdict(entry: Entry, verdicts: dict[str, Judgement]) -> None:
    said = complaint(entry, verdicts[entry.name])
    assert said is None, said
