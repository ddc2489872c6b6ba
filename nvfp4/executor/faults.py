"""What stops a launch, as records and as text."""

from pathlib import Path
from typing import Any

from nvfp4.emulator.errors import EmulatorError, SourceLocation
from nvfp4.emulator.rendering import rendered
from nvfp4.records.gpu_messages import Fault
from nvfp4.records.launch_errors import CodedError
from nvfp4.records.source import SourceLine, headed
from nvfp4.records.texts import cut, plain, short_name


def fault_of(
    error: EmulatorError | CodedError, submission: Path, name: str, launched: SourceLine | None
) -> Fault:
    """A fault with its place, or what no device takes. launched: the submission's line that asked
    for what has failed."""
    if isinstance(error, CodedError):
        text = headed(launched, error.message, error.hint, type(error).refusal)
        failure = {"code": error.verdict_code, "message": error.message, "hint": error.hint}
        failure |= _place(launched)
    else:
        text, failure = rendered(error, launched), _failure(error, launched)
    output = getattr(error, "output", "")
    return Fault(cut(plain(text, submission, name)), failure, type(error).refusal, output)


def _failure(error: EmulatorError, launched: SourceLine | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "code": f"kernel.{error.code}",
        "message": error.message,
        "hint": error.hint,
        "rule": error.rule,
        "arguments": error.arguments,
    }
    if error.where is None:
        return record | _place(launched)
    if error.related:
        record["related"] = [
            {"message": each.message, **_location(each.where)} for each in error.related
        ]
    return record | _location(error.where)


def _place(line: SourceLine | None) -> dict[str, Any]:
    return {"file": line.file, "line": line.line, "column": line.column} if line else {}


def _location(where: SourceLocation) -> dict[str, Any]:
    return {
        **_place(where.user),
        "kernel": short_name(where.kernel),
        "ptx_line": where.line,
        "cta": where.cta,
        "thread": where.thread,
    }
