"""A runner that tells of a failure as a record too."""

import contextlib
import dataclasses
from typing import Any

from nvfp4.records.failures import believed, record_of
from nvfp4.records.messages import Failure
from nvfp4.worker.runner import Runner


class RecordingRunner(Runner):
    """Beside the message of a failure goes what programs can read."""

    def _explain(self, error: BaseException) -> Failure:
        failure = super()._explain(error)
        record: dict[str, Any] = {}
        with contextlib.suppress(Exception):  # the error may be of a class of the submission's
            record = record_of(error, self._submission, imported=self._kernel is not None)
        if failure.kind == "cuda":
            record["code"] = "cuda.error"
        return dataclasses.replace(failure, record=believed(record))
