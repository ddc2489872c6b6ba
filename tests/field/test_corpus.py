"""Every submission of the corpus parses and says what is expected of it."""

import ast
from pathlib import Path

import pytest
from corpus import Submission, changed, directives, load, marked_lines

from field.expectation import CASES, CAUSES, FINDINGS, expectation

MEMORY_FAULTS = {"out_of_bounds", "misaligned"}

BASE = '# expect: pass\n"""Right.\n\nMore.\n"""\none\ntwo\n\ntwo\nthree\n'
HEAD = '# base: right\n# expect: fail\n"""Wrong."""\n'


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_is_a_submission_with_an_expectation(case: Submission) -> None:
    tree = ast.parse(case.source)
    assert ast.get_docstring(tree)
    assert "custom_kernel" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    expected = expectation(case)
    if expected.causes & MEMORY_FAULTS and "mismatch" not in expected.causes:
        assert expected.lines, "a memory fault has a place"
    if expected.verdict == "pass":
        assert bool(expected.lines) == bool(expected.findings)


def test_every_cause_and_every_finding_is_expected_of_a_case() -> None:
    expected = [expectation(case) for case in CASES]
    assert {cause for each in expected for cause in each.causes} == CAUSES
    assert {code for each in expected for code in each.findings | each.allowed} == FINDINGS


@pytest.mark.parametrize(
    "source",
    [
        *("", "# expect: perhaps\n", "# expect: fail\n", '"""text"""\n# expect: pass\n'),
        *("# expect: pass\n# expect: pass\n", "# expect: pass\n# quik: yes\n"),
        *("# expect: pass cause=mismatch\n", "# expect: fail cause=bad_luck\n"),
        *("# expect: pass finding=bad_luck\n", "# expect: pass colour=blue\n"),
        "# expect: fail cause=mismatch on=sundays\n",
    ],
)
def test_a_malformed_expectation_is_refused(source: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        expectation(Submission("name", Path("folder"), source))


def test_marks_give_their_lines() -> None:
    source = "# <- fault\n\nx = a[i]  # <- fault\nz = '# <- no'\ny = x;  // <- uncoalesced\n"
    assert marked_lines(source) == {1: "fault", 3: "fault", 5: "uncoalesced"}


def test_a_change_takes_the_place_of_what_it_names() -> None:
    change = "@@\n-three\n+four\n@@\n-one\n two\n+new\n\n"
    source = changed(BASE, HEAD + change)
    assert source == '# expect: fail\n"""Wrong."""\ntwo\nnew\n\ntwo\nfour\n'
    assert directives(source) == {"expect": "fail"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("@@\n-two\n+new\n", "2 places"),
        ("@@\n-four\n+new\n", "0 places"),
        ("@@\n-one\n-three\n", "0 places"),
        ("@@\n+new\n", "places"),
        ("@@\none\n", "a line begins with none"),
        ("@@\n-one\n two\n@@\n two\n+new\n\n", "two changes meet"),
    ],
)
def test_a_change_that_does_not_fit_its_base_is_refused(change: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        changed(BASE, HEAD + change)


def test_a_folder_with_a_lost_base_or_a_case_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(BASE)
    (tmp_path / "wrong.diff").write_text(HEAD)
    assert [case.name for case in load(tmp_path)] == ["right", "wrong"]
    (tmp_path / "lost.diff").write_text(HEAD.replace("right", "gone"))
    with pytest.raises(ValueError, match=r"lost\.diff"):
        load(tmp_path)
    (tmp_path / "lost.diff").rename(tmp_path / "right.diff")
    with pytest.raises(ValueError, match="twice"):
        load(tmp_path)
