"""docs/codes.md and scripts/codes.py name every code that is raised, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from bot import root

from nvfp4.worker.raised import failure_of
from scripts.codes import finding_codes, judge_codes, own_records, setup_codes, warning_codes
from scripts.codes_page import page

known = {*judge_codes, *own_records}
families = {code.partition(".")[0] for code in known}
code = re.compile(rf"(?:{'|'.join(families)})\.[a-z0-9_]+|unknown")

raising = {"CaseFailed", "Failure", "NotEnoughMemory", "Refused", "Sign", "SubmissionFailed"}
"""What is called with a code first."""


def trees() -> Iterator[ast.AST]:
    """The modules in which failures are raised, without those that name causes or codes alone."""
    for folder in ("judge", "worker", "executor", "records", "cli"):
        for path in sorted((root / "nvfp4" / folder).rglob("*.py")):
            if "diagnosis" not in path.parts and path.name != "codes.py":
                yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def test_the_codes_in_the_sources_are_those_with_a_meaning() -> None:
    texts = {node.value for node in trees() if isinstance(node, ast.Constant)}
    found = {text for text in texts if isinstance(text, str) and code.fullmatch(text)}
    assert found - set(setup_codes) == known


def test_a_failure_is_raised_with_its_code() -> None:
    """Not with a message: that would be found by nobody who looks for the code."""
    first = [
        node.args[0]
        for node in trees()
        if isinstance(node, ast.Call) and node.args
        if (getattr(node.func, "id", "") or getattr(node.func, "attr", "")) in raising
    ]
    written = {each.value for each in first if isinstance(each, ast.Constant)}
    assert len(written) > 25
    assert written <= known | {"launch.unsupported_call", "kernel.emulator_failed"}


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

    found = failure_of(Deadlock("all wait"), Path("submission.py"), True)
    assert f"| `{found.code}` |" in page()
