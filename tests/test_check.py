"""check, test -x, --watch and new, as commands."""

import signal
import subprocess
import threading
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from click.testing import Result
from conftest import run_python, start_python, torch_source, with_the_judge
from kept import Judge, invoke, judged
from problem_folder import make_problem
from recorded_verdicts import recorded_verdict

from nvfp4.cli.judging.watch import repeatedly
from nvfp4.cli.problem import load_problem

wrong_for_two_batches = """
import torch

def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    if c.shape[2] == 2:
        raise ValueError("no batches")
    return c
"""


def run(*arguments: str | Path) -> Result:
    return invoke(*map(str, arguments))


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text)
    return path


def with_a_check(lines: str) -> str:
    """A right submission in plain torch that looks at m first."""
    shape = "    m, _, l = c.shape\n"
    return torch_source.replace(shape, f"{shape}    {lines}\n")


unsupported = """if m not in (256, 384):
        raise ValueError(f"Unsupported (M, K) combination {m}")"""
low_nibbles = torch_source.replace(
    "codes = packed.to(torch.int16)", "codes = (packed & 15).to(torch.int16)"
)


@pytest.mark.parametrize(
    ("source", "options", "statuses", "code", "words"),
    [
        (
            with_a_check("assert m != 128"),
            *("--shape 128,192,2", ["fail", "skipped"], "call.exception"),
            ["failed at 128 x 192 x 2 with the contest's inputs", "none of the contest's shapes"],
        ),
        (
            *(low_nibbles, "--shape 128,256,2", ["pass", "fail"], None),
            ["only a warning: 128 x 256 x 2 with full-range inputs", "likely cause"],
        ),
        (
            *(with_a_check(unsupported), "", ["fail", "skipped", "skipped"], "call.exception"),
            [
                "failed at 512 x 512 x 2 with the contest's inputs",
                "ValueError: Unsupported (M, K) combination 512",
            ],
        ),
        (
            *(torch_source, "", ["pass"] * 3, None),
            ["passed at 512 x 512 x 2 with the contest's inputs"],
        ),
        (
            *(with_a_check("assert m != 384"), "", ["pass", "pass", "fail"], None),
            ["passed at 512 x 512 x 2 with the contest's inputs"],
        ),
    ],
    ids=[
        *("a shape that is asked for", "full-range inputs only warn", "a contest's shape", "right"),
        "right for the contest's shapes alone",
    ],
)
def test_a_shape_of_the_contest_decides_or_the_one_that_is_asked_for(
    source: str,
    options: str,
    statuses: list[str],
    code: str | None,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    done = judged(tmp_path, source, "check", *options.split())
    content, decided = done.content, done.content["decided_by"]
    assert done.exit_code == (1 if code else 0), done.output
    tests = content["tests"]
    assert [test["status"] for test in tests] == statuses
    assert [test["inputs"] for test in tests] == ["contest", "full", "full"][: len(tests)]
    assert len(tests) < 3 or tests[2]["spec"].startswith("m: 384; k: 640;")
    assert (decided and decided["failure"]["code"]) == code
    assert (content["passed"], content["mistake"]) == (code is None, None)
    codes = [each["code"] for each in content["warnings"]]
    assert ("full_range" in codes) is (code is None and statuses[1] == "fail")
    assert ("other_shape" in codes) is (code is None and statuses[2:] == ["fail"])
    assert [word for word in words if word not in done.output] == [], done.output


@pytest.mark.parametrize("command", ["check", "test", "bench", "eval"])
def test_every_command_tells_a_mistake_once_and_runs_nothing(command: str, tmp_path: Path) -> None:
    done = judged(tmp_path, "def custom_kernel(data:\n    pass\n", command)
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "mine.py:1:18: SyntaxError: '(' was never closed",
        "     1 | def custom_kernel(data:",
        "       |                  ^",
        "failed: nothing was run",
    ]
    mistake = done.content["mistake"]
    assert done.content["passed"] is False
    assert (mistake["code"], mistake["line"], mistake["column"]) == ("syntax", 1, 18)
    assert done.content["tests"] == done.content["benchmarks"] == []


def test_a_failed_import_is_told_once(tmp_path: Path) -> None:
    source = "import torch\n\n\ndef f():\n    raise KeyError('no')\n\n\nf()\nexec('')"
    done = run("eval", write(tmp_path, source))
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


def test_what_every_test_fails_with_is_told_once(judge: Judge) -> None:
    done = judge("test", found=recorded_verdict("returns_none"))
    assert done.exit_code == 1
    assert "all 2 tests failed alike, the first at 128 x 256 x 2 with contest inputs" in done.output
    assert done.output.count("returned None") == 1
    assert "full-range inputs\n─" not in done.output


def test_an_odd_home_files_without_rights_and_a_deaf_parent_change_nothing(tmp_path: Path) -> None:
    home = tmp_path / "h\udcff"
    home.mkdir()
    command = "-m", "nvfp4", "check", str(write(tmp_path, torch_source))
    deaf = partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
    env = {**with_the_judge, "HOME": str(home)}
    done = run_python(*command, env=env, umask=0o777, preexec_fn=deaf)
    said = "passed at 512 x 512 x 2 with the contest's inputs\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_a_module_of_the_user_s_own_is_not_there(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "helpers.py").touch()
    own = {"PYTHONPATH": f"{with_the_judge['PYTHONPATH']}:{tmp_path}"}
    path = write(tmp_path, f"import helpers\n{torch_source}")
    done = run_python("-m", "nvfp4", "check", str(path), env={**with_the_judge, **own})
    assert "a submission is one file, and helpers is not installed" in done.stdout
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user without a name
    assert run("log").output.startswith("error: no home folder is known")


def test_x_stops_at_the_first_failure(tmp_path: Path) -> None:
    done = judged(tmp_path, wrong_for_two_batches, "test", "-x", "--case", "512x1536x2")
    assert done.exit_code == 1
    tests = done.content["tests"]
    assert [each["status"] for each in tests] == ["fail", "skipped"]
    assert tests[1]["message"] == "not run: another test failed before"


def test_watch_judges_again_when_an_editor_replaces_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "x = (")
    command = ["-m", "nvfp4", "check", "mine.py", "--watch"]
    process = start_python(*command, cwd=tmp_path, stderr=subprocess.STDOUT)
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


def test_an_interrupted_judgement_ends_the_watch(tmp_path: Path) -> None:
    path, codes = write(tmp_path, "x"), iter([130])
    with path.open("a") as file:
        file.truncate(1 << 40)  # more than memory holds
    assert repeatedly(lambda: path.write_text("changed") and next(codes), path) == 130


@pytest.mark.parametrize("kind", ["torch", "cute", "cuda", "triton"])
def test_new_writes_a_submission_and_over_another_one_only_if_forced(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    done = run("new", kind, "-o", path)
    assert done.exit_code == 0, done.output
    assert f"next: nvfp4 check {path}" in done.output
    source = path.read_text(encoding="utf-8")
    assert source.startswith("#!POPCORN leaderboard nvfp4_gemv\n#!POPCORN gpu NVIDIA\n")
    refused = run("new", kind, "-o", path)
    assert refused.exit_code == 2
    assert "exists" in refused.output
    path.write_text("mine")
    assert run("new", kind, "-o", path, "--force").exit_code == 0
    assert path.read_text(encoding="utf-8") == source


def test_new_overwrites_nothing_that_is_kept_and_takes_no_template_from_elsewhere(
    data: Path, tmp_path: Path
) -> None:
    data.parent.mkdir(parents=True)
    data.write_text("kept")
    refused = run("new", "torch", "-o", data, "--force")
    assert refused.exit_code == 2, refused.output
    assert data.read_text() == "kept"
    own, secret = make_problem(tmp_path / "checkout"), tmp_path / "secret.py"
    secret.write_text("secret")
    with (own / "task.yml").open("a") as file:
        file.write(f"templates: {{Python: {secret}}}\n")
    assert load_problem(own).template is None
    (own.parent / "start.py").write_text("start")
    (own / "task.yml").write_text(
        (own / "task.yml").read_text().replace(str(secret), "../start.py")
    )
    assert load_problem(own).template == own / "../start.py"


@pytest.mark.parametrize("kind", ["cuda", "triton"])  # test_every_command judges the others
def test_what_new_writes_passes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    run("new", kind, "-o", path)
    judged = run("check", path, "--shape", "128,320,2")
    assert judged.exit_code == 0, judged.output
