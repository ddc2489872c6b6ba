"""Processes, for the process that waits for them: what any writes, and whose turn it is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO

_LOOK_S = 0.005


class ForkedProcess:
    """What of ``subprocess.Popen`` is used of it. The server leaves it to this process, whose child
    it is then. stdout, stderr: where it has pipes.
    """

    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, pid: int | None = None) -> None:
        self.returncode: int | None = None
        self._pid = pid
        self._waiting = threading.RLock()  # a signal may come meanwhile

    @property
    def pid(self) -> int:
        """Its number. Raises ProcessLookupError if it never started."""
        if self._pid is None:
            raise ProcessLookupError
        return self._pid

    def poll(self) -> int | None:
        """As of Popen; 1 where nobody can tell."""
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
        """As of Popen. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("forked process", timeout)
            time.sleep(_LOOK_S)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """As of Popen."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """As of Popen."""
        self.send_signal(signal.SIGTERM)


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
        """Until nobody holds the other end any more."""
        while chunk := os.read(self._stream.fileno(), 1 << 16):
            self._last = (self._last + chunk)[-_KEPT_BYTES:]
            self.first = (self.first + chunk)[:_KEPT_BYTES]
            self.lines += chunk.count(b"\n")

    def text(self) -> str:
        """The last of it, when the process has ended; others may still hold the stream."""
        self.join(1.0)
        return self._last.decode("utf-8", "replace").strip()


VARIABLE = "NVFP4_TURN"
"""The number of a file that says when it is the process's turn."""


class Turn:
    """Given to a process that has loaded what takes seconds and waits. fd: for it to inherit, by
    the variable.
    """

    def __init__(self) -> None:
        self.fd, self._ours = os.pipe()

    def give(self) -> None:
        """Lets the process go on; one that has ended need not."""
        with suppress(BrokenPipeError):
            os.write(self._ours, b"!")

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)
        os.close(self._ours)


def wait_for_turn(load: Callable[[], object]) -> bool:
    """Returns at once where nobody gives turns, else loads first. False where nobody will give one
    any more."""
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return True
    load()
    given = os.read(int(number), 1)
    os.close(int(number))
    return bool(given)
