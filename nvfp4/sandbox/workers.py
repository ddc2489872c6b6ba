"""Starts the processes of submissions: without a GPU, by a fork server that has loaded torch.

The server knows nothing of the judge: neither seeds nor results.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

from nvfp4.records.options import Options
from nvfp4.records.processes import ForkedProcess
from nvfp4.sandbox import isolation
from nvfp4.sandbox.caches import trusted_variables, variables
from nvfp4.sandbox.namespaces import uses_gpu


def start_worker(
    module: str, submission: Path, fd: int, options: Options, folder: Path
) -> "Process":
    """``python -m MODULE SOCKET SUBMISSION`` in a folder of its own. fd: the socket."""
    environment = variables(submission, folder, options, emulates=not uses_gpu())
    arguments = [module, str(fd), str(submission)]
    if sys.platform == "linux" and (_ForkServer.is_prepared() or not uses_gpu()):
        server = _ForkServer.of(environment)
        try:
            return server.start(arguments, folder, fd, environment)
        except OSError:
            server.forget()  # it was killed: the next one gets another
    return isolation.start_worker([sys.executable, "-m", *arguments], folder, fd, environment)


def start_alone(script: Path, options: Options, builds_for: str = "") -> "Process":
    """A script by itself in this folder, with this process's output. builds_for: the compute
    capability of a GPU for which its extensions are to be built, if that is all.
    """
    module = "nvfp4.worker.building" if builds_for else "nvfp4.worker.alone"
    words = [str(script), *([builds_for] if builds_for else [])]
    environment = variables(script, script.parent, options, emulates=not (builds_for or uses_gpu()))
    if _ForkServer.prepared:
        with open(os.devnull) as no_channel, contextlib.suppress(OSError):
            arguments = [module, str(no_channel.fileno()), *words]
            server = _ForkServer.of(environment)
            return server.fork(arguments, Path.cwd(), (no_channel.fileno(), 1, 2), environment)
    return subprocess.Popen([sys.executable, "-m", module, *words], env=environment)


class _ForkServer:
    """The judge's side of ``fork_server.serve``."""

    _running: ClassVar[list["_ForkServer"]] = []
    prepared: ClassVar[list[socket.socket]] = []
    """The socket of one that runs already, forked before this process knew a secret."""

    @classmethod
    def is_prepared(cls) -> bool:
        """Whether there is one that has not touched a GPU."""
        return bool(cls.prepared or cls._running)

    @classmethod
    def of(cls, environment: dict[str, str]) -> "_ForkServer":
        """The one that runs, or a new one in an environment without secrets."""
        if not cls._running:
            cls._running.append(cls(cls.prepared.pop() if cls.prepared else _started(environment)))
        return cls._running[0]

    def __init__(self, connection: socket.socket) -> None:
        isolation.adopt_orphans()  # workers are this process's children in the end
        self._waiting: list[ForkedWorker] = []
        self._taking = threading.Lock()
        self._socket = connection

    def forget(self) -> None:
        if self in self._running:
            self._running.remove(self)

    def start(
        self, arguments: list[str], folder: Path, fd: int, environment: dict[str, str]
    ) -> "ForkedWorker":
        """Returns before the server has answered. Raises OSError."""
        out, out_of_worker = os.pipe()
        err, err_of_worker = os.pipe()
        try:
            fds = fd, out_of_worker, err_of_worker
            process = self.fork(arguments, folder, fds, environment)
        except OSError:
            os.close(out)
            os.close(err)
            raise
        finally:
            os.close(out_of_worker)
            os.close(err_of_worker)
        process.stdout, process.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")
        return process

    def fork(
        self,
        arguments: list[str],
        folder: Path,
        fds: tuple[int, int, int],
        environment: dict[str, str],
    ) -> "ForkedWorker":
        """The same with its three files: channel, output, errors. Raises OSError."""
        request = {"arguments": arguments, "folder": str(folder), "environment": environment}
        process = ForkedWorker(self)
        with self._taking:  # answers come in the order of the requests
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            self._waiting.append(process)
        return process

    def take_answers(self, process: "ForkedWorker") -> None:
        """Waits until a process has its number, -1 where it never started."""
        with self._taking:
            while process in self._waiting:
                said = b""
                with contextlib.suppress(ConnectionError):  # it ended before it read the request
                    said = self._socket.recv(64)
                started = self._waiting[:1] if said else self._waiting[:]
                del self._waiting[: len(started)]
                for each in started:
                    each.number = int(said) if said else -1
                if not said:
                    self.forget()


def _started(environment: dict[str, str]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "nvfp4.sandbox.fork_server", str(theirs.fileno())]
        fd, silent = theirs.fileno(), subprocess.DEVNULL
        # It is not confined, and a submission may have left links in its own cache.
        environment = {**environment, **trusted_variables()}
        isolation.start_worker(command, Path("/"), fd, environment, silent)
    return ours


def use(connection: socket.socket) -> None:
    """Workers come from the fork server behind this socket from now on."""
    _ForkServer.prepared.append(connection)


class ForkedWorker(ForkedProcess):
    """A worker whose number comes later. number: -1 where it never started."""

    def __init__(self, server: _ForkServer) -> None:
        super().__init__()
        self.number: int | None = None
        self._server = server

    @property
    def pid(self) -> int:
        """Waits until it has started. Raises ProcessLookupError if it has not."""
        if self.number is None:
            self._server.take_answers(self)
        if self.number in (None, -1):
            raise ProcessLookupError
        return self.number or -1


Process = subprocess.Popen[bytes] | ForkedProcess
