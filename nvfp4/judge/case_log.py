"""What is reported of a case beside its result: what was printed, and its message in plain text."""

from nvfp4.judge.submission_process import SubmissionProcess
from nvfp4.worker.printed import shortened, taken
from nvfp4.worker.tracebacks import cut, plain


def tell_more(report: dict[str, str], process: SubmissionProcess, name: str) -> None:
    """Adds the output of a case to its report."""
    worker = process.submission
    kernels = shortened(report.pop("prints", ""))
    printed = "\n".join(filter(None, (taken(process.stdout), kernels)))
    if not report:
        return
    if printed:
        report["output"] = plain(printed, worker, name)
    if "error" in report:
        report["error"] = cut(plain(report["error"], worker, name))
