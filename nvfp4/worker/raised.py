"""Failures, as records for programs, from exceptions of a submission."""

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvfp4.records.failures import Failure, read_failure
from nvfp4.records.launch_errors import KernelFault
from nvfp4.records.refusals import code_of_others, own_refusal
from nvfp4.records.texts import plain

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
    """Return the last line of a traceback: the error's type and message."""
    try:
        return traceback.format_exception_only(error)[-1].strip()
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
