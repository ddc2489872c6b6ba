"""Causes of wrong outputs on their way to the command."""

import json

from nvfp4.local.diagnosis import Diagnosis, diagnose
from protocol import ResultPipe
from task import input_t, output_t

longest_bytes = 2000


class Causes:
    """Explains the wrong output of a case, and writes the record of that when the case ends."""

    def __init__(self, pipe: ResultPipe) -> None:
        self._pipe = pipe
        self._last: Diagnosis | None = None

    def explain(self, data: input_t, output: output_t, ref: output_t) -> str:
        """Lines for the participant; see ``diagnose``."""
        self._last = diagnose(data, output, ref)
        return self._last.text

    def report(self, key: str) -> None:
        """Writes ``KEY.cause``, JSON, if the case had a wrong output."""
        if self._last is None:
            return
        record = json.dumps(self._last.record())
        if len(record) <= longest_bytes:
            self._pipe.write(f"{key}.cause", record)
        self._last = None
