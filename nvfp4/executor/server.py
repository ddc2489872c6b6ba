"""A process that loads machine code once and forks an executor for each judge that asks.

It never sees a submission's code, nor what an executor is asked to run. It starts beside the server
of judges, which loads torch meanwhile; see `sandbox/fork_server.py`.
"""

import json
import os
import select
import signal
from pathlib import Path

from nvfp4.executor import machine_code
from nvfp4.records.messages import failed_name
from nvfp4.records.processes import fork_for_requests
from nvfp4.sandbox import isolation
from nvfp4.sandbox.namespaces import close_all_but, open_files


def fork_for_judges(fd: int, folder: Path) -> int:
    """Serve requests for executors on the socket `fd`, and return only in each forked executor,
    with the descriptor of its own socket.

    folder: the folder of the machine code. When no judge is left, the server saves the machine code
    that executors were missing, and exits.
    """
    isolation.close_to_others()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # an executor that has ended is forgotten

    def prepare(text: bytes) -> None:
        machine_code.compile_missed(folder)
        if text and json.loads(text)["predicts"]:
            machine_code.load_simulation(folder)

    text, (channel,) = fork_for_requests(fd, adopted=False, before=prepare)
    request = json.loads(text)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    close_all_but([0, 1, 2, channel], open_files())
    isolation.move_to(Path(request["folder"]), request["environment"])
    _end_with(request["judge"])
    return channel


def _end_with(judge: int) -> None:
    """Continue in a child, which ends when this process or the judge does. If the child ends
    otherwise than by SIGKILL, its folder gets a file `failed_name`, as the judge, which is not the
    parent, does not hear of its status."""
    isolation.die_with_parent()
    try:
        judge_ended = os.pidfd_open(judge)
    except OSError:  # Linux before 5.3: it ends when it is idle
        return
    child = os.fork()
    if child:
        if judge_ended not in select.select([judge_ended, os.pidfd_open(child)], [], [])[0]:
            status = os.waitpid(child, 0)[1]
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                Path(failed_name).touch()
        os._exit(0)
    isolation.die_with_parent()
    os.close(judge_ended)
