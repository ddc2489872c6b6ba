"""CUDA C++ is built before its judgement begins: nvcc takes most of a minute and needs no GPU.

Builds run beside each other in confined processes (``judge.entry``, mode build) on the cores that a
judgement leaves idle. Each fills the compilers' cache of its own submission, as the judgement
would, which then finds all of it built. A build that fails, hangs or takes too much ends, and the
judgement tells why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from nvfp4.cli.judging.bot import Bot, stop_running
from nvfp4.cli.room import core_count, free_bytes

_GIB_EACH, _MOST_GIB = 3, 6
"""Of memory: what g++ and nvcc with torch's headers take beside each other, and may take."""

_GIB_OF_A_JUDGEMENT = 8

_CORES_EACH = 2
_CORES_OF_A_JUDGEMENT = 4

_MOST_S = 120.0
"""Of a build."""


def builds(content: bytes) -> bool:
    """Whether a submission may have something to build."""
    return b"cpp_extension" in content


def room(gpus: int = 1) -> int:
    """How many builds there are cores and memory for beside judgements on so many GPUs; one at
    least."""
    cores = core_count() - _CORES_OF_A_JUDGEMENT * gpus
    gib = (free_bytes() >> 30) - _GIB_OF_A_JUDGEMENT * gpus
    return max(1, min(cores // _CORES_EACH, gib // _GIB_EACH))


class BuildAhead:
    """A context manager, after which nothing is built any more."""

    def __init__(self, capabilities: Iterable[str | None], gpus: int = 1) -> None:
        """capabilities: of the GPUs that judge, such as 9.0. Without any there is nothing to do:
        the emulator's builds are the judgement's own.
        """
        self._capabilities = sorted({each for each in capabilities if each})
        self._pool = ThreadPoolExecutor(room(gpus))

    def begin(self, bot: Bot, started: Callable[[], None] = lambda: None) -> Future[None]:
        """Done when what the bot's submission asks for is built, or cannot be; it never raises
        but CancelledError. started: called when it is its turn.
        """
        if self._capabilities and builds(bot.submission):
            return self._pool.submit(self._build, bot, started)
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return nothing

    def _build(self, bot: Bot, started: Callable[[], None]) -> None:
        started()
        most_gib = bot.options.limit_gib or _MOST_GIB
        limited = replace(bot.options, limit_gib=min(most_gib, _MOST_GIB))
        with suppress(OSError):  # such as a full disk, of which the judgement tells
            for capability in self._capabilities:
                replace(bot, options=limited).run_build(capability, _MOST_S)

    def stop(self) -> None:
        """Ends what is built."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        stop_running()

    def __enter__(self) -> BuildAhead:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._pool.shutdown()
