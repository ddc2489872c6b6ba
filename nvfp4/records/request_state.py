"""What a submission's process did during a request that it did not live to answer.

It writes that to a file in its folder, which the submission can write to as well: what comes of it
is at most that nobody knows whether the submission is right.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from nvfp4.records.reading import read_plain_file

_name = "request"
_longest_text = 240
_longest_bytes = 8 << 10
_not_its_own = ("compiling", "emulating")


@dataclass
class RequestState:
    """word: what it was busy with since then, on the monotonic clock, which all processes share.
    not_its_own_s: how long it had compiled and emulated before. refused: what was refused to it
    last, or nothing.
    """

    word: str = "running"
    since: float = 0.0
    not_its_own_s: float = 0.0
    refused: str = ""

    @property
    def not_its_own_until_now_s(self) -> float:
        """How long it has compiled and emulated until now."""
        now_s = time.monotonic() - self.since if self.word in _not_its_own else 0.0
        return self.not_its_own_s + max(0.0, now_s)


class StateWriter:
    """Of the process with this folder, where a judge waits for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _name if "NVFP4_DEADLINE" in os.environ else None
        self._state = RequestState()

    def begin(self) -> None:
        """A request has come."""
        self._state = RequestState(self._state.word, time.monotonic())
        self._write()

    def busy(self, word: str) -> None:
        """What the process does from now on."""
        state = self._state
        state.not_its_own_s = state.not_its_own_until_now_s
        state.word, state.since = word, time.monotonic()
        self._write()

    def refused(self, message: str) -> None:
        """Something was refused to the submission that a GPU does."""
        self._state.refused = message[:_longest_text]
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.write_text(json.dumps(asdict(self._state)))


def last_state(folder: Path) -> RequestState:
    """What the process with this folder has written last, as far as it can be believed."""
    try:
        found = json.loads(read_plain_file(folder, _name, _longest_bytes) or b"")
        word, refused = found["word"], found["refused"]
        since, ours_s = float(found["since"]), float(found["not_its_own_s"])
        whole = isinstance(word, str) and isinstance(refused, str)
        if whole and math.isfinite(since) and math.isfinite(ours_s) and ours_s >= 0:
            return RequestState(word, since, ours_s, refused[:_longest_text])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return RequestState()
