"""What a submission raised, in its own terms: its frames, its file's name, the error last."""

import re
import traceback
from pathlib import Path
from typing import Any

from nvfp4.records.refusals import own_refusal
from nvfp4.retarget.errors import RetargetError

longest_bytes = 2800
"""Of a message: the judge keeps 3,000 bytes."""

_escapes = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_object_address = re.compile(r" at 0x[0-9a-fA-F]{6,}\b")
_address = re.compile(r"\b0x[0-9a-fA-F]{9,}\b")
_temporary = re.compile(r"(?:/var)?/tmp/[^\s'\":,()<>]*/|(?:/var)?/tmp/(?=[^\s'\":,()<>/]+\.\w+)")


def explained(error: BaseException, submission: Path, name: str) -> str:
    """An exception as the participant is told of it. name: what the submission's file is called.

    A fault of an emulated kernel is shown as a compiler would show it, anything else as Python
    does, without the frames of libraries.
    """
    frames = own_frames(error, submission, name)
    text = (
        _of_this_gpu(error)
        or _of_a_kernel(error, frames, submission)
        or _of_python(error, frames, submission, name)
    )
    return cut(plain(text, submission, name))


def own_frames(error: BaseException, submission: Path, name: str) -> list[traceback.FrameSummary]:
    """The frames of an error's traceback in the submission, innermost last."""
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if frame.filename == str(submission)]
    for frame in frames:
        frame.filename = name
    return frames


def plain(text: str, submission: Path, name: str) -> str:
    """Without escape sequences, scratch folders and addresses, which differ from run to run."""
    text = _escapes.sub("", text)
    text = text.replace(str(submission), name).replace(f"{submission.parent}/", "")
    text = re.sub(rf"\b{re.escape(submission.name)}\b", name, text)
    text = _temporary.sub("", text)
    return _address.sub("0x...", _object_address.sub("", text))


def cut(text: str) -> str:
    """The text; of a long one the beginning and the end."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= longest_bytes:
        return text
    head, tail = encoded[: longest_bytes * 2 // 3], encoded[-longest_bytes // 3 :]
    first = head.decode(errors="ignore").rpartition("\n")[0]
    last = tail.decode(errors="ignore").partition("\n")[2]
    return f"{first}\n... (cut)\n{last}"


def _of_this_gpu(error: BaseException) -> str | None:
    """Why it cannot run what the submission launches, which has a place of its own."""
    return str(error) if isinstance(error, RetargetError) else None


def _of_a_kernel(
    error: BaseException, frames: list[traceback.FrameSummary], submission: Path
) -> str | None:
    """A fault of a kernel, or a launch that was refused; None for any other error."""
    module = type(error).__module__
    if not module.startswith(("nvfp4.emulator.", "nvfp4.capture.")):
        return None
    from nvfp4.emulator.errors import EmulatorError, LaunchError
    from nvfp4.emulator.rendering import rendered
    from nvfp4.emulator.source import SourceLine

    class Unsupported(EmulatorError):
        code = "unsupported_call"

    launched = None
    if frames:
        last = frames[-1]
        column = getattr(last, "colno", None)
        launched = SourceLine(
            str(submission), last.lineno or 0, 0 if column is None else column + 1
        )
    if not isinstance(error, EmulatorError):
        message, hint = getattr(error, "message", str(error)), getattr(error, "hint", None)
        kind = Unsupported if getattr(error, "refusal", False) else LaunchError
        error = kind(message, hint=hint)
    return rendered(error, launched)


def _of_python(
    error: BaseException, frames: list[traceback.FrameSummary], submission: Path, name: str
) -> str:
    said = _named(error, submission, name)
    heading = ["Traceback, the submission's frames:\n"] if frames else []
    return "".join([*heading, *traceback.format_list(frames), said]).strip()


def _named(error: BaseException, submission: Path, name: str) -> str:
    """The last lines of a traceback, and of the error behind it."""
    renamed: Any = error
    if getattr(error, "filename", None) == str(submission):
        renamed.filename = name
    lines = list(traceback.format_exception_only(error))
    cause = error.__cause__ or own_refusal(error)
    if cause is not None and cause is not error:
        lines = [*traceback.format_exception_only(cause), "which led to\n", *lines]
    return "".join(lines)
