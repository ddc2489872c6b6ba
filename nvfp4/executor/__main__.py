"""The emulated GPU: a process of the judge that runs every launch where there is no GPU. It never
sees a submission's code.

    python -m nvfp4.executor [server] SOCKET

server: fork such a process for each judge that asks.
The judge's side is `judge/executor.py`, the worker's `capture/emulated_gpu.py`.
"""

import contextlib
import ctypes
import gc
import mmap
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

from nvfp4.executor import machine_code
from nvfp4.executor.gpu import Gpu
from nvfp4.executor.mapped_memory import MappedMemory, NotMappable
from nvfp4.executor.server import fork_for_judges
from nvfp4.records import messages
from nvfp4.records.channel import BadMessage, Channel, ChannelClosed
from nvfp4.records.files import overwrite, sealed_file
from nvfp4.records.gpu_messages import Fault, Start, Window, window_bytes
from nvfp4.records.ranges import taken_ranges
from nvfp4.records.refusals import code_of_others
from nvfp4.sandbox import isolation
from nvfp4.sandbox.confinement import confine

_margin_bytes = 4 << 30
"""Distance between this process's memory and a worker's, both of which grow."""

_reading_s = 5.0
"""Time for a worker to read an answer before the judge gives up on it."""

_told_every_s = 1.0
"""Least time between two reports of a launch's share."""


_kept_bytes = 256 << 20
"""Freed memory that the process keeps. Launches take and free the same again and again, and the
system clears what it gives."""


class Executor:
    """Serves the judge, and the worker whose session it has opened."""

    def __init__(self, judge: Channel) -> None:
        self._judge = judge
        self._worker: Channel | None = None
        self._memory = MappedMemory()
        self._gpu: Gpu | None = None

    def serve(self) -> None:
        """Serve requests until the judge is gone."""
        while True:
            ready = self._ready()
            if self._judge in ready:
                self._serve_judge()
            elif self._worker is not None and self._worker in ready:
                self._serve_worker(self._worker)

    def _ready(self) -> list[Channel]:
        channels = [each for each in (self._judge, self._worker) if each is not None]
        waiting = [each for each in channels if each.has_pending()]
        # The judge comes first.
        return select.select(channels, [], [], 0 if waiting else None)[0] + waiting

    def _serve_judge(self) -> None:
        """Answer a request of the judge. Raises ChannelClosed."""
        message, fd = self._judge.receive()
        request: Any = messages.unpack(message, messages.OpenSession, messages.Begin, messages.End)
        answer: object = messages.Done()
        try:
            if isinstance(request, messages.OpenSession):
                assert fd is not None
                answer = self._open(request, fd)
            elif isinstance(request, messages.Begin):
                assert self._gpu is not None and fd is not None
                self._gpu.begin(request, fd)
            else:
                assert self._gpu is not None
                answer = self._gpu.end(request)
        except (NotMappable, OSError) as error:
            code = code_of_others(error, emulated=True) or "kernel.emulator_failed"
            answer = messages.Failed(f"memory cannot be mapped: {error}", {"code": code})
        self._judge.send({**messages.pack(answer), "id": message["id"]})

    def _open(self, request: messages.OpenSession, fd: int) -> messages.Opened:
        self._close()
        connection = socket.socket(fileno=fd)
        connection.settimeout(_reading_s)
        worker = Channel(connection, takes_fds=True)
        own = taken_ranges()
        if any(
            start < end_of_own + _margin_bytes and start_of_own < end + _margin_bytes
            for start, end in request.taken
            for start_of_own, end_of_own in own
        ):
            worker.close()
            return messages.Opened(False)
        window = sealed_file(window_bytes)
        bytes_there = mmap.mmap(window.fileno(), window_bytes)
        self._gpu = Gpu(request, self._memory, bytes_there, _tell_share)
        self._worker = worker
        with window:
            worker.send(messages.pack(Window()), window.fileno())
        return messages.Opened(True)

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = self._gpu = None
        self._memory.drop()

    def _serve_worker(self, worker: Channel) -> None:
        assert self._gpu is not None
        try:
            if not worker.take():
                return
            try:
                message, fd = worker.receive()
                request: Any = messages.unpack(message, *self._gpu.kinds)
                if isinstance(request, Start):
                    _tell("emulating")
                answer: object = self._gpu.answer(request, fd)
                _tell("running")
            except BadMessage as error:
                answer = Fault(str(error), {"code": "process.protocol"})
            worker.send(messages.pack(answer))
        except ChannelClosed:
            worker.close()
            self._worker = None


def serve(fd: int) -> None:
    """Serve the judge behind this socket, confined, until it is gone."""
    machine_code.keep_no_more()
    judge = Channel(socket.socket(fileno=fd), takes_fds=True)
    judge.send(messages.pack(messages.Greeting(confine(closed=True))))
    with contextlib.suppress(ChannelClosed):
        Executor(judge).serve()


def main() -> None:
    """Load machine code, then serve one judge or fork an executor for each judge that asks."""
    *words, fd = sys.argv[1:]
    if not words:
        isolation.die_with_parent()
    folder = Path(os.environ.pop("NUMBA_CACHE_DIR", os.devnull))
    set_option = ctypes.CDLL(None).mallopt
    set_option(-3, 32 << 20)  # M_MMAP_THRESHOLD
    set_option(-1, _kept_bytes)  # M_TRIM_THRESHOLD
    gc.disable()  # Numba makes objects by the million: searches take a seventh of the time
    machine_code.load(folder)
    channel = fork_for_judges(int(fd), folder) if words else int(fd)
    gc.enable()
    serve(channel)


_told, _told_s = "", 0.0


def _tell(word: str) -> None:
    """Write the activity to a file, for nvfp4/cli/judging/bot.py."""
    global _told, _told_s
    if word != _told:
        overwrite(Path("activity"), word)
        _told, _told_s = word, time.monotonic()


def _tell_share(share: float) -> None:
    """Write the share of a launch that has run, if the launch takes long."""
    if time.monotonic() - _told_s > _told_every_s:
        _tell(f"emulating {share:.0%}")


if __name__ == "__main__":
    main()
