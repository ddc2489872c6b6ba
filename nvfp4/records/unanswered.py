"""State that a submission's process leaves in its folder, which is read if the process does not
answer a request.

The submission can write there as well; by that it can at most make its own verdict unclear.
"""

import contextlib
import faulthandler
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path

from nvfp4.records.channel import record
from nvfp4.records.files import overwrite, read_plain_file
from nvfp4.records.texts import plain

_state_name = "request"
_longest_text = 240
_longest_state_bytes = 8 << 10
_not_its_own = ("compiling", "emulating")


@dataclass
class RequestState:
    """State of the request that a process is answering."""

    word: str = "running"
    """Word for what the process does now."""
    since: float = 0.0
    """When it began that, on the monotonic clock, which all processes share."""
    not_its_own_s: float = 0.0
    """Seconds spent on compiling and emulating before that."""
    refused: str = ""
    """The last thing that was refused to the submission; empty if nothing was."""

    @property
    def not_its_own_until_now_s(self) -> float:
        """Seconds spent on compiling and emulating until now."""
        now_s = time.monotonic() - self.since if self.word in _not_its_own else 0.0
        return self.not_its_own_s + max(0.0, now_s)


class StateWriter:
    """Writes the state of this process to a folder if a judge waits for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _state_name if "NVFP4_DEADLINE" in os.environ else None
        self._state = RequestState()

    def begin(self) -> None:
        """Note that a request has come."""
        self._state = RequestState(self._state.word, time.monotonic())
        self._write()

    def busy(self, word: str) -> None:
        """Note what the process does from now on."""
        state = self._state
        state.not_its_own_s = state.not_its_own_until_now_s
        state.word, state.since = word, time.monotonic()
        self._write()

    def refused(self, message: str) -> None:
        """Note that the submission was refused something that a GPU does."""
        self._state.refused = message[:_longest_text]
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            overwrite(self._path, json.dumps(asdict(self._state)))


def last_state(folder: Path) -> RequestState:
    """Return the state that the process with this folder wrote last, as far as it can be
    believed."""
    try:
        content = read_plain_file(folder, _state_name, _longest_state_bytes) or b""
        found = record(RequestState, json.loads(content))
    except (OSError, ValueError, RecursionError):
        return RequestState()
    found.refused = found.refused[:_longest_text]
    return found if found.not_its_own_s >= 0 else RequestState()


longest_call_s, longest_import_s = 60.0, 150.0
"""Seconds that the judge waits for a call and for an import."""

longest_on_gpu_s = 20.0
"""Seconds of its own after which a call on a GPU hangs."""

longest_again_s = 20.0
"""Limit in seconds on calling all cases that have passed again."""

_margin_s = 1.5
_stack = "stack"
_longest_bytes = 1 << 20
_most_frames = 8
_OURS = f"{Path(__file__).parents[1]}{os.sep}"
"""Prefix of the paths of the judge's own frames, which do not help the author of a submission."""

_frame = re.compile(r'  File "([^"\n]+)", line (\d{1,9}) in (\S+)')
_thread = re.compile(r"^(?:Current thread|Thread) [^\n]*\n", re.MULTILINE)


class HangWatch:
    """Writes the stack of a call that hangs, in the submission's process.

    longest_s: the time of a call that hangs. deadline: when the process has to be done, on the
    monotonic clock, which all processes share.
    """

    def __init__(self, folder: Path, longest_s: float) -> None:
        self._longest_s = longest_s
        text = os.environ.get("NVFP4_DEADLINE")
        self._limit = float(text) if text else None
        self._file = (folder / _stack).open("w") if text else None
        self.deadline: float | None = None

    def watch_crashes(self) -> None:
        """Have the stack written if the process crashes, too."""
        if self._file is not None:
            faulthandler.enable(self._file)

    @contextlib.contextmanager
    def watching(self, loads: bool) -> Iterator[None]:
        """Have the stack written if the block takes nearly as long as the judge waits."""
        if self._limit is None or self._file is None:
            yield
            return
        now = time.monotonic()
        left_s = min(longest_import_s if loads else self._longest_s, self._limit - now)
        # A short limit is not used up by the margin.
        wait_s = max(0.05, left_s - min(_margin_s, left_s / 4))
        self.deadline = now + wait_s - min(_margin_s, wait_s / 4)
        faulthandler.dump_traceback_later(wait_s, file=self._file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


_AT_THE_LIMIT = "at the time limit it was here:"


def stack_of_hang(
    scratch: Path, file: str, source: str, name: str, heading: str = _AT_THE_LIMIT
) -> str:
    """Return the submission's frames at the time limit, outermost first; empty if there are none.

    scratch: the folder of the submission's process, which can write any content there. file: the
    name of the submission in that folder. source: its text. name: its name in messages.
    """
    text = (read_plain_file(scratch, _stack, _longest_bytes) or b"").decode("utf-8", "replace")
    threads = [_frame.findall(each) for each in _thread.split(text)]
    own = str(scratch / file)
    texts = source.splitlines()
    frames = next((each for each in threads if any(path == own for path, _, _ in each)), [])
    if not frames:
        return ""
    last = next(i for i, (path, _, _) in enumerate(frames) if path == own)
    lines = [heading]
    for path, number, function in reversed(frames[last : last + 4 * _most_frames]):
        if path == own:
            lines.append(f'  File "{name}", line {number}, in {function}')
            text = texts[int(number) - 1].strip() if 0 < int(number) <= len(texts) else ""
            lines += [f"    {text}"] if text else []
    inside = list(takewhile(lambda each: not each[0].startswith(_OURS), reversed(frames[:last])))
    if inside:
        path, number, function = inside[-1]
        path = re.sub(r".*/(?:(?:site|dist)-packages|lib/python[\d.]+)/", "", path)
        lines.append(f"  inside {path}:{number}, in {function}")
    return plain("\n".join(lines[: 2 * _most_frames + 2]), scratch / file, name)
