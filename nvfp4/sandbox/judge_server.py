"""A process that loads torch once and forks judges, which take less than a second to begin then.

    python -m nvfp4.sandbox.judge_server SOCKET [PACKAGE ...]

PACKAGE: what the submission imports, loaded once, too.

The command starts it, and asks over the socket. It never reads what a judge is asked to do, nor
does the fork server for workers that each judge begins with: no worker comes from a process that
has known a seed.
"""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile

from nvfp4.sandbox import fork_server, isolation, workers
from nvfp4.sandbox.caches import passed_on, trusted_variables

_longest_request_bytes = 1 << 20
_MOST_FILES = 2


def main() -> None:
    """Returns never, but in a judge or a worker, when that ends."""
    wanted = {**passed_on(), **trusted_variables()}
    if os.environ != wanted:  # what it begins with, a worker can read
        command = [sys.executable, "-m", "nvfp4.sandbox.judge_server", *sys.argv[1:]]
        os.execve(sys.executable, command, wanted)
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    isolation.close_to_others()
    fork_server.load()
    for package in sys.argv[2:]:
        with contextlib.suppress(Exception):  # which the submission will meet, too
            importlib.import_module(package)
    _, fds = fork_server.fork_for_requests(socket.socket(fileno=int(sys.argv[1])))
    _become_judge(*fds)


def _become_judge(channel: int, out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    _only(channel)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        _serve_workers(theirs.detach())
        return
    theirs.close()
    workers.use(ours)
    with socket.socket(fileno=channel) as connection:
        text, fds, _, _ = socket.recv_fds(connection, _longest_request_bytes, _MOST_FILES)
    request = json.loads(text)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ.update(zip(request["files"], map(str, fds), strict=True))
    tempfile.tempdir = None
    _share_cores()
    os.chdir(request["folder"])
    sys.argv = ["nvfp4.judge", *request["arguments"]]
    try:
        runpy.run_module("nvfp4.judge", run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _end_at_once(ended.code)
        raise


def _end_at_once(code: int) -> None:
    """Without taking apart what torch has loaded, which takes half a second."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _share_cores() -> None:
    """Half of them: there is another judge beside this one, and both have processes that emulate.
    A thread of torch that waits for a core spins."""
    import torch

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))


def _serve_workers(fd: int) -> None:
    """A fork server; returns in each worker, or submission by itself, when that has ended."""
    _only(fd)
    os.setsid()
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    fork_server.serve(fd)


def _only(fd: int) -> None:
    """Closes all other files but the standard ones."""
    os.closerange(3, fd)
    os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))


if __name__ == "__main__":
    main()
