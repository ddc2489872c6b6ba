"""The README and the pages of docs/ name everything that a participant can type or read."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bot import root
from kept import invoke

from nvfp4.cli.errors import json_schema
from nvfp4.judge.protocol import Exit
from nvfp4.worker.raised import failure_of
from scripts.codes import finding_codes, judge_codes, own_records, setup_codes, warning_codes
from scripts.codes_page import page
from scripts.commands_page import page as commands_page

readme = (root / "README.md").read_text(encoding="utf-8")
commands = (root / "docs" / "commands.md").read_text(encoding="utf-8")
json_page = (root / "docs" / "json.md").read_text(encoding="utf-8")
pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
measured = {"kernel.md"}
"""Pages whose commands name files that they make, such as plot.png."""

examples = {"mine.py", "right.py"}
"""Files that the pages tell a reader to make."""


def links_of(page: Path) -> list[str]:
    """Files and folders that a page links to, relative to its own folder."""
    return re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))


def relative(page: Path) -> str:
    """A page's path as a name for its test."""
    return str(page.relative_to(root))


def test_the_page_of_commands_is_what_the_source_says() -> None:
    assert commands == commands_page(), "run: python -m scripts.commands_page > docs/commands.md"


def test_the_readme_is_short() -> None:
    assert len(readme.splitlines()) <= 150


def test_every_exit_code_is_named() -> None:
    assert all(re.search(rf"^\| {code} \|", readme, re.MULTILINE) for code in (0, 1, 2, 3))
    assert all(re.search(rf"\b{code.value} [a-zA-Z]", readme) for code in Exit)


def test_the_pages_for_programs_have_the_number_of_the_schema() -> None:
    assert set(re.findall(r"^\| `schema` \| (\d+)", json_page, re.MULTILINE)) == {str(json_schema)}
    agents = (root / "docs" / "agents.md").read_text(encoding="utf-8")
    assert f"`schema` is {json_schema}." in agents


@pytest.mark.parametrize("page", pages, ids=relative)
def test_every_file_that_is_linked_is_there(page: Path) -> None:
    assert [link for link in links_of(page) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", [page for page in pages if page.name not in measured], ids=relative
)
def test_every_path_that_is_named_is_there(page: Path) -> None:
    """Paths in code spans that begin with a folder or a file of the repository's top."""
    spans = re.findall(
        r"`([^`\s]+)`", re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
    )
    paths = [span for span in spans if (root / span.partition("/")[0]).is_dir() and "/" in span]
    paths += [span for span in spans if re.fullmatch(r"[\w-]+\.(py|yml|md)", span)]
    paths = [path for path in paths if "NAME" not in path and path not in examples]
    places = (root, root / "nvfp4" / "problems" / "nvfp4_gemv")
    assert [path for path in paths if not any((each / path).exists() for each in places)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [root / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page.is_dir():
            waiting += page.glob("*.md")
        elif page.suffix == ".md" and page not in reached:
            reached.add(page)
            waiting += [page.parent / link for link in links_of(page)]
    assert set(pages) <= reached


@pytest.mark.skipif(sys.version_info < (3, 11), reason="lines of CuTe DSL have no columns")
def test_the_readme_shows_what_a_wrong_submission_is_told(cwd: Path) -> None:
    template = (root / "nvfp4" / "cli" / "templates" / "cute.py.txt").read_text(encoding="utf-8")
    right, wrong = "mSFA[row, None, batch]", "mSFA[row + 1, None, batch]"
    assert template.count(right) == 1
    Path("wrong.py").write_text(template.replace(right, wrong), encoding="utf-8")
    done = invoke("check", "wrong.py", "--device", "cpu")
    assert readme.split("`nvfp4 check wrong.py`:\n\n```\n")[1].split("```")[0] in done.output


# docs/codes.md and scripts/codes.py name every code that is raised, and no other.

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
    found = first_arguments(root / "nvfp4" / "judge" / "observing.py", "_finding")
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
