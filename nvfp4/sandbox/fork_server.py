"""Processes that load torch once and fork others, which then start in less than a second.

    python -m nvfp4.sandbox.fork_server judges|workers SOCKET [PACKAGE ...]

PACKAGE: what the submission imports, loaded once, too.

The command starts a server of judges and asks over the socket. That never reads what a judge is
asked to do, nor does the server of workers that each judge begins with: no worker comes from a
process that has known a seed.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvfp4.records import processes
from nvfp4.sandbox import isolation, workers
from nvfp4.sandbox.caches import cache_root, trusted_variables
from nvfp4.sandbox.namespaces import close_all_but, open_files, uses_gpu

_FOR_TORCH = {"THP_MEM_ALLOC_ENABLE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Lets torch use huge pages for allocations of megabytes: a case's inputs are large, and 512 page
faults become one. Its threads wait without a core, which another process of the judgement needs."""


def serve_judges(fd: int, packages: list[str]) -> None:
    """Fork judges; return only in a judge or a worker, when that has ended."""
    wanted = {**_FOR_TORCH, **processes.passed_on(with_caches=True), **trusted_variables()}
    if not os.environ.keys() <= wanted.keys():  # a worker can read the initial environment
        command = [sys.executable, "-m", "nvfp4.sandbox.fork_server", *sys.argv[1:]]
        os.execve(sys.executable, command, wanted)
    os.environ.update(wanted)
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    isolation.close_to_others()
    executors = None if uses_gpu() else workers.start_server_of_executors()
    _load(packages)
    _, (channel, out, err) = processes.fork_for_requests(fd)
    _become_judge(channel, out, err, executors)


def serve_workers(fd: int) -> None:
    """Fork a worker for each request, which names the module to run; return only in the worker,
    when that has ended.

    A worker has the arguments, folder, environment and files of the request, and is a child of the
    judge. It is not confined yet.
    """
    isolation.die_with_parent()
    isolation.close_to_others()
    _load()
    text, fds = processes.fork_for_requests(fd)
    _become_worker(json.loads(text), fds)
    runpy.run_module(sys.argv[0], run_name="__main__")


def _load(packages: Sequence[str] = ()) -> None:
    """Import the modules that every worker would load, without garbage collections, which take a
    fifth of the time.

    Where torch's installation has no bytecode and takes none, our cache keeps that, since compiling
    takes seconds.
    """
    gc.disable()
    before = sys.pycache_prefix
    torch = next(filter(Path.is_dir, (Path(each, "torch") for each in sys.path)), Path(os.curdir))
    if before is None and not (torch / "__pycache__").exists() and not os.access(torch, os.W_OK):
        sys.pycache_prefix = str(cache_root() / "bytecode")
    importlib.import_module("nvfp4.worker.choose_runner")
    for package in packages:
        with contextlib.suppress(Exception):  # which the submission will meet, too
            importlib.import_module(package)
    sys.pycache_prefix = before


def _become_judge(channel: int, out: int, err: int, executors: socket.socket | None) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    kept = [executors.fileno()] if executors else []
    close_all_but([0, 1, 2, channel, *kept], open_files())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        _become_server_of_workers(theirs.detach())
        return
    atexit._clear()  # unloading torch takes half a second
    theirs.close()
    workers.use(ours, executors)
    with socket.socket(fileno=channel) as connection:
        text, fds, _, _ = socket.recv_fds(connection, processes.REQUEST_BYTES, processes.MOST_FILES)
    request = json.loads(text)
    files = dict(zip(request["files"], map(str, fds), strict=True))
    isolation.move_to(Path(request["folder"]), {**request["environment"], **files})
    import torch

    # Another judge runs at the same time, and both have processes that emulate. A thread of torch
    # that waits for a core spins.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    sys.argv = ["nvfp4.judge", *request["arguments"]]
    code: object = 1
    try:
        runpy.run_module("nvfp4.judge", run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def _become_server_of_workers(fd: int) -> None:
    close_all_but([0, 1, 2, fd], open_files())
    os.setsid()
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    serve_workers(fd)


def _become_worker(request: dict[str, Any], fds: list[int]) -> None:
    isolation.close_to_others(False)  # or it could not make namespaces
    channel, out, err = fds
    for number, source in ((1, out), (2, err)):
        os.dup2(source, number)
    # The judge names the socket by its own number.
    wanted = int(request["arguments"][1])
    kept = os.dup(channel)
    close_all_but([0, 1, 2, kept], open_files())  # a range may end at a billion
    if kept != wanted:
        os.dup2(kept, wanted)
        os.close(kept)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    isolation.move_to(Path(request["folder"]), request["environment"])
    sys.argv = request["arguments"]
    # Otherwise all workers would draw the same numbers.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


if __name__ == "__main__":
    if sys.argv[1] == "judges":
        serve_judges(int(sys.argv[2]), sys.argv[3:])
    else:
        serve_workers(int(sys.argv[2]))
