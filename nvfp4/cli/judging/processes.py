"""The judges of this command as processes.

They are forked from one that has loaded torch, and cleared away by a janitor if the command is
killed. If nothing can be forked, a judge is started like any process.
"""

import atexit
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from nvfp4.cli.problem import bundled_folder
from nvfp4.records.processes import ForkedProcess, ForkServer, Process, passed_on, start_session

_from_the_start = re.compile(r"PYTHON|LD_|OMP_|MKL_|NUMBA_|TORCH|CUTE_|TRITON_")
"""Variables that a library reads when it is loaded."""

_slow_packages = {
    "cutlass": "import cutlass",
    "triton": "import triton",
    "setuptools.command.build_ext": "cpp_extension",
}
"""Slow packages and what a submission says that imports them. torch.utils.cpp_extension itself asks
for a GPU, after which no process that is forked can use it."""

_set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER


class NoServer(Exception):
    """Judges cannot be forked here."""


class _JudgeServer:
    """The command's side of ``sandbox.fork_server``."""

    _running: ClassVar[dict[tuple[object, ...], "_JudgeServer"]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, environment: dict[str, str], packages: tuple[str, ...]) -> "_JudgeServer":
        """Return the server with these variables that has loaded these packages. Raises
        NoServer."""
        shown = {key: value for key, value in environment.items() if _from_the_start.match(key)}
        key = (*sorted(shown.items()), packages)
        with cls._lock:
            if key not in cls._running:
                cls._running[key] = cls(environment, packages)
        return cls._running[key]

    def __init__(self, environment: dict[str, str], packages: tuple[str, ...]) -> None:
        if ctypes.CDLL(None).prctl(_set_child_subreaper, 1, 0, 0, 0) != 0:
            raise NoServer
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            words = ["-m", "nvfp4.sandbox.fork_server", "judges", str(fd), *packages]
            wanted = passed_on(environment, with_caches=True)
            self._process = start_session([sys.executable, *words], "/", wanted, [fd])
        self._server = ForkServer(ours)
        atexit.register(self._end)

    def _end(self) -> None:
        self._server.close()
        self._process.kill()
        self._process.wait()

    def fork(
        self,
        arguments: list[str],
        folder: Path,
        environment: dict[str, str],
        files: Mapping[str, int],
    ) -> ForkedProcess:
        """Fork a judge with these arguments.

        files: descriptors that it inherits, by the environment variables that name them. Raises
        NoServer.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read_fd, write_fd = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            judge = self._server.fork(b"judge", (theirs.fileno(), nothing, write_fd))
            request = {
                "arguments": arguments,
                "folder": str(folder),
                "environment": environment,
                "files": list(files),
            }
            socket.send_fds(ours, [json.dumps(request).encode()], list(files.values()))
            if judge.poll() is not None:
                raise OSError("the server has ended")
        except OSError:
            os.close(read_fd)
            raise NoServer from None
        finally:
            for fd in (write_fd, nothing):
                os.close(fd)
            ours.close()
            theirs.close()
        judge.stderr = os.fdopen(read_fd, "rb")
        return judge


def _packages(folder: Path) -> tuple[str, ...]:
    """Return the slow packages that every process of the submission in a folder would load."""
    with suppress(OSError):
        text = (folder / "submission.py").read_text(encoding="utf-8", errors="replace")
        return tuple(each for each, said in _slow_packages.items() if said in text)
    return ()


def prepare(folder: Path, environment: dict[str, str]) -> None:
    """Begin to load what ``start`` would have to wait for."""
    with suppress(NoServer):
        _JudgeServer.of(environment, _packages(folder))


def start(
    arguments: list[str], folder: Path, environment: dict[str, str], files: Mapping[str, int]
) -> Process:
    """Start a judge in a folder; see ``judge.entry``.

    files: descriptors that it inherits, by the environment variables that name them, such as
    POPCORN_FD.
    """
    with suppress(NoServer):
        server = _JudgeServer.of(environment, _packages(folder))
        return server.fork(arguments, folder, environment, files)
    environment = {**environment, **{name: str(fd) for name, fd in files.items()}}
    command = [sys.executable, str(bundled_folder() / "eval.py"), *arguments]
    return start_session(command, folder, environment, files.values(), stderr=subprocess.PIPE)


_wait = """
read -r pid && read -r said && exit 0
kill -TERM "$pid"
tries=0
while kill -0 "$pid" && [ $tries -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
kill -KILL -"$pid"
chmod -R u+rwx "$1"
rm -rf "$1"
"""
"""Shell command that reads a process's ID, once it has started, and waits for the end of the pipe:
a command that is killed closes it without another line."""


@contextmanager
def watched(folder: Path) -> Iterator[Callable[[Process], object]]:
    """Make sure that the folder, and the session of the process that the block names by what it
    gets, are removed if this command is killed inside the block."""
    command, null = ["sh", "-c", _wait, "sh", str(folder)], subprocess.DEVNULL
    janitor = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=null, stderr=null, cwd="/", start_new_session=True
    )
    said = janitor.stdin
    assert said
    try:
        yield lambda process: os.write(said.fileno(), b"%d\n" % process.pid)
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
