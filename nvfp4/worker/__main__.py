"""The process of a submission: confines itself, then answers the judge's requests.

    python -m nvfp4.worker SOCKET SUBMISSION

The current folder is the submission's.
"""

import socket
import sys
import traceback
from pathlib import Path

from nvfp4.records.channel import Channel
from nvfp4.records.messages import NOT_STARTED, Greeting, pack, serve
from nvfp4.records.options import options_of_environment
from nvfp4.sandbox.confinement import confine
from nvfp4.worker.imports import import_packages_only


def main() -> None:
    """Serve the judge until it is gone."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), takes_fds=True)
    submission, options = Path(sys.argv[2]), options_of_environment()
    channel.send(pack(Greeting(confine())))
    # Only now: torch starts threads, and a thread keeps the rights it was started with.
    from nvfp4.worker.choose_runner import make_runner

    try:
        runner = make_runner(submission, options)
    except Exception:  # a GPU without memory, say
        traceback.print_exc(limit=0)
        sys.exit(NOT_STARTED)
    import_packages_only()
    serve(channel, runner.answer, *runner.operations)


if __name__ == "__main__":
    main()
