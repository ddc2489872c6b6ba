"""Every submission of the corpus parses, names its contest and says what is expected of it."""

from __future__ import annotations

import ast

import pytest

from field.corpus import Entry, load, parse_expectation

ENTRIES = load()
DIRECTIVES = ["#!POPCORN leaderboard nvfp4_gemv", "#!POPCORN gpu NVIDIA"]
MEMORY_FAULTS = {"out_of_bounds", "misaligned"}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_a_submission_with_an_expectation(entry: Entry) -> None:
    lines = entry.source.splitlines()
    assert lines[:2] == DIRECTIVES
    tree = ast.parse(entry.source)
    assert ast.get_docstring(tree)
    assert "custom_kernel" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    expected = entry.expectation
    assert (expected.verdict == "fail") == bool(expected.causes)
    if expected.causes & MEMORY_FAULTS and "mismatch" not in expected.causes:
        assert expected.lines, "a memory fault has a place"
    if expected.verdict == "pass":
        assert bool(expected.lines) == bool(expected.findings)


def test_the_corpus_holds_right_and_wrong_ones_in_like_numbers() -> None:
    wrong = sum(entry.expectation.verdict == "fail" for entry in ENTRIES)
    assert len(ENTRIES) >= 45
    assert 0.35 <= wrong / len(ENTRIES) <= 0.65


@pytest.mark.parametrize(
    "source",
    [
        "",
        "#!EXPECT pass\n#!EXPECT pass",
        "#!EXPECT perhaps",
        "#!EXPECT fail",
        "#!EXPECT pass cause=mismatch",
        "#!EXPECT fail cause=bad_luck",
        "#!EXPECT pass finding=bad_luck",
        "#!EXPECT fail cause=mismatch on=sundays",
        "#!EXPECT pass colour=blue",
        '"""text"""\n#!EXPECT pass',
    ],
)
def test_a_malformed_expectation_is_refused(source: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any text will do)
        parse_expectation(source)


def test_fault_markers_give_the_lines() -> None:
    source = "#!EXPECT fail cause=out_of_bounds\n\nx = a[i]  # <- fault\ny = x\nz = x  # <- fault\n"
    assert parse_expectation(source).lines == {3, 5}
