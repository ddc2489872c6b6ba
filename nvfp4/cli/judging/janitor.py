"""Ends processes, and clears away what a command leaves that is killed, as by SIGKILL, before it
can do so itself."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nvfp4.cli.judging.judge_server import Process

_wait = """
read -r said && exit 0
kill -TERM "$1"
tries=0
while kill -0 "$1" && [ $tries -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
kill -KILL -"$1"
chmod -R u+rwx "$2"
rm -rf "$2"
"""
"""A command that is killed closes its end of the pipe without a word."""


@contextmanager
def watched(process: Process, folder: Path) -> Iterator[None]:
    """Should this command be killed inside, the process's session ends and the folder goes."""
    janitor = subprocess.Popen(
        ["sh", "-c", _wait, "sh", str(process.pid), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield
    finally:
        janitor.communicate(b"done\n")


def end(processes: Sequence[Process], within_s: float) -> None:
    """Lets processes, each of which leads a session, clear away, then kills their sessions."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + within_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def clear(folder: Path) -> None:
    """Deletes a folder of any depth and with any permissions."""
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        subprocess.run([*command, str(folder)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
