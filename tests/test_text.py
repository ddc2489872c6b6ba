"""What a submission writes reaches a terminal as text, and bounded."""

import io
import os
from pathlib import Path

from bot import case
from rich.console import Console

from nvfp4.cli.display.render import show
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.processes import clear
from nvfp4.cli.problem import load_problem
from nvfp4.cli.text import first_lines, most_lines, visible, visible_json
from nvfp4.cli.verdict import Submission, TestResult, Verdict
from nvfp4.records.failures import read_findings
from nvfp4.records.options import Options

escape = "\x1b[2J\x1b[1;1Hpassed\r\x9b1A\u202e"


def test_control_characters_become_visible() -> None:
    assert visible("a\tb\nc é \u00a0") == "a\tb\nc é \u00a0"
    assert visible(escape) == r"\x1b[2J\x1b[1;1Hpassed\r\x9b1A\u202e"


def test_findings_are_visible_too() -> None:
    text = r'[{"code": "x", "message": "a\u001b[2J", "hint": null}]'
    assert all("\x1b" not in str(each) for each in read_findings(visible_json(text)))


def test_a_long_message_is_shown_in_part() -> None:
    message = "\n".join("passed" for _ in range(1000))
    assert first_lines(message)[-1] == f"... and {1000 - most_lines} more lines"
    failed = TestResult(spec=case(), inputs="contest", status="fail", message=message)
    verdict = Verdict(Submission("s.py", ""))
    verdict.tests = [failed, TestResult(case(), "full", "fail", message)]
    written = io.StringIO()
    show(Console(file=written, width=100), verdict)
    assert written.getvalue().count("passed") < 2 * most_lines


def test_what_a_run_by_itself_writes_is_bounded_and_visible(tmp_path: Path) -> None:
    source = (
        "import os, sys\n"
        "for fd in (1, 2):\n"
        "    for _ in range(2000):\n"
        "        os.write(fd, bytes(1 << 16))\n"
        f"sys.exit({escape!r})\n"
    )
    ended = Bot(load_problem(), source.encode(), Options(device="cpu")).run_submission()
    assert ended.exit_code == 1
    assert ended.stderr.endswith(visible(escape))
    assert len(ended.stderr) < 5 * (8 << 10)
    assert "\0" not in ended.stderr


def test_a_message_of_a_test_is_visible(tmp_path: Path) -> None:
    source = f"def custom_kernel(data):\n    raise ValueError({escape!r})\n"
    ended = Bot(load_problem(), source.encode(), Options(device="cpu")).run_eval("test", [case()])
    assert visible(escape) in ended.values["test.0.error"]
    assert not any("\x1b" in value for value in ended.values.values())


def test_a_folder_of_any_depth_is_cleared(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.getcwd()
    os.chdir(top)
    try:
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        os.chmod(".", 0)
    finally:
        os.chdir(here)
    clear(top)
    assert not top.exists()
