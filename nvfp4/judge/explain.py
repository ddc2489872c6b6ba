"""What the kernels of a submission cost by line: a case in the confined worker, nothing judged.

Mode ``explain INSTRUCTIONS [ptx] [sass] CASEFILE TARGET`` writes a JSON list to TARGET, with an
object for each case: `spec`, and `kernels` or `error`; `code` is that of the failure, where it is
known.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nvfp4.judge.cases import read_cases
from nvfp4.judge.opened_case import (
    NotEnoughMemory,
    OpenedCase,
    OutOfTime,
    generate,
    longest_compile_s,
)
from nvfp4.judge.protocol import Exit
from nvfp4.judge.request import Request
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.messages import Done, Explain
from nvfp4.worker.emulated_runner import explained_name
from nvfp4.worker.listings import read_plain_file


def explain(request: Request) -> Exit:
    """Explains each case of a file. Raises CannotRun."""
    instructions, *wanted, case_file, target = request.arguments
    asked = Explain(int(instructions), "ptx" in wanted, "sass" in wanted)
    try:
        results = _explained(request, Path(case_file), asked)
    except SubmissionFailed as failed:
        results = [{"error": str(failed), "code": code_of(failed)}]
    Path(target).write_text(json.dumps(results), encoding="utf-8")
    return Exit.PASSED


def _explained(request: Request, case_file: Path, asked: Explain) -> list[dict[str, Any]]:
    results = []
    with SubmissionProcess(request.submission, request.options) as process:
        process.load(longest_compile_s)
        for case in read_cases(case_file):
            result: dict[str, Any] = {"spec": case.spec}
            try:
                result.update(_explain(process, case, asked, request.deadline))
            except SubmissionFailed as failed:
                result |= {"error": str(failed), "code": code_of(failed)}
            results.append(result)
    return results


def code_of(failed: Any) -> str | None:
    """Of a SubmissionFailed."""
    from nvfp4.judge.protocol import Exit

    code = "timeout.call" if failed.end is Exit.TIMED_OUT else failed.record.get("code")
    return code if isinstance(code, str) else None


def _explain(process: Any, case: Any, request: Any, deadline: float) -> dict[str, Any]:
    import torch

    try:
        opened = OpenedCase(process, case, torch.device("cpu"), deadline)
        try:
            opened.fill(opened.buffers, generate(case, case.seed))
            opened.ask(request, Done)
        finally:
            opened.close()
    except OutOfTime:
        return {"error": "not explained: the time limit was reached", "code": "timeout.mode"}
    except NotEnoughMemory as error:
        return {"error": str(error), "code": "setup.memory"}
    content = read_plain_file(process.scratch / explained_name)
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        return {"error": "the submission's process left no counts"}
    return {"kernels": found.get("kernels") if isinstance(found, dict) else None}
