"""What a submission's processes take together: memory, also of no process, and disk."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import with_the_judge

from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.processes import start_session
from nvfp4.sandbox import isolation, machine, totals
from nvfp4.sandbox.caches import variables
from nvfp4.sandbox.machine import size_bytes
from nvfp4.sandbox.totals import Totals

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what is taken")

mebibyte = 1 << 20


@contextmanager
def running(script: str) -> Iterator[int]:
    """The number of a process that has run a script and waits."""
    text = textwrap.dedent(script) + "\nprint('ready', flush=True)\ninput()\n"
    with subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def limited(monkeypatch: pytest.MonkeyPatch, mebibytes: int) -> None:
    """Processes may take so much memory."""
    monkeypatch.setattr(totals, "data_share", 1.0)
    monkeypatch.setattr(machine, "memory_bytes", lambda: mebibytes * mebibyte)


memfd = """
import os
fd = os.memfd_create("hidden")
for _ in range(200):
    os.write(fd, bytes(1 << 20))
"""

in_a_child = """
import os, time
told, tell = os.pipe()
if os.fork() == 0:
    kept = b"x" * (200 << 20)
    os.write(tell, b"done")
    time.sleep(60)
os.read(told, 4)
"""


sharing = """
import os, time
kept = b"x" * (100 << 20)
for _ in range(5):
    if os.fork() == 0:
        time.sleep(60)
"""

many_threads = """
import threading
for _ in range(60):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""

many_files = """
import os, time
for _ in range(3):
    told, tell = os.pipe()
    if os.fork() == 0:
        for _ in range(300):
            os.dup(0)
        os.write(tell, b"done")
        time.sleep(60)
    os.read(told, 4)
"""


TAKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], str | None]] = {
    "memory of no process": (memfd, lambda patch: limited(patch, 150), "of memory, of 0.1 GiB"),
    "memory of a child": (in_a_child, lambda patch: limited(patch, 150), "of memory, of 0.1 GiB"),
    "pages that forks share, once": (sharing, lambda patch: limited(patch, 300), None),
    "threads": (
        many_threads,
        lambda patch: patch.setattr(totals, "own_threads", 40),
        "its processes had 61 threads, of 40 that they may have",
    ),
    "threads, of a container's limit": (
        many_threads,
        lambda patch: patch.setattr(machine, "left_threads", lambda: 40),
        "its processes had 61 threads, of 30 that they may have",
    ),
    "open files within the limit": (many_files, lambda patch: None, None),
    "open files": (
        many_files,
        lambda patch: patch.setattr(totals, "most_open_files", 600),
        "its processes had more than 600 files open",
    ),
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_all_processes_take_together_counts(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, limit, told = TAKEN[what]
    limit(monkeypatch)
    for each, expected in (("pass", None), (script, told)):
        with running(each) as pid:
            found = Totals(pid, [tmp_path]).exceeded()
        assert found is None if expected is None else expected in str(found), found


def test_a_container_s_limit_of_threads_binds(tmp_path: Path) -> None:
    (tmp_path / "pids.max").write_text("60\n")
    (tmp_path / "pids.current").write_text("20\n")
    assert machine.left_threads(tmp_path) == 40
    (tmp_path / "pids.max").write_text("max\n")
    assert machine.left_threads(tmp_path) > totals.own_threads


def test_a_container_s_memory_is_what_its_files_would_not_give_up(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{500 * mebibyte}\n")
    (tmp_path / "memory.current").write_text(f"{450 * mebibyte}\n")
    assert machine.memory_bytes(tmp_path) == 500 * mebibyte
    assert machine.left_bytes(tmp_path) == 50 * mebibyte
    (tmp_path / "memory.stat").write_text(f"anon 1\nactive_file {300 * mebibyte}\n")
    assert machine.left_bytes(tmp_path) == 350 * mebibyte


def test_a_look_ends_where_memory_becomes_short_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([8 << 30, 8 << 30] + [0] * 9)
    monkeypatch.setattr(machine, "left_bytes", lambda: next(looks))
    monkeypatch.setattr(totals, "_turn_s", lambda share: 0.0)
    with running(many_files) as pid:
        assert Totals(pid, [tmp_path]).exceeded() == "this machine has 0.0 GiB of memory left"
    assert len(list(looks)) == 8, "it went on"


def test_what_is_left_of_the_machine_s_memory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [100 << 20]
    monkeypatch.setattr(machine, "left_bytes", lambda: left[0])
    monkeypatch.setattr(totals, "_turn_s", lambda share: 0.0)
    watched = Totals(os.getpid(), [tmp_path])
    assert watched.exceeded() is None, "there was no more at first"
    left[0] = 30 << 20
    assert watched.exceeded() == "this machine has 0.0 GiB of memory left"


holds = "kept = b'x' * (%d << 20)"


def test_whoever_takes_most_is_stopped_first_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, 300)
    left, now = [mebibyte], [0.0]
    monkeypatch.setattr(machine, "left_bytes", lambda: left[0])
    monkeypatch.setattr(totals.time, "monotonic", lambda: now[0])
    with running(holds % 170) as large, running(holds % 50) as small:
        left[0] = 1 << 30
        watched = {each: Totals(each, [tmp_path]) for each in (large, small)}
        left[0] = 0
        assert watched[large].exceeded()
        for now[0] in (0.0, 0.3):
            assert watched[small].exceeded() is None
        left[0] = 1 << 30
        assert watched[small].exceeded() is None
        left[0] = 0
        for now[0], stopped in ((0.7, False), (1.0, False), (1.8, True)):
            assert bool(watched[small].exceeded()) is stopped


on_their_way = """
import os, socket
ours, theirs = socket.socketpair()
fd = os.memfd_create("hidden")
socket.send_fds(ours, [b"x"], [fd])
os.close(fd)
"""


def test_files_on_their_way_are_anybody_s_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(on_their_way) as pid:
        if not machine.files_on_their_way([pid], 100):
            pytest.skip("this kernel does not tell of them")
        watched = Totals(pid, [tmp_path])
        monkeypatch.setattr(machine, "left_bytes", lambda: 0)
        assert watched.exceeded()
    with running("pass") as pid:
        watched = Totals(pid, [tmp_path])
        watched._least_left_bytes = mebibyte
        assert watched.exceeded() is None


spinning = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        while True:
            pass
time.sleep(0.5)
"""


@pytest.mark.parametrize("gives_way", [False, True])
def test_a_crowd_that_spins_gives_way(
    gives_way: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "_crowd", lambda: 3)
    with running(spinning) as pid:
        assert Totals(pid, [tmp_path], gives_way).exceeded() is None
        policies = {os.sched_getscheduler(each) for each in isolation.descendants(pid)}
    assert policies == {os.SCHED_IDLE if gives_way else os.SCHED_OTHER}


def test_what_lies_in_folders_counts_whoever_has_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "disk_bytes", 10 * mebibyte)
    monkeypatch.setattr(totals, "_NOTICED_BYTES", 4 * mebibyte)
    free = [100 * mebibyte]
    monkeypatch.setattr(machine, "free_bytes", lambda folder, with_files=False: free[0])
    watched = Totals(os.getpid(), [tmp_path])
    (tmp_path / "file").write_bytes(bytes(20 * mebibyte))
    assert watched.exceeded() is None, "nothing is missing on the disk"
    free[0] -= 20 * mebibyte
    assert watched.exceeded() == "its files took more than 0.0 GiB"


def test_files_without_contents_are_seen_and_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "disk_bytes", 10 * mebibyte)
    found = os.statvfs(tmp_path)
    left = [5000]
    names = [name for name in dir(found) if name.startswith("f_")]
    same = {name: getattr(found, name) for name in names}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**same | {"f_favail": left[0]}))
    watched = Totals(os.getpid(), [tmp_path])
    for number in range(400):
        (tmp_path / str(number)).touch()
    left[0] -= 4999
    assert watched.exceeded() == "its files took more than 0.0 GiB"


def test_holes_are_free_and_many_small_files_are_not(tmp_path: Path) -> None:
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(1 << 40)
    assert size_bytes(tmp_path) < mebibyte
    for number in range(1000):
        (tmp_path / str(number)).touch()
    assert size_bytes(tmp_path) > 3 * mebibyte


takes_too_much = """
import os, time
fd = os.memfd_create("hidden")
piece = bytes(64 << 20)
while True:
    os.write(fd, piece)
"""


def test_a_submission_that_takes_too_much_is_stopped_and_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nvfp4.judge.submission_process.start_worker", _start_with_less)
    (tmp_path / "submission.py").write_text(takes_too_much)
    with SubmissionProcess(tmp_path / "submission.py") as process:
        start = time.monotonic()
        with pytest.raises(SubmissionFailed) as failed:
            process.load(60)
    assert time.monotonic() - start < 55
    assert failed.value.failure.code == "process.killed"
    assert "it was stopped: its processes took" in str(failed.value)


def _start_with_less(*asked: Any) -> subprocess.Popen[bytes]:
    """A worker that may take 1.5 GiB."""
    module, submission, fd, options, folder, _ = asked
    script = (
        "import runpy, sys\n"
        "from nvfp4.sandbox import machine, totals\n"
        "totals.data_share, machine.memory_bytes = 1.0, lambda: 3 << 29\n"
        f"sys.argv = {[module, str(fd), str(submission)]!r}\n"
        f"runpy.run_module({module!r}, run_name='__main__')\n"
    )
    environment = {**with_the_judge, **variables(submission, folder, options)}
    return start_session(
        [sys.executable, "-c", script], folder, environment, [fd], subprocess.PIPE, subprocess.PIPE
    )
