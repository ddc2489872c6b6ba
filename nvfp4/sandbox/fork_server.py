"""A process that loads torch once and forks workers from then on, which never answer it.

python -m nvfp4.sandbox.fork_server SOCKET
"""

import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from nvfp4.sandbox import isolation
from nvfp4.sandbox.namespaces import close_all_but, open_files

_longest_request_bytes = 1 << 18


def serve(fd: int) -> None:
    """Forks a worker for each request that comes over a socket, which runs the module that the
    request names. Returns in the worker, when that has ended.

    A worker has the arguments, the folder, the environment and the files of the request, and is a
    child of the judge. It is not confined yet.
    """
    isolation.die_with_parent()
    isolation.close_to_others()
    load()
    text, fds = fork_for_requests(socket.socket(fileno=fd))
    _become_worker(json.loads(text), fds)
    runpy.run_module(sys.argv[0], run_name="__main__")


def fork_for_requests(asked: socket.socket) -> tuple[bytes, list[int]]:
    """Forks a process for each request, which has three files with it, and answers with its pid.

    Returns in each of them, with its request. It is a child of the process that had started this
    one, and leads a session. This process ends when nobody can ask any more.
    """
    parent, (tell, told) = os.getppid(), os.pipe()
    while True:
        text, fds, _, _ = socket.recv_fds(asked, _longest_request_bytes, 3)
        if not text:
            os._exit(0)
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                asked.close()
                os.setsid()
                # A signal at its death would come too early; it may have ended meanwhile.
                while os.getppid() != parent:
                    if os.getppid() == 1 != parent:
                        os._exit(1)
                    time.sleep(0.0005)
                return text, fds
            os.write(told, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        asked.send(os.read(tell, 64))  # now that it is the parent's child
        for each in fds:
            os.close(each)


def load() -> None:
    """What every worker would load for itself."""
    importlib.import_module("nvfp4.worker.choose_runner")


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
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.argv = request["arguments"]
    # Otherwise all workers would draw the same numbers.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
