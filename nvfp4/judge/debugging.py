"""One element of a wrong output: what its sum is made of, and who wrote it.

Mode ``debug ROW BATCH CASEFILE`` writes ``debug`` (JSON) to the result pipe, or ``debug.error``.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from nvfp4.contract import reference
from nvfp4.contract.task import input_t, output_t
from nvfp4.judge.cases import Case, read_cases
from nvfp4.judge.diagnosis import diagnose
from nvfp4.judge.diagnosis.inputs import read_inputs
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, generate
from nvfp4.judge.protocol import Exit, Request
from nvfp4.judge.submission_process import CaseFailed, SubmissionProcess, greeting_timeout_s
from nvfp4.records.messages import Call, Called, WatchedCall

longest_bytes = 50 << 10


def element_report(data: input_t, output: output_t, row: int, batch: int) -> dict[str, Any]:
    """c[row, 0, batch] and the exact sum of each k block of 16 elements.

    output: [m, 1, l]. Returns got, expected, exact, allowed (the error), wrong, blocks (float64),
    and diagnosis (lines) where the output as a whole is wrong.
    """
    expected = reference.ref_kernel(data)
    blocks = read_inputs(data).operands(batch, np.array([row])).products()
    blocks = blocks.reshape(-1, 16).sum(axis=1)
    right = reference.close_enough(output, expected)
    want = float(expected[row, 0, batch])
    return {
        "got": repr(float(output[row, 0, batch])),
        "expected": repr(want),
        "exact": repr(float(blocks.sum())),
        "allowed": reference.atol + reference.rtol * abs(want),
        "wrong": not bool(right[row, 0, batch]),
        "blocks": blocks.tolist(),
        "diagnosis": None if right.all() else diagnose(data, output, expected).text,
    }


def report(
    process: SubmissionProcess, case: Case, row: int, batch: int, deadline: float
) -> dict[str, Any]:
    """``element_report`` of a call, with its writers: None on a GPU, where nobody knows. Raises
    CaseFailed."""
    device = reference.default_device()
    emulated = device.type == "cpu"
    opened = OpenedCase(CaseSetup(process, device, deadline), case)
    try:
        data = generate(case, case.seed)
        request = WatchedCall(row, batch) if emulated else Call()
        called, _ = opened.judged_request(data, request, Called, check=False)
        found = element_report(data, opened.output(), row, batch)
    finally:
        opened.close()
    return {**found, "writers": called.launches if emulated else None}


def debug(request: Request) -> Exit:
    """Runs one case and reports an element of its output."""
    row, batch, case_file = *map(int, request.arguments[:2]), Path(request.arguments[2])
    pipe = request.pipe
    try:
        case = read_cases(case_file, request.secret_seed)[0]
        with SubmissionProcess(request.submission, request.options) as process:
            process.greet(greeting_timeout_s)
            found = report(process, case, row, batch, request.deadline)
        pipe.write("debug", json.dumps(found), longest_bytes=longest_bytes)
        return Exit.CHECK_FAILED if found["wrong"] else Exit.PASSED
    except CaseFailed as error:
        pipe.write("debug.code", error.failure.code)
        pipe.write("debug.error", error)
    return Exit.CHECK_FAILED
