"""A signal keeps what was judged; output that cannot be written ends in a sentence, not a trace."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bot import root
from conftest import submissions
from started import start_command, wait_until_gone

from nvfp4.cli.judging.bot import read_activity

right = (submissions / "right.py").read_text(encoding="utf-8")

stops_at_the_third = (
    right
    + """
def custom_kernel(data):
    if data[0].shape[1] == 1536:  # k is 3072
        open("started", "w").close()
        while True:
            pass
    return gemv(data)
"""
)

slow_by_itself = (
    right
    + """
custom_kernel = gemv
if __name__ == "__main__":
    import time
    open("started", "w").close()
    time.sleep(100)
"""
)


def test_ctrl_c_keeps_the_cases_that_were_judged(tmp_path: Path) -> None:
    file = tmp_path / "verdict.json"
    process = start_command(tmp_path, stops_at_the_third, "--output", str(file))
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in output + errors
    lines = output.splitlines()
    rows = [line.split() for line in lines if line.split()[:1] in (["1"], ["2"], ["3"])]
    assert [row[4] for row in rows] == ["pass", "pass", "skipped"]
    assert lines[-1].startswith("interrupted after ")
    assert lines[-1].endswith("of 20 tests 2 passed, 18 not judged")
    kept = json.loads(file.read_text())
    assert kept["passed"] is False
    assert [test["status"] for test in kept["tests"]] == ["pass"] * 2 + ["skipped"] * 18
    assert {test["message"] for test in kept["tests"][2:]} == {"not judged: interrupted"}
    assert kept["device"]["kind"] in ("cpu", "cuda")
    wait_until_gone(tmp_path / "scratch")


def test_ctrl_c_does_not_wait_for_the_run_of_the_submission_by_itself(tmp_path: Path) -> None:
    process = start_command(tmp_path, slow_by_itself, "--json")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert len(json.loads(output)["tests"]) == 20
    wait_until_gone(tmp_path / "scratch")


def test_a_second_ctrl_c_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    process = start_command(tmp_path, stops_at_the_third)
    os.kill(process.pid, signal.SIGSTOP)  # both signals are there before it can act
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    output, errors = process.communicate(timeout=10)
    assert process.returncode in (130, 143)
    assert "interrupted after" not in output
    assert "Traceback" not in output + errors
    wait_until_gone(tmp_path / "scratch")


def test_nobody_reads_the_output_any_more(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nvfp4", "selftest", "--list"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["selftest", "--list"], ["info", "--json"]])
def test_output_that_finds_no_room_ends_with_2_and_a_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nvfp4", *arguments],
            cwd=root,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_text_that_an_encoding_lacks_is_escaped(encoding: str, tmp_path: Path) -> None:
    """A file name that is no text, and characters that only Unicode has."""
    name = os.fsencode(tmp_path) + b"/\xff\xe2\x86\x92.py"
    done = subprocess.run(
        [sys.executable.encode(), b"-m", b"nvfp4", b"test", name],
        cwd=root,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"cannot read" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_activity_is_a_known_word_in_a_plain_file(tmp_path: Path) -> None:
    folders = [tmp_path / f"nvfp4-{number}" for number in range(5)]
    for folder in folders:
        folder.mkdir()
    assert read_activity(tmp_path) is None
    (folders[0] / "activity").write_text("\x1b[2J")
    (folders[1] / "activity").symlink_to(folders[2])
    os.mkfifo(folders[2] / "activity")
    assert read_activity(tmp_path) is None
    for number, word in ((3, "compiling"), (4, "emulating")):
        (folders[number] / "activity").write_text(word)
        os.utime(folders[number] / "activity", ns=(number, number))
    assert read_activity(tmp_path) == "emulating"
