"""A process that loads machine code once and forks an executor for each judge that asks.

It never sees a submission's code, nor what an executor is asked to run. It starts beside the server
of judges, which loads torch meanwhile; see `sandbox/fork_server.py`.
"""

import json
import os
import select
import signal
import socket
from pathlib import Path
from typing import Any

from nvfp4.executor import machine_code
from nvfp4.records.processes import REQUEST_BYTES
from nvfp4.sandbox import isolation
from nvfp4.sandbox.namespaces import close_all_but, open_files


def fork_for_judges(fd: int, folder: Path) -> int:
    """Return in an executor that a judge has asked for over this socket, with the number of the
    executor's own socket. folder: of the machine code. When no judge is left, the server
    keeps the machine code that executors were missing, and ends."""
    isolation.close_to_others()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # an executor that has ended is forgotten
    with socket.socket(fileno=fd) as asked:
        request, (channel, tell) = _fork_for_requests(asked, folder)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.write(tell, str(os.getpid()).encode())
    close_all_but([0, 1, 2, channel], open_files())
    _end_with(request["judge"])
    isolation.move_to(Path(request["folder"]), request["environment"])
    return channel


def _fork_for_requests(asked: socket.socket, folder: Path) -> tuple[dict[str, Any], list[int]]:
    """Return in a process for each request, with the files that came with it. When no one can ask
    any more, end, after what a later server would wait for was compiled."""
    while True:
        text, fds, _, _ = socket.recv_fds(asked, REQUEST_BYTES, 2)
        machine_code.compile_missed(folder)
        if not text:
            os._exit(0)
        request = json.loads(text)
        if request["predicts"]:
            machine_code.load_simulation(folder)
        if os.fork() == 0:
            return request, fds
        for each in fds:
            os.close(each)


def _end_with(judge: int) -> None:
    """Go on in a child, which ends when this process or the judge does."""
    isolation.die_with_parent()
    try:
        judge_ended = os.pidfd_open(judge)
    except OSError:  # Linux before 5.3: it ends when it is idle
        return
    child = os.fork()
    if child:
        select.select([judge_ended, os.pidfd_open(child)], [], [])
        os._exit(0)
    isolation.die_with_parent()
    os.close(judge_ended)
