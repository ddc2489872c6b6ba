"""Causes of wrong outputs on their way to the command."""

import json

from nvfp4.contract.task import input_t, output_t
from nvfp4.judge.diagnosis import Diagnosis, diagnose

longest_bytes = 2000


class Causes:
    """Explains the wrong output of a case, and adds the record of that to the case's report."""

    def __init__(self) -> None:
        self._last: Diagnosis | None = None

    def explain(self, data: input_t, output: output_t, ref: output_t) -> str:
        """Lines for the participant; see ``diagnose``."""
        self._last = diagnose(data, output, ref)
        return self._last.text

    def tell(self, report: dict[str, str]) -> None:
        """Adds ``cause``, JSON, if the case had a wrong output."""
        if self._last is None:
            return
        record = json.dumps(self._last.record())
        if len(record) <= longest_bytes:
            report["cause"] = record
        self._last = None
