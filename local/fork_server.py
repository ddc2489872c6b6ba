"""A process that loads torch once and forks workers from then on, which never answer it."""

import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from typing import Any

import isolation

_longest_request_bytes = 1 << 18


def serve(fd: int) -> None:
    """Forks a worker for each request that comes over a socket.

    Returns in the worker, which has ``sys.argv``, the folder, the environment and the files of the
    request, and is a child of the judge. It is not confined yet.
    """
    isolation.die_with_parent()
    isolation.close_to_others()
    load()
    judge = os.getppid()
    tell, told = os.pipe()
    server = socket.socket(fileno=fd)
    while True:
        text, fds, _, _ = socket.recv_fds(server, _longest_request_bytes, 3)
        if not text:
            os._exit(0)
        between = os.fork()
        if between == 0:
            worker = os.fork()
            if worker == 0:
                server.detach()
                _become_worker(json.loads(text), fds, judge)
                return
            os.write(told, str(worker).encode())
            os._exit(0)
        os.waitpid(between, 0)
        server.send(os.read(tell, 64))  # now that it is the judge's child
        for each in fds:
            os.close(each)


def load() -> None:
    """What every worker would load for itself."""
    import nvfp4.emulation
    import nvfp4.local.installed_runner  # noqa: F401


def _become_worker(request: dict[str, Any], fds: list[int], judge: int) -> None:
    os.setsid()
    while os.getppid() != judge:  # a signal at its parent's death would come too early
        time.sleep(0.0005)
    isolation.close_to_others(False)  # or it could not make namespaces
    channel, out, err = fds
    for number, source in ((1, out), (2, err)):
        os.dup2(source, number)
    # The judge names the socket by its own number.
    wanted = int(request["arguments"][1])
    kept = os.dup(channel)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    if kept != wanted:
        os.dup2(kept, wanted)
        os.close(kept)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.argv = request["arguments"]
    # Otherwise all workers would draw the same numbers.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = os.environ.get("NUMBA_CACHE_DIR", "")
