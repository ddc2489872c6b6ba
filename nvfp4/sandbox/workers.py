"""Start of submissions' processes and of executors: without a GPU, by servers that have loaded
what takes long.

A server holds no data of the judge, neither seeds nor results.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nvfp4.records.options import Options
from nvfp4.records.processes import ForkedProcess, ForkServer, Process, passed_on, start_session
from nvfp4.records.ranges import fixed_loader
from nvfp4.sandbox import caches, isolation
from nvfp4.sandbox.namespaces import uses_gpu

_python = [sys.executable, *["-P"] * (sys.version_info >= (3, 11))]
"""Python that imports no modules of its folder, which may be a problem's, before it is confined."""

_servers: list[ForkServer] = []
"""The running server of workers, if any; it has not touched a GPU."""

_executors: list[ForkServer] = []
"""The running server of executors, if any."""


def start_worker(
    module: str, submission: Path, fd: int, options: Options, folder: Path, anew: bool = False
) -> Process:
    """Start ``python -m MODULE SOCKET SUBMISSION`` in its own folder.

    fd: the socket. anew: with the submission's cache as it was before this judgement.
    """
    environment = caches.variables(submission, folder, options, emulates=not uses_gpu())
    if anew:
        environment |= caches.earlier_cache(environment, folder)
    arguments = [module, str(fd), str(submission)]
    if _servers or not uses_gpu():
        out, out_of_worker = os.pipe()
        err, err_of_worker = os.pipe()
        try:
            if not _servers:
                # It is not confined, and a submission may have left links in its own cache.
                trusted = {**environment, **caches.trusted_variables()}
                use(_started(["nvfp4.sandbox.fork_server", "workers"], trusted))
            process = _forked(arguments, folder, (fd, out_of_worker, err_of_worker), environment)
        except OSError:  # it was killed: the next one gets another
            _servers.clear()
            os.close(out)
            os.close(err)
        else:
            process.stdout, process.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")
            return process
        finally:
            os.close(out_of_worker)
            os.close(err_of_worker)
    command = [*_python, "-m", *arguments]
    return start_session(command, folder, environment, [fd], subprocess.PIPE, subprocess.PIPE)


def start_alone(script: Path, options: Options, builds_for: str = "") -> Process:
    """Start a script on its own in this folder, with this process's output. builds_for: if given,
    only build its extensions, for a GPU of this compute capability.
    """
    module = "nvfp4.worker.building" if builds_for else "nvfp4.worker.alone"
    words = [str(script), *([builds_for] if builds_for else [])]
    emulates = not (builds_for or uses_gpu())
    environment = caches.variables(script, script.parent, options, emulates=emulates)
    if _servers:
        with open(os.devnull) as no_channel, contextlib.suppress(OSError):
            arguments = [module, str(no_channel.fileno()), *words]
            return _forked(arguments, Path.cwd(), (no_channel.fileno(), 1, 2), environment)
    return subprocess.Popen([*_python, "-m", module, *words], env=environment)


def use(connection: socket.socket, executors: socket.socket | None = None) -> None:
    """Fork workers and executors from the servers behind these sockets from now on."""
    isolation.adopt_orphans()  # workers are this process's children in the end
    _servers.append(ForkServer(connection))
    if executors is not None:
        _executors.append(ForkServer(executors))


def start_server_of_executors() -> socket.socket:
    """Return the socket of a new server of executors."""
    environment = {**passed_on(), **caches.trusted_variables()}
    return _started(["nvfp4.executor", "server"], environment, fixed_loader())


def start_executor(fd: int, folder: Path, predicts: bool, anew: bool) -> Process:
    """Start an executor in its own folder.

    fd: its socket. predicts: whether it will predict times. anew: with other addresses than those
    that the server forks, which are all alike.
    """
    environment = {**passed_on(), "TMPDIR": str(folder), **caches.private_variable()}
    if not anew:
        request = {
            "judge": os.getpid(),
            "folder": str(folder),
            "environment": environment,
            "predicts": predicts,
        }
        with contextlib.suppress(OSError):
            if not _executors:
                _executors.append(ForkServer(start_server_of_executors()))
            return _executors[0].fork(json.dumps(request).encode(), [fd])
    command = [*fixed_loader(), *_python, "-m", "nvfp4.executor", str(fd)]
    return start_session(command, folder, environment | caches.trusted_variables(), [fd])


def _forked(
    arguments: list[str], folder: Path, fds: tuple[int, int, int], environment: dict[str, str]
) -> ForkedProcess:
    """Return a process with its three files: channel, output, errors. Raises OSError."""
    request = {"arguments": arguments, "folder": str(folder), "environment": environment}
    return _servers[0].fork(json.dumps(request).encode(), fds)


def _started(
    words: list[str], environment: dict[str, str], loader: Sequence[str] = ()
) -> socket.socket:
    """Return the socket of a new server, given its module and arguments, in an environment without
    secrets. loader: what starts Python."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        fd = theirs.fileno()
        start_session([*loader, sys.executable, "-m", *words, str(fd)], "/", environment, [fd])
    return ours
