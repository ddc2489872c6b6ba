"""Processes and all that they have started are stopped and killed, whatever they do meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import process_state, run_python, with_the_judge

from nvfp4.sandbox.isolation import (
    adopt_orphans,
    descendants,
    kill_tree,
    stop_tree,
)

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
pytestmark = needs_linux


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
        assert wait_for(lambda: [process_state(pid) for pid in stopped] == ["T"] * 3)
    finally:
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        out.close()


growing = """
import os, time
while True:
    time.sleep(0.002)
    if os.fork():
        time.sleep(60)
    os.setsid()
    print("another", flush=True)
"""


@pytest.mark.parametrize("generation", [1, 3, 8, 20])
def test_nothing_is_left_of_a_tree_that_grows_while_it_is_killed(generation: int) -> None:
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


def test_one_that_leads_no_session_yet_is_killed_too() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    killing = threading.Thread(target=kill_tree, args=(process,), daemon=True)
    killing.start()
    killing.join(10)
    ended = not killing.is_alive()
    process.kill()
    assert ended


def wait_for(holds: Callable[[], bool]) -> bool:
    """Whether it does within a second."""
    for _ in range(200):
        if holds():
            return True
        time.sleep(0.005)
    return False


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


def test_a_process_that_is_slow_to_step_aside_does_not_end_the_submission(tmp_path: Path) -> None:
    """Each process of the chain closes its files while the next one goes on."""
    ended = run_python("-c", slow_to_close, cwd=tmp_path)
    if ended.returncode == 0 and ended.stdout:
        pytest.skip(ended.stdout)
    assert ended.returncode == 7, ended.stderr


def test_a_signal_that_ends_a_process_between_is_told(tmp_path: Path) -> None:
    """Out of memory, Linux kills whichever it chooses."""
    script = slow_to_close.replace("time.sleep(1)", "print('inside', flush=True); time.sleep(60)")
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=with_the_judge,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        if "none: " in line or "no own pids" in line:
            pytest.skip(line)
        assert line == "inside\n"
        waiting, *_ = descendants(process.pid)
        os.kill(waiting, signal.SIGKILL)
        assert process.wait(timeout=10) == -signal.SIGKILL
