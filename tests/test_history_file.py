"""The file of the history: many writers, a killed one, and what becomes of a bad file."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bot import root
from kept import Judge, content, invoke, is_error, kept_in, named
from recorded_verdicts import every_verdict, timed_verdict

from nvfp4.cli.errors import json_schema
from nvfp4.cli.history.database import History, version
from nvfp4.cli.history.judgements import keep

writer = """
import hashlib, os, sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from recorded_verdicts import timed_verdict
from nvfp4.cli.history.database import History
from nvfp4.cli.history.judgements import keep
from nvfp4.cli.verdict import Submission
history, times, size = History(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(times):
    text = os.urandom(size)
    verdict = timed_verdict()
    verdict.submission = Submission("mine.py", hashlib.sha256(text).hexdigest())
    assert keep(verdict, text, history)
    print(number, flush=True)
""".format(tests=str(root / "tests"))


def start_writer(path: Path, times: int, size: int = 100) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [sys.executable, "-c", writer, str(path), str(times), str(size)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def test_many_write_at_once(history: History) -> None:
    """The first of them also make the file."""
    processes = [start_writer(history.path, 25) for _ in range(6)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        go(process)
    for process in processes:
        _, errors = process.communicate(timeout=100)
        assert (process.returncode, errors) == (0, "")
    numbers = [each.id for each in history.entries()]
    assert sorted(numbers) == list(range(1, 151))


def test_a_killed_writer_leaves_a_whole_file(history: History) -> None:
    told = 0
    for attempt in range(6):
        # So large that most of the time goes into writing.
        process = start_writer(history.path, 1000, size=3_000_000)
        assert process.stdout
        process.stdout.readline()
        go(process)
        process.stdout.readline()
        time.sleep(0.003 * attempt)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        told += 1 + len(rest.splitlines())
    with sqlite3.connect(history.path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    entries = history.entries()
    assert told <= len(entries) <= told + 6  # one may be kept and not told
    assert all(history.find(each.id).verdict_object["schema"] == json_schema for each in entries)
    assert kept_in(history, named(timed_verdict())) > len(entries)


def make_broken(path: Path) -> None:
    path.write_bytes(b"this is no database, it only lies where one is expected\n" * 99)


def make_damaged(path: Path) -> None:
    """The header is right, all pages behind it are not."""
    history = History(path)
    for number in range(9):
        kept_in(history, named(timed_verdict(), text=bytes(number)), bytes(number))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * (len(whole) - 100))


def make_newer(path: Path) -> None:
    kept_in(History(path), named(timed_verdict()))
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {version + 1}")


def make_foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")


def make_folder(path: Path) -> None:
    path.mkdir()


bad = [make_broken, make_damaged, make_newer, make_foreign, make_folder]


@pytest.mark.parametrize("make", bad)
def test_a_bad_file_neither_stops_a_judgement_nor_is_changed(
    data: Path, judge: Judge, make: Callable[[Path], None]
) -> None:
    data.parent.mkdir(parents=True)
    make(data)
    before = None if data.is_dir() else data.read_bytes()
    done = judge("test", found=every_verdict()["passed"])
    assert done.exit_code == 0
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("warning: this judgement is not kept: ")
    assert str(data) in warning
    assert judge("test", "--json", found=every_verdict()["passed"]).exit_code == 0
    log = invoke("log")
    assert log.exit_code == 2
    assert is_error(log.stderr)
    if before is not None:
        assert data.read_bytes() == before
    assert os.listdir(data.parent) == [data.name]


def test_an_empty_file_becomes_a_history(data: Path, judge: Judge) -> None:
    """As a process leaves it that is killed before it makes the tables."""
    data.parent.mkdir(parents=True)
    data.touch()
    assert "no judgement is kept" in invoke("log").output
    assert judge("test", found=every_verdict()["passed"]).stderr == ""
    assert len(History(data).entries()) == 1


def test_a_folder_that_cannot_be_made_neither(data: Path, judge: Judge) -> None:
    data.parent.parent.write_text("no folder")
    done = judge("test", found=every_verdict()["passed"])
    assert done.exit_code == 0
    assert "not kept" in done.stderr
    assert "no judgement is kept" in invoke("log").output


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_neither(data: Path, judge: Judge) -> None:
    kept_in(History(data), named(timed_verdict()))
    data.chmod(0o400)
    data.parent.chmod(0o500)
    try:
        done = judge("test", found=every_verdict()["passed"])
        assert done.exit_code == 0
        assert "readonly" in done.stderr
        assert len(History(data).entries()) == 1
    finally:
        data.parent.chmod(0o700)


def test_a_full_disk_neither(history: History, capfd: pytest.CaptureFixture[str]) -> None:
    """A limit on the size of files stands for it."""
    kept_in(history, named(timed_verdict()))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        assert keep(named(timed_verdict(), text=b"x"), bytes(1_000_000), history) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert len(history.entries()) == 1
    assert kept_in(history, named(timed_verdict())) == 2


def test_a_locked_file_is_waited_for_and_then_given_up(
    history: History, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept_in(history, named(timed_verdict()))
    monkeypatch.setattr("nvfp4.cli.history.database.busy_s", 0.1)
    with sqlite3.connect(history.path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert keep(named(timed_verdict()), content, history) is None
    assert "locked" in capfd.readouterr().err
