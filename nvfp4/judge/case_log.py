"""What is reported of a case beside its result: what was printed, and where it hung."""

from pathlib import Path

from nvfp4.judge.submission_process import SubmissionProcess
from nvfp4.worker.hangs import stack_of_hang
from nvfp4.worker.printed import shortened, taken
from nvfp4.worker.tracebacks import cut, plain

_hung = "did not finish within"


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
        if _hung in error:
            error = f"{error}\n{stack_of_hang(process.scratch, submission, name)}".strip()
        report["error"] = cut(plain(error, worker, name))
