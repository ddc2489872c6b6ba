"""A runner whose failures are told in the submission's own terms, and whose hangs show a stack."""

from dataclasses import replace
from pathlib import Path

from nvfp4.records.messages import Failure, Load
from nvfp4.records.options import Options
from nvfp4.worker.flushes import flushes
from nvfp4.worker.hangs import HangWatch
from nvfp4.worker.printed import flush_output
from nvfp4.worker.recording_runner import RecordingRunner
from nvfp4.worker.runner import own_traceback
from nvfp4.worker.tracebacks import explained, plain


class ReportingRunner(RecordingRunner):
    """name: what messages call the submission's file."""

    def __init__(self, submission: Path, options: Options) -> None:
        super().__init__(submission, flushes[options.flush])
        self.options = options
        self.name = options.name or submission.name
        self.watch = HangWatch(submission.parent)

    def answer(self, request: object, fd: int | None) -> object:
        """As Runner; what was printed is on its way to the judge before the answer is."""
        try:
            with self.watch.watching(isinstance(request, Load)):
                answer = super().answer(request, fd)
        finally:
            flush_output()
        if isinstance(answer, Failure) and answer.kind in ("contract", "exit"):
            return replace(answer, message=plain(answer.message, self._submission, self.name))
        return answer

    def _explain(self, error: BaseException) -> Failure:
        failure = super()._explain(error)
        if failure.kind == "setup":
            return failure
        usual = own_traceback(error, self._submission)
        told = explained(error, self._submission, self.name)
        return replace(failure, message=failure.message.replace(usual, told))
