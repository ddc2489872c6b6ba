"""Costs of a submission's kernels by line: a case in the confined worker, nothing judged.

Mode ``explain INSTRUCTIONS [ptx] [sass] CASEFILE TARGET`` writes a JSON list to TARGET, with an
object for each case: `spec`, and `error` or `kernels` and `unverified`, which says why counts may
leave out work; `code` is that of the failure, where it is known.
"""

import json
import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from nvfp4.judge.cases import read_cases
from nvfp4.judge.choose_referee import files_beside, referee_of
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, longest_compile_s
from nvfp4.judge.protocol import Exit, Request
from nvfp4.judge.submission_process import CaseFailed, SubmissionFailed, SubmissionProcess
from nvfp4.records.cases import Case
from nvfp4.records.files import read_plain_file
from nvfp4.records.messages import Call, Called, explained_name

_longest_bytes = 8 << 20


def explain(request: Request) -> Exit:
    """Explains each case of a file."""
    instructions, *wanted, case_file, target = request.arguments
    try:
        results = _explained(request, Path(case_file), int(instructions), wanted)
    except CaseFailed as failed:
        results = [_error(failed)]
    Path(target).write_text(json.dumps(results), encoding="utf-8")
    return Exit.PASSED


def _explained(
    request: Request, case_file: Path, instructions: int, texts: list[str]
) -> list[dict[str, Any]]:
    results, options = [], request.options
    with (
        SubmissionProcess(request.submission, options, files=files_beside(options)) as process,
        closing(referee_of(options)) as referee,
    ):
        process.load(longest_compile_s)
        cases = read_cases(case_file, refuse=referee.refuse)
        referee.prepare(cases)
        for case in cases:
            result: dict[str, Any] = {"spec": case.spec}
            try:
                setup = CaseSetup(process, torch.device("cpu"), request.deadline, referee)
                result.update(_explain(setup, case, instructions, texts))
            except CaseFailed as failed:
                result |= _error(failed)
            results.append(result)
    return results


def _error(failed: CaseFailed) -> dict[str, Any]:
    return {"error": str(failed), "code": failed.failure.code}


def _explain(setup: CaseSetup, case: Case, instructions: int, texts: list[str]) -> dict[str, Any]:
    with closing(OpenedCase(setup, case)) as opened:
        data = opened.draw(secrets.randbits(62))  # that of the public seed may be known
        opened.follow(data)
        opened.begin(instructions, texts)
        opened.fill(opened.buffers, data)
        opened.ask(Call(), Called)
        ended = opened.end()
    gpu = setup.process.gpu
    assert gpu is not None and gpu.folder is not None
    content = read_plain_file(gpu.folder, explained_name, _longest_bytes)
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        raise SubmissionFailed("process.protocol", "the executor left no counts") from None
    return {"kernels": found.get("kernels"), "unverified": ended.why or None}
