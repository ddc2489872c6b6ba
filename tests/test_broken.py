"""What a user is told of a broken submission, word for word; see broken/README.md."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from corpus import Submission, load
from judged import TIME_LIMIT_S, judge_apart, make_case, prepare
from texts import expect

from nvfp4.cli.main import main

FOLDER = Path(__file__).parent / "broken"
SHAPE = (256, 512, 2)
SEED = 1111
WITHOUT_ZEROS = 1113
"""A seed with which no part of the sum is zero throughout, so that each mistake has one cause."""
prepared = pytest.fixture(scope="module")(prepare)


def checked(case: Submission, path: Path) -> str:
    """What ``nvfp4 check`` prints, and its exit code."""
    arguments = case.directives.get("check", "").split()
    done = CliRunner().invoke(main, ["check", str(path), *arguments])
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", done.output)
    text = re.sub(r"\n *[\^~]+(?=\n)", "", text)  # from Python 3.11 on in tracebacks
    text = re.sub(r"warning: the submission ran with less confinement.*\n  .*\n", "", text)
    return f"{text}exit code {done.exit_code}\n"


def judged(case: Submission, path: Path, full_range: bool = False, seed: int = SEED) -> str:
    """The judge's message, and what the submission has printed."""
    limit_s = float(case.directives.get("limit", TIME_LIMIT_S))
    found = judge_apart(path, [make_case(*SHAPE, full_range, seed)], limit_s)
    text = f"{found.message}\n\noutput:\n{found.printed}\n" if found.printed else found.message
    text = re.sub(r"after \d+ s: [\d,]+ rounds", "after N s: N rounds", text)
    return re.sub(r"\b0x[0-9a-f]{9,}\b", "0x...", text).rstrip() + "\n"


def judged_on_full_range(case: Submission, path: Path) -> str:
    return judged(case, path, True, WITHOUT_ZEROS)


HOW: dict[str, Callable[[Submission, Path], str]] = {
    ".": checked,
    "faults": judged,
    "patterns": judged_on_full_range,
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
