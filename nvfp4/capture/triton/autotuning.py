"""@triton.autotune where nothing can be timed: the first configuration that launches is used."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from nvfp4.capture.session import Session
from nvfp4.records.base import Record
from nvfp4.records.launch import Note

_NOT_CHOSEN = [math.inf] * 3
_CHOSEN = [0.0] * 3
"""Placeholder times, the least possible, so that Triton chooses the configuration."""


def try_once(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    """Replace Autotuner._bench: run the first configurations until one works, each once.

    A configuration runs as a trial: what it leaves in memory stays, as on a GPU.
    """

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        tuning = _tunings(self)[-1]
        tuning.tried += 1
        if tuning.chosen is not None:
            return _NOT_CHOSEN
        # The user may have given one that measures; this hides it.
        vars(self)["do_bench"] = _run_once
        with session.trying():
            timings = original(self, *args, config=config, **meta)
        if timings[0] != math.inf:
            tuning.chosen = config
        return timings

    return bench


class _Tuning(Record, frozen=False):
    """One call of a tuned kernel: the number of configurations tried, and the one chosen."""

    tried: int = 0
    chosen: Any = None


def _tunings(tuner: Any) -> list[_Tuning]:
    """Return the tunings of a tuner so far, the current one last."""
    return vars(tuner).setdefault("_captured_tunings", [])


def _run_once(call: Callable[[], None], *_: Any, **__: Any) -> list[float]:
    call()
    return _CHOSEN


def without_disk(self: Any, key: Any, configs: Any, bench: Callable[[], None]) -> bool:
    """Replace Autotuner.check_disk_cache by one that neither uses timings of other machines nor
    stores any."""
    bench()
    return False


def with_note(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    """Replace Autotuner.run by one whose launch is noted with its configuration."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = self.fn
        _tunings(self).append(_Tuning())
        # A launch that knows the configuration also knows whether it was chosen by time.
        self.fn = _Noting(session, self, inner)
        try:
            return original(self, *args, **kwargs)
        finally:
            self.fn = inner
            if not _tunings(self)[-1].tried:
                _tunings(self).pop()

    return run


class _Noting:
    """Stands in for the tuned kernel while a tuner runs."""

    def __init__(self, session: Session, tuner: Any, kernel: Any) -> None:
        self._session = session
        self._tuner = tuner
        self._kernel = kernel

    def run(self, *args: Any, **kwargs: Any) -> Any:
        chosen = getattr(self._tuner, "best_config", None)
        untimed = any(t.chosen is chosen and t.tried > 1 for t in _tunings(self._tuner))
        if untimed and not self._session.trial:
            self._session.note(_note(self._tuner, chosen))
        return self._kernel.run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def _note(tuner: Any, config: Any) -> Note:
    values = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    written = ", ".join(f"{name}={value}" for name, value in values.items())
    first = tuner.configs[0] is config
    place = "its first configuration" if first else "the first of its configurations that works"
    function = inspect.unwrap(tuner.base_fn)
    return Note(
        "autotune",
        f"triton.autotune used {place} ({written}): nothing can be timed without a GPU",
        hint="on a GPU another one may run: try each of them",
        file=function.__code__.co_filename,
        line=function.__code__.co_firstlineno,
    )
