"""A judge that is stopped clears away: no worker, no folder, whoever stops it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from bot import Bot, case, root
from conftest import processes_naming, right_source, run_python, start_python, with_the_judge
from kept import invoke
from started import ENDLESS, start_command, started_judge, wait_until, wait_until_gone

from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging import bot as judging_bot
from nvfp4.cli.judging.assess import judged
from nvfp4.cli.judging.bot import ProcessResult, read_activity
from nvfp4.cli.problem import load_problem
from nvfp4.records.options import Options
from nvfp4.records.processes import Tail
from nvfp4.sandbox import isolation
from nvfp4.sandbox.isolation import adopt_orphans, descendants, kill_tree, stop_tree

endless = b"open('started', 'w').close()\nwhile True:\n    pass\n"


stops_at_the_second = f"""{right_source}
import os, signal

def custom_kernel(data):
    if data[6].shape[0] == 1:
        return gemv(data)
    if os.fork() == 0:
        os.setsid()
        signal.pause()
    open("started", "w").close()
    while True:
        pass
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_judge_keeps_its_results_and_takes_its_worker_and_all_it_started_along(
    how: signal.Signals, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    with started_judge(tmp_path, stops_at_the_second.encode()) as (process, results):
        assert processes_naming(f"{scratch}/")
        process.send_signal(how)
        _, errors = process.communicate(timeout=30)
        lines = os.read(results, 1 << 16).decode().splitlines()
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how)
    assert "Traceback" not in errors
    assert "test.0.status: pass" in lines
    assert not [line for line in lines if line.startswith("check")]
    if how == signal.SIGTERM:
        assert list(scratch.glob("nvfp4-*")) == []
    wait_until(lambda: not processes_naming(f"{scratch}/"), limit_s=30)
    assert str(scratch) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize(
    ("how", "until"),
    [(signal.SIGHUP, "cases.txt"), (signal.SIGKILL, "started"), (signal.SIGKILL, "cases.txt")],
)
def test_a_stopped_command_leaves_neither_folder_nor_process(
    how: signal.Signals, until: str, tmp_path: Path
) -> None:
    process = start_command(tmp_path, ENDLESS, until=until)
    time.sleep(0.3)  # until the folder is watched, before torch is loaded
    process.send_signal(how)
    process.communicate(timeout=30)
    clears_away = how != signal.SIGKILL
    assert process.returncode == (128 + how if clears_away else -how)
    wait_until_gone(tmp_path / "scratch", limit_s=0 if clears_away else 30)


def test_a_run_that_is_too_long_is_asked_to_stop_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(judging_bot, "grace_s", -163.0)  # the judge itself would wait for 170 s
    bot = judging_bot.Bot(load_problem(), endless, Options(device="cpu"))
    ended = bot.run_eval("test", [case()])
    assert ended.killed
    assert ended.exit_code == 128 + signal.SIGTERM
    assert list(tmp_path.glob("nvfp4-*")) == []
    wait_until_gone(tmp_path)


def run(script: str, tmp_path: Path, timeout_s: float) -> ProcessResult:
    def start(_: list[str], folder: Path, *others: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", script]
        return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, start_new_session=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging_bot, "start", start)
        return judging_bot._run([], tmp_path, dict(os.environ), timeout_s)


def test_a_process_that_clears_away_has_time_for_it_and_another_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import signal, sys, time\n"
        "def stop(*_):\n    time.sleep(0.3)\n    open('cleared', 'w').close()\n    sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "while True:\n    time.sleep(0.01)\n"
    )
    ended = run(script, tmp_path, 3)
    assert (ended.killed, ended.exit_code) == (True, 7)
    assert (tmp_path / "cleared").exists()
    monkeypatch.setattr(judging_bot, "stop_s", 0.3)
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)\n"
    start = time.monotonic()
    ended = run(script, tmp_path, 3)
    assert (ended.killed, ended.exit_code) == (True, -signal.SIGKILL)
    assert time.monotonic() - start < 40


@pytest.mark.parametrize(
    ("mode", "pipe", "opened", "why"),
    [
        ("test", os.devnull, "rb", "cannot be written to"),
        ("info", "/dev/full", "wb", "cannot be written any more"),
    ],
)
def test_a_pipe_that_takes_no_results_ends_with_111_and_a_sentence(
    mode: str, pipe: str, opened: str, why: str, tmp_path: Path
) -> None:
    if not os.path.exists(pipe):
        pytest.skip(f"there is no {pipe}")
    bot = Bot.stage(tmp_path / "flat", b"")
    (bot.folder / "cases.txt").write_text(case() + "\n")
    with open(pipe, opened) as results:
        given: Any = {"cwd": bot.folder, "pass_fds": [results.fileno()]}
        given["env"] = {**os.environ, "POPCORN_FD": str(results.fileno())}
        done = run_python("eval.py", mode, "cases.txt", **given)
    assert done.returncode == 111
    [sentence] = done.stderr.splitlines()
    assert why in sentence


@pytest.mark.parametrize("before", [None, "kept"])
def test_a_judgement_that_cannot_begin_leaves_the_output_as_it_was(
    before: str | None, tmp_path: Path
) -> None:
    output = tmp_path / "verdict.json"
    if before is not None:
        output.write_text(before)
    assert invoke("test", "missing.py", "--output", str(output)).exit_code == 2
    assert (output.read_text() if output.exists() else None) == before


def test_what_a_submission_detaches_when_it_runs_by_itself_is_killed(tmp_path: Path) -> None:
    submission = tmp_path / "submission.py"
    submission.write_text(
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        signal.pause()\n"
        "    os._exit(0)\n"
        "print('imported')\n"
    )
    ended = run_python("-m", "nvfp4.judge", "alone", str(submission), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "imported\n")
    assert processes_naming(f"{tmp_path}/") == []


@pytest.mark.parametrize("ending", ["sys.exit(7)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_a_script_that_runs_confined_ends_as_by_itself(ending: str, tmp_path: Path) -> None:
    submission = tmp_path / "submission.py"
    submission.write_text(f"import os, signal, sys\n{ending}\n")
    ways: tuple[list[str], ...] = ([], ["-m", "nvfp4.judge", "alone"])
    codes = [run_python(*how, str(submission), cwd=tmp_path).returncode for how in ways]
    assert codes[0] == codes[1] != 0


# A signal keeps what was judged; output that cannot be written ends in a sentence, not a trace.

stops_at_the_third = f"""{right_source}
def custom_kernel(data):
    if data[0].shape[1] == 1536:  # k is 3072
        open("started", "w").close()
        while True:
            pass
    return gemv(data)
"""

slow_by_itself = f"""{right_source}
custom_kernel = gemv
if __name__ == "__main__":
    import time
    open("started", "w").close()
    time.sleep(100)
"""


def test_ctrl_c_keeps_the_cases_that_were_judged(tmp_path: Path) -> None:
    file = tmp_path / "verdict.json"
    process = start_command(tmp_path, stops_at_the_third, "--output", str(file))
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in output + errors
    wait_until_gone(tmp_path / "scratch", limit_s=0)
    lines = output.splitlines()
    rows = [line.split() for line in lines if line.split()[:1] in (["0"], ["1"], ["2"])]
    assert [row[4] for row in rows] == ["pass", "pass", "skipped"]
    assert lines[-1].startswith("interrupted after ")
    assert lines[-1].endswith("of 20 tests 2 passed, 18 not judged")
    kept = json.loads(file.read_text())
    assert kept["passed"] is False
    assert [test["status"] for test in kept["tests"]] == ["pass"] * 2 + ["skipped"] * 18
    assert {test["message"] for test in kept["tests"][2:]} == {"not judged: interrupted"}
    assert kept["device"]["kind"] in ("cpu", "cuda")


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
    command = [sys.executable, "-m", "nvfp4", "selftest", "--list"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=root, **pipes)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["log", "--json"]])
def test_output_that_finds_no_room_ends_with_2_and_a_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        given: Any = {"stdout": full, "stderr": subprocess.PIPE, "capture_output": False}
        done = run_python("-m", "nvfp4", *arguments, cwd=root, **given)
    assert done.returncode == 2
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("limit", ["-n 12", "-f 0", "-f 1"])
def test_descriptors_or_files_that_the_system_refuses_are_told_in_a_sentence(limit: str) -> None:
    command = f"ulimit {limit}; exec '{sys.executable}' -m nvfp4 check submission.py"
    done = subprocess.run(["sh", "-c", command], cwd=root, capture_output=True, text=True)
    told = "no room in the folder" if limit == "-f 1" else "the judge cannot start: "
    assert (done.returncode, done.stderr[: len(told) + 7]) == (2, f"error: {told}")


def test_a_folder_that_compilers_cannot_name_is_told_in_a_sentence(tmp_path: Path) -> None:
    (folder := tmp_path / 'of "q').mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = run_python("-m", "nvfp4", "check", "submission.py", cwd=root, env=environment)
    assert (done.returncode, f"{folder} has a quotation mark" in done.stderr) == (2, True)


def test_a_stream_that_was_read_to_its_end_is_closed() -> None:
    read_fd, write_fd = os.pipe()
    tail = Tail(stream := open(read_fd, "rb"))  # noqa: SIM115
    os.close(write_fd)
    assert (tail.text(), stream.closed) == ("", True)


@pytest.mark.parametrize("errors", ["eval.py: no room\nlast", "No space left on device\nlast"])
def test_a_judge_that_cannot_start_is_told_by_its_own_line(errors: str) -> None:
    with pytest.raises(SetupError, match="no room"):
        judged(ProcessResult(1, errors))


def test_text_that_an_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    """A file name that is no text, and characters that only Unicode has."""
    name = os.fsencode(tmp_path) + b"/\xff\xe2\x86\x92.py"
    ascii_alone = {**with_the_judge, "PYTHONIOENCODING": "ascii"}
    done = run_python("-m", "nvfp4", "test", os.fsdecode(name), cwd=root, env=ascii_alone)
    assert done.returncode == 2
    assert "cannot read" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_activity_is_a_known_word_in_a_plain_file(tmp_path: Path) -> None:
    folders = [tmp_path / f"nvfp4-{number}" for number in range(5)]
    for folder in folders:
        folder.mkdir()
    assert read_activity(tmp_path) is None
    (folders[0] / "activity").write_text("\x1b[2J")
    (folders[1] / "activity").symlink_to(folders[2])
    os.mkfifo(folders[2] / "activity")
    assert read_activity(tmp_path) is None
    for number, word in ((3, "compiling"), (4, "emulating 7%"), (2, "emulating 700%")):
        (folders[number] / "activity").unlink(missing_ok=True)
        (folders[number] / "activity").write_text(word)
        os.utime(folders[number] / "activity", ns=(number, number))
    assert read_activity(tmp_path) == "emulating 7%"


# Processes and all that they have started are stopped and killed, whatever they do meanwhile.

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@needs_linux
def test_what_has_left_the_group_is_stopped_too() -> None:
    forks = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.setsid()\n"
        "os.write(1, b'ready\\n')\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", forks], stdout=subprocess.PIPE)
    out = process.stdout
    assert out
    try:
        for _ in range(3):
            assert out.readline() == b"ready\n"
        stopped = stop_tree(process.pid)
        assert len(stopped) == 3
        files = [Path("/proc", str(pid), "stat") for pid in stopped]
        wait_until(lambda: all(") T " in each.read_text() for each in files), limit_s=30)
    finally:
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        out.close()


growing = """
import mmap, os, time
ballast = mmap.mmap(-1, 1 << 26, flags=mmap.MAP_PRIVATE)
ballast.madvise(mmap.MADV_NOHUGEPAGE)
ballast.write(bytes(1 << 26))  # a fork takes milliseconds
while True:
    time.sleep(0.002)
    if os.fork():
        time.sleep(60)
    os.setsid()
    print("another", flush=True)
"""


@pytest.mark.parametrize("generation", [1, 2, 3, 4, 5, 6, 8, 20])
@needs_linux
def test_all_of_a_growing_tree_is_killed(generation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = isolation._kill
    monkeypatch.setattr(isolation, "_kill", lambda pids: threading.Event().wait(0.02) or kill(pids))
    adopt_orphans()  # as the judge does: otherwise nobody could see them here
    before = set(descendants(os.getpid()))
    process = subprocess.Popen(
        [sys.executable, "-c", growing], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout
    with process.stdout as out:
        for _ in range(generation):
            out.readline()
        kill_tree(process)
        left = set(descendants(os.getpid())) - before
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert not left


@needs_linux
def test_one_that_leads_no_session_yet_is_killed_too() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    killing = threading.Thread(target=kill_tree, args=(process,), daemon=True)
    killing.start()
    killing.join(10)
    ended = not killing.is_alive()
    process.kill()
    assert ended


slow_to_close = """
import os, sys, time
from pathlib import Path
from nvfp4.sandbox import namespaces

close = namespaces.close_all_but
def late(*arguments):
    time.sleep(0.3)
    return close(*arguments)
namespaces.close_all_but = late
how = namespaces.enter({Path.cwd(): Path.cwd()}, [])
if "own pid" not in how:
    print(how)
    os._exit(0)
time.sleep(1)
os._exit(7)
"""


@needs_linux
def test_a_process_that_is_slow_to_step_aside_does_not_end_the_submission(tmp_path: Path) -> None:
    """Each process of the chain closes its files while the next one goes on."""
    ended = run_python("-c", slow_to_close, cwd=tmp_path)
    if ended.returncode == 0 and ended.stdout:
        pytest.skip(ended.stdout)
    assert ended.returncode == 7, ended.stderr


@needs_linux
def test_a_signal_that_ends_a_process_between_is_told(tmp_path: Path) -> None:
    """Out of memory, Linux kills whichever it chooses."""
    script = slow_to_close.replace("time.sleep(1)", "print('inside', flush=True); time.sleep(60)")
    with start_python("-c", script, cwd=tmp_path, stderr=None) as process:
        assert process.stdout
        line = process.stdout.readline()
        if "none: " in line or "no own pids" in line:
            pytest.skip(line)
        assert line == "inside\n"
        waiting, *_ = descendants(process.pid)
        os.kill(waiting, signal.SIGKILL)
        assert process.wait(timeout=10) == -signal.SIGKILL
