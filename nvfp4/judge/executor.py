"""The judge's side of `executor`, the process that emulates a GPU."""

import atexit
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypeVar

from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout
from nvfp4.records.files import clear
from nvfp4.records.messages import Ended, Failed, Greeting, failed_name, pack, unpack
from nvfp4.records.processes import ForkedProcess, Process, passed_on
from nvfp4.sandbox import isolation
from nvfp4.sandbox.caches import keep_missed
from nvfp4.sandbox.workers import start_executor

T = TypeVar("T")

_start_s = 120.0
"""Seconds for an executor to start. The first one of a user compiles for ten seconds, while others
wait for it."""


class ExecutorFailed(Exception):
    """The executor died, or did not answer in time. code: of the failure."""

    def __init__(self, message: str, code: str = "kernel.emulator_failed") -> None:
        super().__init__(message)
        self.code = code


def _import_error() -> str:
    """Return why the executor's modules cannot be loaded, such as Numba that refuses a NumPy; ""
    if they can."""
    command = [sys.executable, "-c", "import nvfp4.executor.__main__"]
    ended = subprocess.run(command, capture_output=True, text=True, env=passed_on())
    return ended.stderr.strip().rpartition("\n")[2] if ended.returncode else ""


class Executor:
    """The executor as a process, which starts when it is first asked; `stop` ends it. It serves as
    the GPU of one worker after another."""

    def __init__(self, predicts: bool = False) -> None:
        """predicts: whether it will predict times, so that it loads what that needs at its
        start."""
        self._predicts = predicts
        self._process: Process | None = None
        self._channel: Channel | None = None
        self.folder: Path | None = None
        """Where the executor leaves costs; None while there is no process."""
        self._greeted = self._anew = False
        self._requests = 0

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self) -> None:
        """Start the process; return before it is ready."""
        if self._process is not None:
            return
        self.folder = Path(tempfile.mkdtemp(prefix="nvfp4-"))
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start_executor(theirs.fileno(), self.folder, self._predicts, self._anew)
        self._channel = Channel(ours)
        self._greeted = False
        atexit.register(self.stop)

    def stop(self, anew: bool = False) -> None:
        """Kill the process and delete the files that it has written. anew: the next one has other
        addresses."""
        self._anew = anew
        if self._process is None or self._channel is None or self.folder is None:
            return
        atexit.unregister(self.stop)
        isolation.kill_tree(self._process)
        self._channel.close()
        clear(self.folder)
        self._process = self._channel = self.folder = None

    def ask(self, request: object, answer: type[T], timeout_s: float, fd: int | None = None) -> T:
        """Send a request and return the answer. Raises ExecutorFailed; an executor that has died or
        does not answer is replaced by a new process."""
        self.start()
        assert self._channel is not None
        self._requests += 1
        end = time.monotonic() + timeout_s
        try:
            if not self._greeted:
                unpack(self._channel.receive(min(_start_s, timeout_s))[0], Greeting)
                self._greeted = True
            self._channel.send({**pack(request), "id": self._requests}, fd)
            message, _ = self._channel.receive(max(0.0, end - time.monotonic()))
            if message.get("id") != self._requests:
                raise BadMessage("an answer that nobody asked for")
            found: Any = unpack(message, answer, Failed)
            if isinstance(found, Failed):
                raise ExecutorFailed(found.message, found.failure["code"])
            if isinstance(found, Ended) and found.compiled:
                keep_missed(found.compiled)
            return found
        except (ChannelClosed, ChannelTimeout, BadMessage) as error:
            why, code = f"{type(error).__name__}: {error}", "kernel.emulator_failed"
            said = _import_error() if isinstance(error, ChannelClosed) and not self._greeted else ""
            if said:
                why, code = said, "import.not_installed"
            elif isinstance(error, ChannelClosed) and self._is_killed():
                why, code = "it was killed, as it is where memory is short", "machine.limit"
            elif self._greeted and isinstance(error, ChannelTimeout):
                code = "kernel.too_slow"  # a submission has asked for more, and did not wait
            self.stop()
            raise ExecutorFailed(why, code) from None

    def _is_killed(self) -> bool:
        """Return whether SIGKILL has ended the process, which has closed its channel."""
        assert self._process and self.folder
        try:
            status = self._process.wait(timeout=5)
            if isinstance(self._process, ForkedProcess):  # by the server, its parent
                return not (self.folder / failed_name).exists()
            return status == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False
