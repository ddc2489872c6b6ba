"""Tracebacks of submissions: only its own frames, under its file's name, the error last."""

import contextlib
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nvfp4.records.launch_errors import KernelFault, RetargetError
from nvfp4.records.refusals import own_refusal
from nvfp4.records.source import SourceLine, headed
from nvfp4.records.texts import cut, plain


def explained(error: BaseException, submission: Path, name: str) -> str:
    """Return the text of an exception for the participant. name: name of the submission's file.

    A fault of an emulated kernel is shown as a compiler would show it, anything else as Python
    does, without the frames of libraries.
    """
    frames = own_frames(error, submission, name)
    text = _of_a_kernel(error, frames, submission)
    if not text:
        heading = ["Traceback, the submission's frames:\n"] if frames else []
        shown = traceback.format_list(frames)
        text = "".join([*heading, *shown, _named(error, submission, name)]).strip()
    return cut(plain(text, submission, name))


def own_frames(error: BaseException, submission: Path, name: str) -> list[traceback.FrameSummary]:
    """Return the frames of an error's traceback in the submission, innermost last."""
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if frame.filename == str(submission)]
    for frame in frames:
        frame.filename = name
    return frames


def _of_a_kernel(
    error: BaseException, frames: list[traceback.FrameSummary], submission: Path
) -> str | None:
    """Return the text of a kernel's fault, of a kernel that this GPU cannot run, or of a refused
    launch; None for any other error."""
    if isinstance(error, (KernelFault, RetargetError)):
        return str(error)
    if not type(error).__module__.startswith("nvfp4.capture."):
        return None
    launched = None
    if frames:
        last = frames[-1]
        column = getattr(last, "colno", None)
        column = 0 if column is None else column + 1
        launched = SourceLine(str(submission), last.lineno or 0, column)
    message, hint = getattr(error, "message", str(error)), getattr(error, "hint", None)
    return headed(launched, message, hint, getattr(error, "refusal", False))


_distributions = {"cutlass": "nvidia-cutlass-dsl", "triton": "triton", "torch": "torch"}
"""The distribution of each package whose names change from version to version."""


def version_hint(error: BaseException | None) -> str | None:
    """Return a hint with the installed version of a library, if the error or its cause is a name
    that the library lacks."""
    while error is not None:
        module = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
        owner = error.name if isinstance(error, ImportError) else getattr(module, "__name__", None)
        name = _distributions.get(str(owner).partition(".")[0])
        with contextlib.suppress(PackageNotFoundError):  # then the package itself is missing
            if name is not None:
                installed = f"{name} {version(name)} is installed here"
                return f"{installed}; the file may be for a version that has this name"
        error = error.__cause__
    return None


def _named(error: BaseException, submission: Path, name: str) -> str:
    """Return the last lines of a traceback, and those of the error behind it."""
    renamed: Any = error
    if getattr(error, "filename", None) == str(submission):
        renamed.filename = name
    lines = list(traceback.format_exception_only(error))
    cause = error.__cause__ or own_refusal(error)
    if cause is not None and cause is not error:
        lines = [*traceback.format_exception_only(cause), "which led to\n", *lines]
    hint = version_hint(error)
    return "".join([*lines, f"hint: {hint}" if hint else ""])
