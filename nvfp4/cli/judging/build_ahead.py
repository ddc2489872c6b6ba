"""CUDA C++ is built before its judgement begins: nvcc takes most of a minute and needs no GPU.

Builds run beside each other in confined processes (``judge.entry``, mode build) on the cores that a
judgement leaves idle. Each fills the compilers' cache of its own submission, as the judgement
would, which then finds all of it built. A build that fails, hangs or exceeds its limits is ended,
and the judgement reports why.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from nvfp4.cli.judging.bot import Bot, stop_running
from nvfp4.records.files import kilobytes

_GIB_EACH, _MOST_GIB = 5, 12
"""GiB that g++ and both halves of nvcc need when they run at once, and the most that a build may
take."""

_GIB_OF_A_JUDGEMENT = 6

_CORES_EACH = 2
"""Cores for a build. Its last step, the host's code, is a single process, but the first builds are
waited for."""

_CORES_OF_A_JUDGEMENT = 4

_MOST_S = 180.0
"""The time limit of a build."""

_LOOK_S = 0.2
_RISE_S = 2.0


def builds(content: bytes) -> bool:
    """Return whether a submission may have something to build."""
    return b"cpp_extension" in content


def room(gpus: int = 1) -> tuple[int, int]:
    """Return how many builds (at least one) have cores beside judgements on ``gpus`` GPUs, and the
    GiB that each may take such that the judgements keep theirs."""
    many = max(1, int((core_count() - _CORES_OF_A_JUDGEMENT * gpus) / _CORES_EACH))
    return many, min(_MOST_GIB, max(_GIB_EACH, _free_gib(gpus) // many))


def _free_gib(gpus: int) -> int:
    return (free_bytes() >> 30) - _GIB_OF_A_JUDGEMENT * gpus


class BuildAhead(AbstractContextManager["BuildAhead"]):
    """Builds submissions ahead. The context manager ends all builds at its exit."""

    def __init__(self, capabilities: Iterable[str | None], gpus: int = 1) -> None:
        """capabilities: of the GPUs that judge, such as 9.0. Without any there is nothing to do:
        the emulator's builds are the judgement's own.
        """
        self._capabilities = sorted({each for each in capabilities if each})
        many, self._gib_each = room(gpus)
        self._gpus = gpus
        self._pool = ThreadPoolExecutor(many)
        self._begun: list[Future[None]] = []
        self._starting = threading.Lock()
        self._running: set[int] = set()  # threads
        self._stopped = threading.Event()

    def begin(self, bot: Bot, started: Callable[[], None] = lambda: None) -> Future[None]:
        """Return a future that is done when the builds that the bot's submission asks for have
        ended, even if they failed; it raises CancelledError alone. started: called when the builds
        begin."""
        if self._capabilities and builds(bot.submission):
            self._begun.append(self._pool.submit(self._build, bot, started))
            return self._begun[-1]
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return nothing

    def _build(self, bot: Bot, started: Callable[[], None]) -> None:
        with self._starting:
            self._wait_for_memory()
            self._running.add(threading.get_ident())
        started()
        most_gib = min(bot.options.limit_gib or self._gib_each, self._gib_each)
        limited = replace(bot, options=replace(bot.options, limit_gib=most_gib))
        try:
            with suppress(OSError):  # such as a full disk, of which the judgement tells
                for capability in self._capabilities:
                    limited.run_build(capability, _MOST_S)
        finally:
            self._running.discard(threading.get_ident())

    def _wait_for_memory(self) -> None:
        """Wait until earlier builds have taken the memory they need and enough is left, or until
        none runs.

        Memory of a virtual machine may grow as it is taken.
        """
        if self._running:
            self._stopped.wait(_RISE_S)
        while self._running and _free_gib(self._gpus) < _GIB_EACH:
            if self._stopped.wait(_LOOK_S):
                return

    def stop(self) -> None:
        """Ends what is built, and begins nothing more."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        while not all(each.done() for each in self._begun):
            stop_running()  # one may be just about to start
            time.sleep(_LOOK_S)

    def __exit__(self, *error: object) -> None:
        self.stop()


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def free_bytes() -> int:
    """Return the free memory of the machine or the container, whichever is less; a huge number if
    unknown."""
    free = kilobytes("/proc/meminfo").get("MemAvailable", 1 << 62)
    with suppress(OSError, ValueError):  # "max"
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return free
