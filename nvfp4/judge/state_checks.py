"""Tests without a GPU, where another process costs little: whether earlier calls decide."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from nvfp4.contract.task import input_t
from nvfp4.judge.cases import Case
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, OutOfTime
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.messages import Call, Called

T = TypeVar("T")


class StateChecks:
    """Opens cases; the first wrong full-range output is had once more in a process of its own."""

    def __init__(self) -> None:
        self.called = self.looked = False

    def open(self, setup: CaseSetup, case: Case) -> OpenedCase:
        """As OpenedCase."""
        return _CheckedCase(self, setup, case)


class _CheckedCase(OpenedCase):
    def __init__(self, checks: StateChecks, setup: CaseSetup, case: Case) -> None:
        self._checks = checks
        super().__init__(setup, case)

    def judged_request(
        self, data: input_t, request: object, answer: type[T], check: bool = True
    ) -> tuple[T, float]:
        checks = self._checks
        earlier, checks.called = checks.called, True
        try:
            return super().judged_request(data, request, answer, check)
        except SubmissionFailed as failed:
            wrong = self.case.full_range and failed.end is Exit.CHECK_FAILED
            if wrong and earlier and not checks.looked:
                checks.looked = True
                self._refuse_state(failed, data)
            raise

    def _refuse_state(self, failed: SubmissionFailed, data: input_t) -> None:
        """Raises SubmissionFailed where only earlier calls of the process can be the cause."""
        explain, self._explain = self._explain, None
        try:
            self._process.stop()
            self._called = False
            self.resume()
            super().judged_request(data, Call(), Called)
        except (SubmissionFailed, OutOfTime):
            return
        finally:
            self._explain = explain
        state = SubmissionFailed(
            "output.state",
            f"{failed}\nin a process of its own this call is right: what earlier calls have left "
            "decides",
        )
        state.failure = replace(state.failure, causes=failed.failure.causes)
        raise state from None
