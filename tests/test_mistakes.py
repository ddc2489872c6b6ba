"""Mistakes are found by parsing, and nothing that would work is taken for one."""

import pytest

from nvfp4.cli.judging.warnings import warnings_before
from nvfp4.cli.mistakes import first_mistake, longest_parsed_bytes


@pytest.mark.parametrize(
    "text", ["x = 1", "from x import *", "def f(custom_kernel): pass", "-" * 100_000 + "1"]
)
def test_what_may_work_is_no_mistake(text: str) -> None:
    assert first_mistake("submission.py", text.encode()) is None


def test_a_mistake_has_place_line_and_caret() -> None:
    found = first_mistake("mine.py", 'x = ("日本" y)'.encode())
    assert found is not None
    assert (found.code, found.line, found.column) == ("syntax", 1, 6)
    assert found.text.splitlines()[1:] == ['     1 | x = ("日本" y)', "       |      ^"]


def test_escape_sequences_of_a_line_are_shown_as_escapes() -> None:
    found = first_mistake("mine.py", b"x = '\x1b[2J' y")
    assert found is not None
    assert "\x1b" not in found.text
    assert r"\x1b[2J" in found.text


def test_a_huge_file_is_left_to_the_import() -> None:
    assert first_mistake("mine.py", b"(" + b" " * longest_parsed_bytes) is None


directive = b"#!POPCORN leaderboard %s\n#!POPCORN gpu NVIDIA\nx = 1\n#!POPCORN leaderboard late\n"


@pytest.mark.parametrize(
    ("content", "warns"),
    [
        (directive % b"nvfp4_gemv", False),
        (directive % b"nvfp4_gemm", True),
        (directive % b"nvfp4_gemm nvfp4_gemv", False),
        (b"#!popcorn leaderboard other", True),
        (b"x = 1\n#!POPCORN leaderboard other", False),
        (b"", False),
    ],
)
def test_a_directive_for_another_leaderboard_warns(content: bytes, warns: bool) -> None:
    found = warnings_before(content)
    assert [each.code for each in found] == (["other_leaderboard"] if warns else [])
