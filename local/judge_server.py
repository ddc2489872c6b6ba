"""A process that loads torch once and forks judges, which take less than a second to begin then.

    python -m nvfp4.local.judge_server HARNESS SOCKET

The command starts it, and asks over the socket. It never reads what a judge is asked to do, nor
does the fork server for workers that each judge begins with: no worker comes from a process that
has known a seed.
"""

import atexit
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
from pathlib import Path

_longest_request_bytes = 1 << 20


def main() -> None:
    """Returns never, but in a judge or a worker, when that ends."""
    from nvfp4.local.caches import trusted_variables
    from nvfp4.local.variables import passed_on

    wanted = {**passed_on(), **trusted_variables()}
    if os.environ != wanted:  # what it begins with, a worker can read
        command = [sys.executable, "-m", "nvfp4.local.judge_server", *sys.argv[1:]]
        os.execve(sys.executable, command, wanted)
    harness, number = sys.argv[1:]
    paths = [path for path in sys.path if path not in ("", os.getcwd())]
    sys.path[:] = [harness]
    import_guard = __import__("import_guard")
    sys.path[:] = paths
    import_guard.keep_to_modules()
    sys.path[:] = paths
    isolation = __import__("isolation")
    isolation.close_to_others()
    from nvfp4.local import fork_server

    fork_server.load()
    _, fds = fork_server.fork_for_requests(socket.socket(fileno=int(number)))
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
    from nvfp4.local import workers

    workers.use(ours)
    with socket.socket(fileno=channel) as connection:
        text, fds, _, _ = socket.recv_fds(connection, _longest_request_bytes, 1)
    request = json.loads(text)
    os.environ.clear()
    os.environ.update(request["environment"])
    for fd in fds:
        os.environ["POPCORN_FD"] = str(fd)
    tempfile.tempdir = None
    _share_cores()
    os.chdir(request["folder"])
    # Its modules are loaded; what it starts and copies comes from the staged folder.
    import_guard = sys.modules["import_guard"]
    vars(import_guard).update(_folder=request["folder"], _problem=request["folder"])
    try:
        _run(request["arguments"], request["folder"])
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _end_at_once(ended.code)
        raise


def _run(arguments: list[str], folder: str) -> None:
    if arguments[0] == "-m":
        sys.path.insert(0, folder)
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(str(Path(arguments[0]).resolve()), run_name="__main__")


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
    from import_guard import path_of
    from nvfp4.local.fork_server import serve

    serve(fd)
    if sys.argv[0] == "nvfp4.local.run_alone":
        runpy.run_module(sys.argv[0], run_name="__main__")
    else:
        runpy.run_path(path_of("worker"), run_name="__main__")


def _only(fd: int) -> None:
    """Closes all other files but the standard ones."""
    os.closerange(3, fd)
    os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))


if __name__ == "__main__":
    main()
