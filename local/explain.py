"""What the kernels of a submission cost by line: a case in the confined worker, nothing judged.

    python -m nvfp4.local.explain CASEFILE TARGET INSTRUCTIONS [ptx] [sass]

The current folder is flat, as for eval.py. TARGET gets a JSON list with an object for each case:
`spec`, and `kernels` or `error`.
"""

from __future__ import annotations

import import_guard

if __name__ == "__main__":
    import_guard.keep_to_modules()

import json
import sys
import time
from pathlib import Path
from typing import Any

import isolation
from nvfp4.local.options import read_options
from nvfp4.local.variables import default_timeout_s


def explained(case_file: Path, instructions: int, wanted: list[str]) -> list[dict[str, Any]]:
    """An object for each case of a file."""
    from cases import read_cases
    from submission_process import SubmissionFailed, SubmissionProcess

    options = read_options(default_timeout_s)
    deadline = time.monotonic() + options["timeout_s"]
    results = []
    with SubmissionProcess(Path("submission.py"), options["load"]) as process:
        from nvfp4.local.explained_calls import Explain
        from opened_case import longest_compile_s

        request = Explain(instructions, "ptx" in wanted, "sass" in wanted)
        process.load(longest_compile_s)
        for case in read_cases(case_file):
            result: dict[str, Any] = {"spec": case.spec}
            try:
                result.update(_explain(process, case, request, deadline))
            except SubmissionFailed as failed:
                result["error"] = str(failed)
            results.append(result)
    return results


def _explain(process: Any, case: Any, request: Any, deadline: float) -> dict[str, Any]:
    import torch

    from messages import Done
    from nvfp4.local.explained_calls import explained_name
    from nvfp4.local.listings import read_plain_file
    from opened_case import NotEnoughMemory, OpenedCase, OutOfTime, generate

    try:
        opened = OpenedCase(process, case, torch.device("cpu"), deadline)
        try:
            opened.fill(opened.buffers, generate(case, case.seed))
            opened.ask(request, Done)
        finally:
            opened.close()
    except OutOfTime:
        return {"error": "not explained: the time limit was reached"}
    except NotEnoughMemory as error:
        return {"error": str(error)}
    content = read_plain_file(process.scratch / explained_name)
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        return {"error": "the submission's process left no counts"}
    return {"kernels": found.get("kernels") if isinstance(found, dict) else None}


def main(arguments: list[str]) -> int:
    """The exit code: 0, or 2 with a sentence on stderr where nothing can be explained here."""
    case_file, target, instructions, *wanted = arguments
    from submission_process import CannotRun, SubmissionFailed

    isolation.adopt_orphans()
    isolation.close_to_others()
    try:
        results = explained(Path(case_file), int(instructions), wanted)
    except SubmissionFailed as failed:
        results = [{"error": str(failed)}]
    except CannotRun as error:
        print(f"{error}", file=sys.stderr)
        return 2
    finally:
        isolation.kill_children()
    Path(target).write_text(json.dumps(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
