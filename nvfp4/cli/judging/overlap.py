"""Runs benchmarks beside the tests.

Emulated kernels are not timed, so nothing is disturbed. On a GPU the judge of benchmarks is only
started then, and waits until the tests are over.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any

from nvfp4.cli.judging.bot import stop_running
from nvfp4.cli.verdict import Verdict


class Abandoned(Exception):
    """The results are not needed any more."""


class Held:
    """Stands in for an observer and keeps its calls until they are released.

    Calls raise Abandoned after `abandoned` is set.
    """

    def __init__(self, told: Any) -> None:
        self.abandoned = False
        self._told = told
        self._lock = threading.RLock()
        self._kept: list[tuple[str, tuple[Any, ...]]] | None = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def hold(*arguments: Any) -> None:
            if self.abandoned:
                raise Abandoned
            with self._lock:
                if self._kept is not None:
                    self._kept.append((name, arguments))
                    return
            getattr(self._told, name)(*arguments)

        return hold

    def release(self) -> None:
        """Pass on the calls that were kept; later ones are passed on at once."""
        with self._lock:
            kept, self._kept = self._kept or [], None
            for name, arguments in kept:
                getattr(self._told, name)(*arguments)


class _Turn(AbstractContextManager[None]):
    """Held by each judge of a part of the cases, from when judges may judge."""

    def __init__(self, given: threading.Event) -> None:
        self._given = given

    def __enter__(self) -> None:
        self._given.wait()

    def __exit__(self, *error: object) -> None:
        pass


class BesideTests(AbstractContextManager["BesideTests"]):
    """Runs benchmarks beside the tests, from ``start`` on if that is called before ``finish``. At
    the end of its with block none is left."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        run: Callable[[Verdict, Any, AbstractContextManager[None], bool], None],
        verdict: Verdict,
        observer: Any,
    ) -> None:
        """run: judges the benchmarks, given a verdict to fill, an observer, a turn, and whether
        they may run beside each other. It may raise Abandoned."""
        self._pool, self._run = pool, run
        self._verdict = Verdict(verdict.submission)
        self._held = Held(observer)
        self._future: Future[None] | None = None
        self._may_judge = threading.Event()

    def __exit__(self, *error: object) -> None:
        if self._future is not None and not self._future.done():
            self.abandon()

    def start(self, judges: bool) -> None:
        """Start the benchmarks if there is a core to spare. Called once the judging device is
        known.

        judges: do not wait for a turn, because kernels are emulated.
        """
        if judges:
            self._may_judge.set()
        if self._future is None and (os.cpu_count() or 1) > 1:
            held = self._verdict, self._held, _Turn(self._may_judge)
            self._future = self._pool.submit(self._run, *held, judges)

    @property
    def started(self) -> bool:
        return self._future is not None

    def abandon(self) -> None:
        """End the judgement with what it has so far."""
        self._held.abandoned = True
        if self._future is not None:
            stop_running()
            self._may_judge.set()
            with suppress(Exception):
                self._future.result()

    def finish(self, verdict: Verdict) -> None:
        """Wait for the results and put them into the verdict. Raises the errors of the run."""
        assert self._future, "it has started"
        self._held.release()
        self._may_judge.set()
        try:
            self._future.result()
        except KeyboardInterrupt:
            self.abandon()
            raise
        finally:
            verdict.benchmarks = self._verdict.benchmarks
            verdict.device, verdict.confined = self._verdict.device, self._verdict.confined
