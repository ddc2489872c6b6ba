"""A submission's exception as a text for the participant and as a failure for programs.

Tracebacks have only the submission's own frames, under its file's name, and the error last.
"""

import contextlib
import traceback
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nvfp4.records.failures import Failure, read_failure
from nvfp4.records.launch_errors import KernelFault, RetargetError
from nvfp4.records.refusals import code_of_others, own_refusal
from nvfp4.records.source import SourceLine, headed
from nvfp4.records.texts import cut, plain

_longest_error = 4000


def explained(error: BaseException, submission: Path, name: str) -> str:
    """Return the text of an exception for the participant. name: name of the submission's file.

    A fault of an emulated kernel is shown as a compiler would show it, anything else as Python
    does, without the frames of libraries.
    """
    text = _of_a_kernel(error, submission)
    if not text:
        frames = _own_frames(error, submission, name)
        text = _as_python_shows(frames, _named(error, submission, name))
    return cut(plain(text, submission, name))


def own_traceback(error: BaseException, submission: Path, name: str) -> str:
    """Return the error and the frames of its traceback in the submission."""
    frames = _own_frames(error, submission, name)
    text = _as_python_shows(frames, _last_lines(error, submission, name))
    return text if len(text) <= _longest_error else f"{text[:_longest_error]} ... (cut)"


def _as_python_shows(frames: list[traceback.FrameSummary], last: list[str]) -> str:
    heading = ["Traceback, the submission's frames:\n"] if frames else []
    return "".join([*heading, *traceback.format_list(frames), *last]).strip()


def _own_frames(error: BaseException, submission: Path, name: str) -> list[traceback.FrameSummary]:
    """Return the frames of an error's traceback in the submission, innermost last."""
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if frame.filename == str(submission)]
    for frame in frames:
        frame.filename = name
    return frames


def _last_lines(error: BaseException, submission: Path, name: str) -> list[str]:
    """Return the last lines of a traceback."""
    with contextlib.suppress(AttributeError):
        if getattr(error, "filename", None) == str(submission):
            error.filename = name  # type: ignore[attr-defined]
    return traceback.format_exception_only(error)


def _named(error: BaseException, submission: Path, name: str) -> list[str]:
    """Return the last lines of a traceback, those of the error behind it, and a hint."""
    lines = _last_lines(error, submission, name)
    cause = error.__cause__ or own_refusal(error)
    if cause is not None and cause is not error:
        lines = [*traceback.format_exception_only(cause), "which led to\n", *lines]
    hint = version_hint(error)
    return [*lines, f"hint: {hint}"] if hint else lines


def _of_a_kernel(error: BaseException, submission: Path) -> str | None:
    """Return the text of a kernel's fault, of a kernel that this GPU cannot run, or of a refused
    launch; None for any other error."""
    if isinstance(error, (KernelFault, RetargetError)):
        return str(error)
    if not type(error).__module__.startswith("nvfp4.capture."):
        return None
    launched, place = None, _place(error, submission)
    if place:
        launched = SourceLine(str(submission), place["line"] or 0, place["column"] or 0)
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


_longest_chain = 8

_import_codes = {SyntaxError: "import.syntax", ImportError: "import.module"}


def failure_of(
    error: BaseException, submission: Path, imported: bool, emulated: bool = True
) -> Failure:
    """Return the failure record of an error that ended a call, or the import of the submission.

    A fault of a kernel has the code of its class, `kernel.out_of_bounds`, and its place. An
    exception of Python has the innermost line of the submission. A refusal of the judge takes
    precedence over the exception that the submission raises from it. emulated: whether there is no
    GPU.
    """
    code = "call.exception" if imported else "import.exception"
    try:
        record = _record_of(error, submission, code, emulated)
    except Exception:  # a class of the submission's own may fail at whatever is asked of it
        record = {"code": code, "arguments": {"type": type(error).__name__}}
    return read_failure(record) or Failure(code)


def _record_of(error: BaseException, submission: Path, code: str, emulated: bool) -> dict[str, Any]:
    refusal = own_refusal(error)
    if refusal is not None:
        return _of_a_fault(refusal, _code_of_ours(refusal) or "", submission)
    cause: BaseException | None = error
    for _ in range(_longest_chain):
        if cause is None:
            break
        ours = _code_of_ours(cause)
        if ours is not None:
            return _of_a_fault(cause, ours, submission)
        cause = cause.__cause__
    if code == "import.exception":
        kinds = (name for kind, name in _import_codes.items() if isinstance(error, kind))
        code = next(kinds, code)
    return {
        "code": code_of_others(error, emulated) or code,
        "message": plain(_sentence(error), submission, submission.name),
        "arguments": {"type": type(error).__name__},
        **_place(error, submission),
    }


def _code_of_ours(error: BaseException) -> str | None:
    """Return the code of an error raised by one of our packages."""
    ours = str(type(error).__module__).startswith("nvfp4.")
    code = getattr(error, "verdict_code", None)
    return code if ours and isinstance(code, str) else None


def _of_a_fault(error: BaseException, code: str, submission: Path) -> dict[str, Any]:
    if isinstance(error, KernelFault):
        return dict(error.failure)
    arguments = getattr(error, "arguments", None)
    return {
        **_place(error, submission),
        "code": code,
        "message": getattr(error, "message", None) or str(error),
        "hint": getattr(error, "hint", None),
        "rule": getattr(error, "rule", None),
        "arguments": dict(arguments) if isinstance(arguments, Mapping) else {},
    }


def _sentence(error: BaseException) -> str:
    """Return the last line of a traceback without notes: the error's type and message."""
    try:
        told = traceback.TracebackException(type(error), error, None)
        vars(told)["__notes__"] = None
        return list(told.format_exception_only())[-1].strip()
    except Exception:  # a class of the submission's own may fail at its own message
        return type(error).__name__


def _place(error: BaseException, submission: Path) -> dict[str, Any]:
    """Return the innermost line of the submission that led to an error."""
    if isinstance(error, SyntaxError) and error.filename in (str(submission), submission.name):
        return {"file": submission.name, "line": error.lineno, "column": error.offset}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in (str(submission), submission.name):
            start = getattr(frame, "colno", None)
            column = None if start is None else start + 1
            return {"file": submission.name, "line": frame.lineno, "column": column}
    return {}
