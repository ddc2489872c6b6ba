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
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, generate, longest_compile_s
from nvfp4.judge.protocol import Exit, Request
from nvfp4.judge.submission_process import CaseFailed, SubmissionFailed, SubmissionProcess
from nvfp4.records.messages import Done, Explain
from nvfp4.records.reading import read_plain_file
from nvfp4.worker.emulated_runner import explained_name

_longest_bytes = 8 << 20


def explain(request: Request) -> Exit:
    """Explains each case of a file."""
    instructions, *wanted, case_file, target = request.arguments
    asked = Explain(int(instructions), "ptx" in wanted, "sass" in wanted)
    try:
        results = _explained(request, Path(case_file), asked)
    except CaseFailed as failed:
        results = [_error(failed)]
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
            except CaseFailed as failed:
                result |= _error(failed)
            results.append(result)
    return results


def _error(failed: CaseFailed) -> dict[str, Any]:
    return {"error": str(failed), "code": failed.failure.code}


def _explain(process: Any, case: Any, request: Any, deadline: float) -> dict[str, Any]:
    import torch

    opened = OpenedCase(CaseSetup(process, torch.device("cpu"), deadline), case)
    try:
        opened.fill(opened.buffers, generate(case, case.seed))
        opened.ask(request, Done)
    finally:
        opened.close()
    content = read_plain_file(process.scratch, explained_name, _longest_bytes)
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        message = "the submission's process left no counts"
        raise SubmissionFailed("process.protocol", message) from None
    return {"kernels": found.get("kernels") if isinstance(found, dict) else None}
