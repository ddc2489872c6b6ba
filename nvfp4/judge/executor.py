"""The judge's side of `execution`: a process that runs recorded launches on the true inputs."""

from __future__ import annotations

import atexit
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeVar

from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout
from nvfp4.records.messages import Greeting, pack, unpack
from nvfp4.sandbox import isolation
from nvfp4.sandbox.caches import cache_root, passed_on, private_variable, remove

T = TypeVar("T")

_start_s = 60.0


class ExecutorFailed(Exception):
    """It died, or did not answer in time."""


class Executor:
    """A process that starts when it is first asked; `stop` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._scratch: Path | None = None
        self._greeted = False
        self._requests = 0

    @property
    def listings(self) -> Path | None:
        """The folder of the listings that it has written."""
        return self._scratch / "kept" if self._scratch else None

    def start(self) -> None:
        """Returns before it is ready."""
        if self._process is not None:
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="nvfp4-"))
        ours, theirs = socket.socketpair()
        environment = passed_on()
        environment["TMPDIR"] = str(self._scratch)
        environment |= _caches(self._scratch) | private_variable()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nvfp4.executor", str(theirs.fileno())],
                cwd=self._scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._channel = Channel(ours)
        self._greeted = False
        atexit.register(self.stop)

    def stop(self) -> None:
        """Kills it and removes what it has written."""
        if self._process is None or self._channel is None or self._scratch is None:
            return
        atexit.unregister(self.stop)
        isolation.kill_tree(self._process)
        self._channel.close()
        remove(self._scratch)
        self._process = self._channel = self._scratch = None

    def ask(self, request: object, answer: type[T], timeout_s: float, fd: int) -> T:
        """Raises ExecutorFailed, after which another process starts with nothing."""
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
            return unpack(message, answer)
        except (ChannelClosed, ChannelTimeout, BadMessage) as error:
            self.stop()
            raise ExecutorFailed(f"{type(error).__name__}: {error}") from None


def _caches(scratch: Path) -> dict[str, str]:
    """Where it keeps compiled code of its own: never where a submission can write."""
    folder = cache_root() / "executor"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = scratch
    return {"XDG_CACHE_HOME": str(folder), "NUMBA_CACHE_DIR": str(folder / "numba")}
