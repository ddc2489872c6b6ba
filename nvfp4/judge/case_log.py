"""What is reported of a case beside its result: what was printed, and where it hung."""

import re
from pathlib import Path

from nvfp4.judge.submission_process import SubmissionProcess
from nvfp4.records.failures import reported
from nvfp4.worker.hangs import stack_of_hang
from nvfp4.worker.printed import shortened, taken
from nvfp4.worker.request_state import last_state
from nvfp4.worker.tracebacks import cut, plain

_limit = re.compile(r"^(?:its import|custom_kernel) did not finish within ([\d.e+]+) s")
_ended = re.compile(r"the submission's process (?:ended|was killed)|.*the submission called sys")
_least_s = 0.1


def tell_more(
    report: dict[str, str], process: SubmissionProcess, submission: Path, name: str
) -> None:
    """Adds the output of a case to its report, and to a hang the stack."""
    worker = process.scratch / submission.name
    kernels = shortened(report.pop("prints", ""))
    printed = "\n".join(filter(None, (taken(process.stdout), kernels)))
    if not report:
        return
    if printed:
        report["output"] = plain(printed, worker, name)
    error = report.get("error", "")
    if error:
        limit = _limit.match(error)
        if limit:
            error = f"{_with_ours(limit)}{error[limit.end() :]}"
            error = f"{error}\n{stack_of_hang(process.scratch, submission, name)}".strip()
        refused = last_state().refused
        if refused and _ended.match(error):
            report |= reported({"code": "launch.unsupported_call", "message": refused})
            error = f"{refused}\nthen {error}"
        report["error"] = cut(plain(error, worker, name))


def _with_ours(limit: re.Match[str]) -> str:
    """What was waited for, and how much of that time was not the submission's own."""
    ours_s = min(last_state().not_its_own_until_now_s, float(limit[1]))
    if ours_s < _least_s:
        return limit[0]
    return f"{limit[0]}, of which compiling and emulating took {ours_s:.3g} s"
