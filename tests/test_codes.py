"""docs/codes.md and nvfp4/cli/codes.py name every code and know every sentence of the judge."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bot import root

from nvfp4.cli.codes import code_of, finding_codes, setup_codes, table, unknown, warning_codes
from nvfp4.records.failures import record_of
from scripts.codes_page import page

sources = [
    path
    for folder in ("judge", "worker", "executor")
    for path in sorted((root / "nvfp4" / folder).rglob("*.py"))
    if path.name != "diagnosis.py"
]

stands_for = {"activity": "custom_kernel"}
"""What a value of a message may be, where it matters; any other is 1."""


def text_of(node: ast.expr) -> str | None:
    """A message as it may read; None where it is not written there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_part, node.values))
    return None


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    return stands_for.get(ast.unparse(node.value), "1")


def said() -> Iterator[tuple[str, ast.expr]]:
    """The message of every failure that the judge or its worker can raise by itself."""
    names = {"SubmissionFailed", "Refused", "NotEnoughMemory"}
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names and node.args:
                yield f"{path.name}:{node.lineno}", node.args[0]


messages = [(place, text_of(node), ast.unparse(node)) for place, node in said()]
written = [(place, text) for place, text, _ in messages if text is not None]


def test_most_messages_are_found() -> None:
    assert len(written) >= 20
    handed_on = {source for _, text, source in messages if text is None}
    assert len(handed_on) <= 4, handed_on


@pytest.mark.parametrize(("place", "message"), written, ids=[place for place, _ in written])
def test_a_message_of_the_judge_has_a_code(place: str, message: str) -> None:
    if not message.startswith("1\n"):  # what another place has said
        assert code_of(message)[0] != unknown, message


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("12 of 256 elements are wrong\n  (m=0, l=0): got 1", "output.mismatch"),
        ("the output is a list, not a tensor", "output.wrong_kind"),
        ("the submission called sys.exit(None)", "process.sys_exit"),
        ("its import did not finish within 120 s", "timeout.import"),
        ("custom_kernel did not finish within 8.31 s", "timeout.call"),
        ("not judged: the time limit was reached", "timeout.mode"),
        ("not judged: the judge was stopped at the time limit", "timeout.mode"),
        ("not judged: too slow here: custom_kernel did", "not_judged.too_slow"),
        ("not judged: not emulated: mine.py:3:1: error: wmma", "not_judged.not_emulated"),
        ("not judged: the judge ended early: Killed", "not_judged.judge_ended"),
        ("the submission's process was killed by SIGSEGV (segmentation fault)", "process.killed"),
        ("the submission's process ended with exit code 3\nbye", "process.exited"),
        ("a warp loses a word (--strict)", "finding.strict"),
        ("ValueError: 12 of 256 elements are wrong", unknown),
        ("", unknown),
    ],
)
def test_a_message_is_known_by_its_beginning(message: str, code: str) -> None:
    assert code_of(message)[0] == code


def test_no_message_has_two_codes() -> None:
    for _, message in written:
        found = [each.code for each in table if re.match(each.pattern, message, re.DOTALL)]
        assert len(found) <= 1, message


def test_the_page_is_what_the_source_says() -> None:
    assert (root / "docs" / "codes.md").read_text(encoding="utf-8") == page(), (
        "run: python -m scripts.codes_page > docs/codes.md"
    )


def first_arguments(path: Path, name: str) -> set[str]:
    """What is passed first to a function wherever a module calls it."""
    return {
        node.args[0].value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name and node.args
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }


def test_every_warning_has_a_meaning() -> None:
    found = set().union(
        *(first_arguments(p, "Warning") for p in (root / "nvfp4" / "cli").rglob("*.py"))
    )
    assert found == set(warning_codes)


def test_every_finding_has_a_meaning() -> None:
    found = first_arguments(root / "nvfp4" / "judge" / "findings.py", "_finding")
    for path in (root / "nvfp4" / "capture").rglob("*.py"):
        found |= first_arguments(path, "Note")
    assert found <= set(finding_codes)
    assert {"shared_race", "global_race", "warp_sync"} <= set(finding_codes)


def test_every_setup_error_has_a_meaning() -> None:
    found = {"usage"}
    for path in (root / "nvfp4" / "cli").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'"(setup(?:\.\w+)?)"', text)) - {"setup.no_gpu", "setup.memory"}
    assert found == set(setup_codes)


def test_an_error_of_ours_has_a_code_of_the_page() -> None:
    from nvfp4.emulator.errors import Deadlock

    code = record_of(Deadlock("all wait"), Path("submission.py"), True)["code"]
    assert f"| `{code}` |" in page()
