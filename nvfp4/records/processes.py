"""Waiting for other processes: for their output, for their end, and for a turn."""

import gc
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO

REQUEST_BYTES = 1 << 20
"""Limit on the bytes of a request to a fork server."""

MOST_FILES = 4
"""Limit on the files of a request."""


FOLDER_VARIABLE = "XDG_CACHE_HOME"
"""The variable with the folder that holds compilers' caches."""

KEPT_BACK = (
    *("PYTHONCOERCE", "PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONOPTIMIZE", "PYTHONUTF8"),
    *("PYTHONWARNINGS", "TORCH_ALLOW_TF32", "TORCH_LOGS"),
    *("CUTE_DSL_DRYRUN", "CUTE_DSL_DUMP_DIR", "CUTE_DSL_KEEP"),
    *(f"TRITON_{each}" for each in ("ALLOW", "CACHE_MANAGER", "DEFAULT", "ENABLE", "F")),
    *(f"TRITON_{each}" for each in ("INSTRUMENTATION", "INTERPRET", "KERNEL", "OVERRIDE")),
)
"""Beginnings of variables by which a user's shell changes what a file does, as no contest does."""
_passed = re.compile(
    rf"(?!{'|'.join(KEPT_BACK)})(\w*PATH|HOME|USER|LANG|LC_\w+|TZ|CC|CXX|VIRTUAL_ENV|CONDA_PREFIX|POPCORN_NCU|PYTORCH_NVCC"
    r"|NVIDIA_VISIBLE_DEVICES|(CUDA|CUTE_DSL|MKL|OMP|PYTHON|TORCH|TRITON)\w*)"
)


def caches_home() -> Path:
    """Return the folder that holds the caches of this user's programs. A name that is relative
    counts for nothing (XDG Base Directory Specification)."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    return Path(named) if os.path.isabs(named) else Path.home() / ".cache"


def passed_on(
    environment: Mapping[str, str] = os.environ, with_caches: bool = False
) -> dict[str, str]:
    """Return the environment variables of this process, or of the given environment, that a
    submission may know; with_caches: also the one that names the folder of caches."""
    caches = FOLDER_VARIABLE if with_caches else None
    return {k: v for k, v in environment.items() if k == caches or _passed.fullmatch(k)}


def start_session(
    command: Sequence[str],
    folder: Path | str = "/",
    environment: Mapping[str, str] | None = None,
    fds: Collection[int] = (),
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a process that leads a session and reads nothing. fds: descriptors that it inherits."""
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout,
        stderr=stderr, pass_fds=fds, start_new_session=True
    )  # fmt: skip


class ForkServer:
    """The socket of a fork server, which runs `fork_for_requests`, for the process that asks."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fork(self, request: bytes, fds: Sequence[int]) -> "ForkedProcess":
        """Request a process with these files, and return before it has started. Raises OSError if
        the server has ended."""
        told, tell = os.pipe()
        try:
            socket.send_fds(self._socket, [request], [*fds, tell])
        except OSError:
            os.close(told)
            raise
        finally:
            os.close(tell)
        return ForkedProcess(told)

    def close(self) -> None:
        """End the server."""
        self._socket.close()


def fork_for_requests(
    fd: int, adopted: bool = True, before: Callable[[bytes], None] = lambda text: None
) -> tuple[bytes, list[int]]:
    """Fork a process for each request over a socket, with the request's files; see
    ``ForkServer.fork``.

    Returns in each forked process, with its request. A forked process leads a session and writes
    its pid into the last file. adopted: it is a child of this process's parent, otherwise of this
    process. before: called before each fork, and with an empty request when the other end of the
    socket is closed and this process ends.
    """
    parent = os.getppid()
    with socket.socket(fileno=fd) as asked:
        while True:
            text, fds, _, _ = socket.recv_fds(asked, REQUEST_BYTES, MOST_FILES)
            before(text)
            if not text:
                os._exit(0)
            gc.freeze()  # objects loaded so far hold no tensor that a search must find
            child = os.fork()
            if child == 0:
                break
            if adopted:
                os.waitpid(child, 0)
            for each in fds:
                os.close(each)
    if adopted:
        if os.fork():
            os._exit(0)
        # A signal at its death would come too early; it may have ended meanwhile.
        while os.getppid() != parent:
            if os.getppid() == 1 != parent:
                os._exit(1)
            time.sleep(0.0005)
    gc.enable()
    os.setsid()
    tell = fds.pop()
    os.write(tell, str(os.getpid()).encode())
    os.close(tell)
    return text, fds


class ForkedProcess:
    """The part of ``subprocess.Popen``'s interface that we use."""

    stdout: IO[bytes]
    stderr: IO[bytes]
    """Set if the process has pipes."""

    def __init__(self, told: int) -> None:
        """told: the file into which the process writes its ID when it has started as a child of
        this one."""
        self.returncode: int | None = None
        self._told: int | None = told
        self._pid = 0
        self._waiting = threading.RLock()  # a signal may come meanwhile

    @property
    def pid(self) -> int:
        """Wait until the process has started, and return its ID. Raises ProcessLookupError if it
        never starts."""
        with self._waiting:
            if self._told is not None:
                self._pid = int(os.read(self._told, 64) or 0)
                os.close(self._told)
                self._told = None
        if not self._pid:
            raise ProcessLookupError
        return self._pid

    def poll(self) -> int | None:
        """Return the exit code if it has ended; 1 if the exit code is not known."""
        with self._waiting:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except (ChildProcessError, ProcessLookupError):
                    self.returncode = 1 if self.returncode is None else self.returncode
                else:
                    self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when it has ended. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("forked process", timeout)
            time.sleep(0.005)
        return code

    def terminate(self) -> None:
        """Ask the process to end, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


Process = subprocess.Popen[bytes] | ForkedProcess

_KEPT_BYTES = 8 << 10


class Tail(threading.Thread):
    """Reads a stream of a process to its end, counts the lines, and keeps the first and the last
    of it.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._last = self.first = b""
        self.lines = 0
        self.start()

    def run(self) -> None:
        """Read until no process holds the other end of the stream."""
        with self._stream:
            while chunk := os.read(self._stream.fileno(), 1 << 16):
                self._last = (self._last + chunk)[-_KEPT_BYTES:]
                self.first = (self.first + chunk)[:_KEPT_BYTES]
                self.lines += chunk.count(b"\n")

    def text(self) -> str:
        """Return the end of the output once the process has ended; others may still hold the
        stream."""
        self.join(1.0)
        return self._last.decode("utf-8", "replace").strip()


VARIABLE = "NVFP4_TURN"
"""Environment variable with the descriptor of the socket by which a process gets its turns."""


class Turn(AbstractContextManager["Turn"]):
    """Lets another process prepare for seconds and then wait for its turn, and for a second one if
    it asks; it may end the last one before it ends itself. fd: the socket to inherit, named by the
    variable."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.fd = self._theirs.fileno()

    def give(self) -> None:
        """Let the process go on; nothing happens if it has ended."""
        with suppress(OSError):
            self._ours.send(b"!")

    def asked(self, timeout_s: float | None = None) -> bool:
        """Wait until the process, which has started, asks for another turn, or has ended its last
        one: then return False. Raises TimeoutError."""
        self._theirs.close()
        self._ours.settimeout(timeout_s)
        with suppress(ConnectionResetError):
            return bool(self._ours.recv(1))
        return False

    def __exit__(self, *error: object) -> None:
        self._theirs.close()
        self._ours.close()


def wait_for_turn(load: Callable[[], object]) -> bool:
    """Return at once if no turns are used, else load first.

    Returns False if the process that gives turns has ended.
    """
    number = os.environ.get(VARIABLE)
    if number is None:
        return True
    load()
    with suppress(ConnectionResetError):
        return bool(os.read(int(number), 1))
    return False


def wait_for_another_turn() -> bool:
    """Ask for another turn and do the same as ``wait_for_turn``."""

    def ask() -> None:
        with suppress(BrokenPipeError):
            os.write(int(os.environ[VARIABLE]), b"!")

    return wait_for_turn(ask)


def end_last_turn() -> None:
    """Let others have their turns while this process clears away."""
    if VARIABLE in os.environ:
        os.close(int(os.environ.pop(VARIABLE)))
