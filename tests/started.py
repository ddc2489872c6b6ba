"""Judges and commands that tests start and stop, and what is left of them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bot import Bot, case, root
from conftest import is_below, processes_naming, start_python

ENDLESS = """
def custom_kernel(data):
    open("started", "w").close()
    while True:
        pass
"""


def wait_until(condition: Callable[[], object], what: object = "", limit_s: float = 100) -> None:
    """Until it is true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def wait_until_gone(scratch: Path, limit_s: float = 30) -> None:
    """Until neither a folder nor a process of a judge is left there."""

    def gone() -> bool:
        return not list(scratch.glob("nvfp4-*")) and not processes_naming(f"{scratch}/")

    wait_until(gone, scratch, limit_s)


def start_command(
    folder: Path, source: str, *arguments: str, until: str = "started"
) -> subprocess.Popen[str]:
    """`nvfp4 test` of a submission that makes a file `started`, once there is that file or
    another one. Its scratch folders lie in the folder's `scratch`.
    """
    (folder / "mine.py").write_text(source)
    command = ["-m", "nvfp4", "test", str(folder / "mine.py"), *arguments]
    variables = {**os.environ, "TMPDIR": str(_scratch(folder))}
    process = start_python(*command, cwd=root, env=variables, start_new_session=True)
    _wait_until_started(folder / "scratch", process, until)
    return process


@contextmanager
def started_judge(folder: Path, source: bytes) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A judge of a submission that makes a file `started` on two rows, as the bot starts it, with
    the pipe that has the results on one row."""
    bot = Bot.stage(folder / "flat", source)
    (bot.folder / "cases.txt").write_text(f"{case(m=1)}\n{case(m=2)}\n")
    read_fd, write_fd = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "eval.py", "test", "cases.txt"],
        cwd=bot.folder,
        env={**os.environ, "POPCORN_FD": str(write_fd), "TMPDIR": str(_scratch(folder))},
        pass_fds=[write_fd],
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write_fd)
    _wait_until_started(folder / "scratch", process)
    yield process, read_fd
    os.close(read_fd)


def _scratch(folder: Path) -> Path:
    (folder / "scratch").mkdir()
    return folder / "scratch"


def _wait_until_started(
    scratch: Path, process: subprocess.Popen[str], until: str = "started"
) -> None:
    wait_until(lambda: is_below(scratch, until) or process.poll() is not None, scratch)
    assert process.poll() is None, process.communicate()
