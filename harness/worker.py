"""The process of a submission: confines itself, then answers the judge's requests.

worker.py SOCKET SUBMISSION FLUSH
"""

import import_guard

if __name__ == "__main__":
    import_guard.keep_to_modules()

import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import isolation
from channel import Channel, ChannelClosed
from messages import Greeting, pack, unpack


def main() -> None:
    if len(sys.argv) == 2:
        from nvfp4.local.fork_server import serve

        serve(int(sys.argv[1]))  # returns in each worker
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), takes_fds=True)
    submission = Path(sys.argv[2])
    installed = find_spec("nvfp4") is not None
    if installed:
        from nvfp4.local.confinement import confine
    else:
        confine = isolation.confine
    channel.send(pack(Greeting(confine())))
    # Only now: torch starts threads, and a thread keeps the rights it was started with.
    if installed:
        from nvfp4.local.installed_runner import installed_runner

        runner = installed_runner(submission, sys.argv[3])
    else:
        from runner import Runner

        runner = Runner(submission)
    while True:
        try:
            request, fd = channel.receive()
        except ChannelClosed:
            return
        answer = runner.answer(unpack(request, *runner.operations), fd)
        channel.send({**pack(answer), "id": request["id"]})


if __name__ == "__main__":
    main()
