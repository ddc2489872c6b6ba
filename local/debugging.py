"""One element of a wrong output: what its sum is made of, and who wrote it.

    python -m nvfp4.local.debugging ROW BATCH CASEFILE

Run by the command in the judge's folder, as eval.py is. Writes ``debug`` (JSON) to the result pipe,
or ``debug.error``.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import isolation
import reference
from cases import Case, read_cases
from messages import Call, Called
from nvfp4.local.diagnosis import diagnose
from nvfp4.local.diagnosis.inputs import read_inputs
from nvfp4.local.options import read_options
from nvfp4.local.variables import default_timeout_s
from nvfp4.local.watch_messages import WatchedCall
from opened_case import NotEnoughMemory, OpenedCase, OutOfTime, generate
from protocol import Exit, ResultPipe
from submission_process import CannotRun, SubmissionFailed, SubmissionProcess
from task import input_t, output_t

greeting_timeout_s = 30.0
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
    SubmissionFailed, OutOfTime, NotEnoughMemory."""
    device = reference.default_device()
    emulated = device.type == "cpu"
    opened = OpenedCase(process, case, device, deadline)
    try:
        data = generate(case, case.seed)
        request = WatchedCall(row, batch) if emulated else Call()
        called, _ = opened.judged_request(data, request, Called, check=False)
        found = element_report(data, opened.output(), row, batch)
    finally:
        opened.close()
    return {**found, "writers": called.launches if emulated else None}


def main(arguments: list[str]) -> Exit:
    """Runs one case and reports an element of its output."""
    row, batch, case_file = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    pipe = ResultPipe(int(os.environ.pop("POPCORN_FD")))
    seed = os.environ.pop("POPCORN_SEED", None)
    options = read_options(default_timeout_s)
    deadline = time.monotonic() + options["timeout_s"]
    isolation.adopt_orphans()
    isolation.close_to_others()
    try:
        case = read_cases(case_file, int(seed) if seed else None)[0]
        with SubmissionProcess(Path("submission.py"), options["load"]) as process:
            process.greet(greeting_timeout_s)
            found = report(process, case, row, batch, deadline)
        pipe.write("debug", json.dumps(found), longest_bytes=longest_bytes)
        return Exit.CHECK_FAILED if found["wrong"] else Exit.PASSED
    except (SubmissionFailed, CannotRun, NotEnoughMemory) as error:
        pipe.write("debug.error", error)
    except OutOfTime:
        pipe.write("debug.error", "the time limit was reached")
    finally:
        isolation.kill_children()
    return Exit.CHECK_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
