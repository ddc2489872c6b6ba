"""The file of a batch: a line for each submission, a JSON object that is whole however the batch
ends."""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from nvfp4.cli.errors import SetupError, json_schema
from nvfp4.cli.history.judgements import verdict_of
from nvfp4.records.channel import read
from nvfp4.records.failures import BY_SUBMISSION

_FIRST = f'{{"schema":{json_schema},"passed":'.encode()
"""The beginning of each line; the last line may be cut off anywhere."""

batch_codes = {
    "batch.limit": "It was not judged within `--limit-s`.",
    "batch.crashed": "`nvfp4 eval` ended without a verdict, as where memory is short.",
}
"""Error codes that only lines of `nvfp4 batch` have, in addition to setup_codes."""

Line = dict[str, Any]
"""The object that `nvfp4 eval --json` prints, with three more keys: same_as, the path of an equal
file that was judged, or None; options, how it was judged; elapsed_s. The line of a file that was
not judged has passed and submission, too.
"""


def line_of(
    verdict: dict[str, Any],
    path: Path,
    sha256: str | None,
    same_as: str | None,
    options: dict[str, Any],
) -> Line:
    """Return the line of a path. verdict: an object of `nvfp4 eval --json`, an error, or another
    line."""
    head = {"schema": verdict["schema"], "passed": verdict.get("passed", False)}
    own = {"submission": {"path": str(path), "sha256": sha256}, "same_as": same_as}
    own |= {"options": options, "elapsed_s": verdict.get("elapsed_s")}
    return {**head, **own, **{name: each for name, each in verdict.items() if name not in own}}


def failure_of(line: Line) -> tuple[str, str] | None:
    """Return code and message of the first failure; None for a file that passed."""
    if line["passed"]:
        return None
    if "error" in line:
        return line["error"]["code"], line["error"]["message"]
    if line["mistake"]:
        return f"mistake.{line['mistake']['code']}", line["mistake"]["message"]
    failure = line["decided_by"]["failure"] if line["decided_by"] else {}
    says = "its own process says: " if failure.get("told_by") == BY_SUBMISSION else ""
    return failure.get("code", "unknown"), says + failure.get("message", "")


def is_unclear(line: Line) -> bool:
    """Return whether the verdict is unclear: some of it was not judged, or nothing was judged in
    time."""
    return bool(line.get("unclear")) or line.get("error", {}).get("code") in batch_codes


class BatchFile:
    """The file of a batch, locked while it is open, so that one batch at a time writes to it.

    found: the lines that it had when it was opened.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        """Open the file. Raises SetupError if it holds lines and is not to be resumed, or holds
        lines of another kind."""
        self._path = path
        try:
            self._fd = _locked(path)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise SetupError(f"{path} is not a file", "Name a file to write to.")
            content = path.read_bytes()
        except OSError as error:
            self._fail(error)
        *lines, rest = content.split(b"\n")
        if not resume and content:
            hint = "If a batch has written it, --resume goes on from it; or name another file."
            raise SetupError(f"{path} is not empty", hint)
        cut_bytes = len(rest)
        with suppress(ValueError, RecursionError):  # an editor may have dropped its line break
            json.loads(rest)
            lines.append(rest)
            cut_bytes = 0
        if cut_bytes and not _FIRST.startswith(rest[: len(_FIRST)]):
            self._refuse(len(lines) + 1)
        texts = enumerate(lines, 1)
        self.found = [self._read(number, text) for number, text in texts if text.strip()]
        os.ftruncate(self._fd, len(content) - cut_bytes)
        if rest and not cut_bytes:
            _write(self._fd, b"\n")

    def _read(self, number: int, text: bytes) -> Line:
        try:
            line: Line = json.loads(text)
            error = {"schema": json_schema, "passed": False, "error": line.get("error")}
            verdict = error if "error" in line else verdict_of(line).as_json()
            read(tuple[str, str] | None, failure_of(verdict))
            named = read(dict[str, str | None], line["submission"])
            others = read(str | None, line["same_as"]), read(dict[str, Any], line["options"])
            return line_of(verdict, Path(str(named["path"])), named["sha256"], *others)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._refuse(number)

    def _refuse(self, number: int) -> NoReturn:
        message = f"line {number} of {self._path} is no line of a batch"
        raise SetupError(message, "Name a file that a batch has written, or a new one.") from None

    def append(self, lines: Sequence[Line]) -> None:
        """Writes lines, on disk when this returns. Raises SetupError."""
        texts = (json.dumps(line, allow_nan=False, separators=(",", ":")) for line in lines)
        try:
            _write(self._fd, "".join(f"{text}\n" for text in texts).encode())
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Lets another batch write to it."""
        os.close(self._fd)

    def _fail(self, error: OSError) -> NoReturn:
        if isinstance(error, BlockingIOError):
            message, hint = f"another batch writes to {self._path}", "Wait, or name another file."
        else:
            message = f"cannot write {self._path}: {error.strerror}"
            hint = "Name a file that can be written; --resume goes on from one that has lines."
        raise SetupError(message, hint, "setup.unwritable") from None


def _locked(path: Path) -> int:
    """Open and lock a file to append to. Raises BlockingIOError if another has it, and OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write(fd: int, data: bytes) -> None:
    """Append all of the data in one call, or nothing. Raises OSError."""
    size = os.fstat(fd).st_size
    written = os.write(fd, data) if data else 0
    if written < len(data):
        os.ftruncate(fd, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(fd)
