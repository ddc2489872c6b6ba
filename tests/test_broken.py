"""What a user is told of a broken submission, word for word; see broken/README.md."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus import Submission, load
from judged import TIME_LIMIT_S, judge_apart, make_case
from kept import invoke
from texts import expect

from nvfp4.cli.judging.warnings import warnings_before
from nvfp4.cli.mistakes import first_mistake, longest_parsed_bytes
from nvfp4.cli.problem import load_problem
from nvfp4.records.messages import Failed, Load
from nvfp4.records.options import Options
from nvfp4.worker.runner import Runner

FOLDER = Path(__file__).parent / "broken"
WITHOUT_ZEROS = 1113
"""A seed with which no part of the sum is zero throughout, so that each mistake has one cause."""


def checked(case: Submission, path: Path) -> str:
    """What ``nvfp4 check`` prints, and its exit code."""
    done = invoke("check", str(path), *case.directives.get("check", "").split())
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", done.output)
    text = re.sub(r"\n *[\^~]+(?=\n)", "", text)  # from Python 3.11 on in tracebacks
    text = re.sub(r"warning: the submission ran with less confinement.*\n  .*\n", "", text)
    return f"{text}exit code {done.exit_code}\n"


def loaded(case: Submission, path: Path) -> str:
    """The message of the submission's process."""
    failed = Runner(path, Options()).answer(Load(), None)
    assert isinstance(failed, Failed)
    return f"{failed.message}\n"


def judged(case: Submission, path: Path, full_range: bool = False, seed: int = 1111) -> str:
    """The judge's message, and what the submission has printed."""
    limit_s = float(case.directives.get("limit", TIME_LIMIT_S))
    found = judge_apart(path, [make_case(256, 512, 2, full_range, seed)], limit_s)
    text = f"{found.message}\n\noutput:\n{found.printed}\n" if found.printed else found.message
    text = re.sub(r"after \d+ s: [\d,]+ rounds", "after N s: N rounds", text)
    return re.sub(r"\b0x[0-9a-f]{9,}\b", "0x...", text).rstrip() + "\n"


HOW: dict[str, Callable[[Submission, Path], str]] = {
    ".": checked,
    "imports": loaded,
    "faults": judged,
    "patterns": lambda case, path: judged(case, path, True, WITHOUT_ZEROS),
}
CASES = [
    pytest.param(how, case, id=f"{folder}/{case.name}")
    for folder, how in HOW.items()
    for case in load(FOLDER / folder)
]


@pytest.mark.parametrize(("how", "case"), CASES)
def test_the_message_shows_the_mistake(
    how: Callable[[Submission, Path], str], case: Submission, tmp_path: Path, prepared: None
) -> None:
    expect(case.folder / f"{case.name}.txt", how(case, case.write(tmp_path)))


def test_every_text_has_its_submission() -> None:
    names = {folder: [case.name for case in load(FOLDER / folder)] for folder in HOW}
    for folder, cases in names.items():
        assert cases == sorted(path.stem for path in (FOLDER / folder).glob("*.txt"))
    assert {name.partition("_")[0] for name in names["faults"]} >= {"cute", "cuda", "triton"}


# Mistakes are found by parsing, and nothing that would work is taken for one.


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
    found = warnings_before(content, load_problem())
    assert [each.code for each in found] == (["other_leaderboard"] if warns else [])


@pytest.mark.parametrize("encoding", ["rot13", "zlib", "punycode", "undefined"])
def test_an_encoding_that_is_none_of_text_is_a_mistake(encoding: str) -> None:
    found = first_mistake("mine.py", f"# coding: {encoding}\nx = 1\n".encode())
    assert found is not None and "it is not text" in found.message
