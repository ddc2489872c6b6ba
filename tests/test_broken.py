"""What a user sees of a broken submission, word for word; see broken/README.md."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from bot import root
from click.testing import CliRunner

from nvfp4.cli.main import main

folder = root / "tests" / "broken"
broken = sorted(path.stem for path in folder.glob("*.py"))


def seen(path: Path) -> str:
    """What ``nvfp4 check`` prints, and its exit code."""
    source = path.read_text(encoding="utf-8", errors="replace")
    arguments = re.search(r"^# check: (.+)$", source, re.MULTILINE)
    done = CliRunner().invoke(
        main, ["check", str(path), *(arguments[1].split() if arguments else [])]
    )
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", done.output)
    text = re.sub(r"\n *[\^~]+(?=\n)", "", text)  # from Python 3.11 on in tracebacks
    text = re.sub(r"warning: the submission ran with less confinement.*\n  .*\n", "", text)
    return f"{text}exit code {done.exit_code}\n"


@pytest.mark.parametrize("name", broken)
def test_the_message_shows_the_mistake(name: str) -> None:
    path = folder / f"{name}.txt"
    text = seen(folder / f"{name}.py")
    if os.environ.get("WRITE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_every_text_has_its_submission() -> None:
    assert broken == sorted(path.stem for path in folder.glob("*.txt"))
    assert len(broken) >= 25
