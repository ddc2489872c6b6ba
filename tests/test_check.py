"""check, test -x and -k, --watch and new, as commands."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from bot import root
from click.testing import CliRunner, Result

from nvfp4.cli.errors import SetupError
from nvfp4.cli.main import main
from nvfp4.cli.problem import load_problem, matching, shape_of

wrong_for_two_batches = """
import torch

def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    if c.shape[2] == 2:
        raise ValueError("no batches")
    return c
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "mine.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def checked(path: Path, *options: str) -> tuple[Result, dict[str, Any]]:
    """What `nvfp4 check` prints, and the object that it writes."""
    verdict = path.with_name("verdict.json")
    done = run("check", path, *options, "--output", verdict)
    return done, json.loads(verdict.read_text())


def of_torch(old: str = "", new: str = "") -> str:
    """A right submission in plain torch, with one text in place of another."""
    return (
        (root / "nvfp4" / "selftest" / "honest" / "chunked_torch.py").read_text().replace(old, new)
    )


def test_a_shape_of_the_contest_decides_and_a_second_look_follows(tmp_path: Path) -> None:
    done, content = checked(write(tmp_path, of_torch()))
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].startswith(
        "passed at 512 x 512 x 2 with the contest's inputs"
    )
    assert content["passed"] is True
    assert content["mistake"] is None
    assert [(test["spec"][:15], test["inputs"], test["status"]) for test in content["tests"]] == [
        ("m: 512; k: 512;", "contest", "pass"),
        ("m: 512; k: 512;", "full", "pass"),
        ("m: 384; k: 640;", "full", "pass"),
    ]


def test_a_shape_that_is_asked_for_decides(tmp_path: Path) -> None:
    refuses = of_torch("    m, _, l = c.shape", "    m, _, l = c.shape\n    assert m != 128")
    done, content = checked(write(tmp_path, refuses), "--shape", "128,192,2")
    assert done.exit_code == 1, done.output
    assert "failed at 128 x 192 x 2 with the contest's inputs" in done.output
    assert "none of the contest's shapes" in done.output
    assert [test["status"] for test in content["tests"]] == ["fail", "skipped"]


def test_what_only_the_contest_would_take_passes_check_with_a_warning(tmp_path: Path) -> None:
    source = of_torch("codes = packed.to(torch.int16)", "codes = (packed & 15).to(torch.int16)")
    done, content = checked(write(tmp_path, source), "--shape", "128,256,2")
    assert done.exit_code == 0, done.output
    assert "only a warning: 128 x 256 x 2 with full-range inputs" in done.output
    assert "likely cause" in done.output
    assert "full_range" in [each["code"] for each in content["warnings"]]
    assert content["decided_by"] is None


def test_a_shape_of_the_contest_that_is_refused_fails(tmp_path: Path) -> None:
    source = of_torch(
        "    m, _, l = c.shape",
        "    m, _, l = c.shape\n"
        "    if m not in (256, 384):\n"
        '        raise ValueError(f"Unsupported (M, K) combination {m}")',
    )
    done, content = checked(write(tmp_path, source))
    assert done.exit_code == 1, done.output
    assert "failed at 512 x 512 x 2 with the contest's inputs" in done.output
    assert "ValueError: Unsupported (M, K) combination 512" in done.output
    assert content["decided_by"]["failure"]["code"] == "call.exception"


def test_what_raises_at_every_shape_fails_at_the_first(tmp_path: Path) -> None:
    done = run("check", write(tmp_path, of_torch("    m, _, l = c.shape", "    assert not c")))
    assert done.exit_code == 1, done.output
    assert "failed at 512 x 512 x 2 with the contest's inputs" in done.output


@pytest.mark.parametrize("command", ["check", "test", "bench", "eval"])
def test_every_command_tells_a_mistake_once_and_runs_nothing(command: str, tmp_path: Path) -> None:
    path = write(tmp_path, "def custom_kernel(data:\n    pass\n")
    verdict = tmp_path / "verdict.json"
    done = run(command, path, "--output", verdict)
    assert done.exit_code == 1
    text = "mine.py:1:18: SyntaxError: '(' was never closed"
    assert done.output.splitlines() == [
        text,
        "     1 | def custom_kernel(data:",
        "       |                  ^",
        "failed: nothing was run",
    ]
    content = json.loads(verdict.read_text())
    assert content["passed"] is False
    assert content["mistake"]["code"] == "syntax"
    assert (content["mistake"]["line"], content["mistake"]["column"]) == (1, 18)
    assert content["tests"] == content["benchmarks"] == []


def test_a_failed_import_is_told_once(tmp_path: Path) -> None:
    path = write(
        tmp_path, "import torch\n\n\ndef f():\n    raise KeyError('no')\n\n\nf()\nexec('')"
    )
    done = run("eval", path)
    assert done.exit_code == 1
    lines = [line for line in done.output.splitlines() if not line.startswith("judging on")]
    assert lines[:6] == [
        "mine.py: the import failed",
        "Traceback, the submission's frames:",
        '  File "mine.py", line 8, in <module>',
        "    f()",
        '  File "mine.py", line 5, in f',
        "    raise KeyError('no')",
    ]
    assert done.output.count("KeyError: 'no'") == 1
    assert "Tests" not in done.output


def test_what_every_test_fails_with_is_told_once(tmp_path: Path) -> None:
    done = run("test", write(tmp_path, "custom_kernel = lambda data: None"), "-k", "128x256")
    assert done.exit_code == 1
    assert "all 2 tests failed alike, the first at 128 x 256 x 1 with contest inputs" in done.output
    assert done.output.count("returned None") == 1
    assert "full-range inputs\n─" not in done.output


def test_x_stops_at_the_first_failure(tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    path = write(tmp_path, wrong_for_two_batches)
    done = run("test", path, "-x", "-k", "512x1536", "--output", verdict)
    assert done.exit_code == 1
    tests = json.loads(verdict.read_text())["tests"]
    assert [each["status"] for each in tests] == ["fail", "skipped"]
    assert tests[1]["message"] == "not run: another test failed before"


def test_k_takes_shapes() -> None:
    def shapes(pattern: str) -> list[str]:
        return [str(shape_of(line)) for line in matching(load_problem().tests, pattern)]

    assert shapes("512x4096") == ["512 x 4096 x 2"]
    assert shapes("512 X 4096 x 2") == ["512 x 4096 x 2"]
    assert shapes("512,512,2") == ["512 x 512 x 2"]
    assert shapes("256x7168") == ["256 x 7168 x 1"] * 2
    assert shapes("512") == ["512 x 512 x 2", "512 x 4096 x 2", "512 x 1536 x 2"]
    assert shapes("8x307") == ["128 x 3072 x 1"]
    for unknown in ("513", "", ".*", "2x513"):
        with pytest.raises(SetupError, match="no test has a shape like") as caught:
            shapes(unknown)
        assert "128x256x1, 128x1536x1" in caught.value.hint


def test_an_unknown_shape_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    done = run("test", write(tmp_path, wrong_for_two_batches), "-k", "7x7")
    assert done.exit_code == 2
    assert done.output.startswith(
        "error: no test has a shape like '7x7'\nhint: There are 128x256x1"
    )


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "0", "1e9", "soon"])
def test_a_time_limit_is_a_number_of_seconds(seconds: str, tmp_path: Path) -> None:
    path = write(tmp_path, wrong_for_two_batches)
    done = run("check", path, "--timeout", seconds)
    assert done.exit_code == 2
    assert "Invalid value for '--timeout'" in done.output


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path, said in (
        (tmp_path, "is a folder, not a file"),
        (tmp_path / "pipe.py", "is a pipe, not a file"),
        (Path("/dev/zero"), "is a device, not a file"),
        (tmp_path / "absent.py", "No such file or directory"),
    ):
        done = run("check", path)
        assert done.exit_code == 2
        assert said in done.output.splitlines()[0]


def test_an_output_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run("check", write(tmp_path, "x = ("), "--output", tmp_path / "pipe")
    assert done.exit_code == 2
    assert "is a pipe, not a file" in done.output


def test_watch_judges_again_when_an_editor_replaces_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "x = (")
    command = [sys.executable, "-m", "nvfp4", "check", "mine.py", "--watch"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), *sys.path[1:]))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: Queue[str] = Queue()
    assert process.stdout

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()

    def until(wanted: str) -> None:
        seen: list[str] = []
        while wanted not in (seen or [""])[-1]:
            seen.append(lines.get(timeout=60))

    try:
        until("SyntaxError: '(' was never closed")
        until("waiting for mine.py to change")
        new = tmp_path / "new.tmp"  # as editors write
        new.write_text("# later\n")
        new.replace(path)
        until("mine.py has changed")
        until("it holds only comments")
        until("waiting for mine.py to change")
        path.unlink()
        path.write_text("")
        until("it is empty")
        until("waiting for mine.py to change")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1, "the last verdict's exit code"
    finally:
        process.kill()


@pytest.mark.parametrize("kind", ["torch", "cute", "cuda", "triton"])
def test_new_writes_a_submission_that_passes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    done = run("new", kind, "-o", path)
    assert done.exit_code == 0, done.output
    assert f"next: nvfp4 check {path}" in done.output
    source = path.read_text(encoding="utf-8")
    assert source.startswith("#!POPCORN leaderboard nvfp4_gemv\n#!POPCORN gpu NVIDIA\n")
    judged = run("check", path, "--shape", "128,320,2")
    assert judged.exit_code == 0, judged.output
    refused = run("new", kind, "-o", path)
    assert refused.exit_code == 2
    assert "exists" in refused.output
    path.write_text("mine")
    assert run("new", kind, "-o", path, "--force").exit_code == 0
    assert path.read_text(encoding="utf-8") == source
