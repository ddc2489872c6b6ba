"""What the judge does at certain points besides judging."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from nvfp4.judge.cases import Case
from nvfp4.judge.clock.device_limits import DeviceLimits
from nvfp4.judge.clock.stats import Stats
from nvfp4.judge.opened_case import Explain, OpenedCase
from nvfp4.judge.submission_process import SubmissionProcess
from nvfp4.records.messages import Called
from nvfp4.worker.timing import Flush, contest_flush


class Clock(Protocol):
    """The judge's own clock for calls on a GPU."""

    def check(self, opened: OpenedCase, stats: Stats, seeds: Iterator[int]) -> dict[str, str]:
        """What is to be reported. Raises SubmissionFailed where ``stats`` cannot be true."""


class Repetition(Protocol):
    """A fresh process of the same submission."""

    def choose(self, cases: list[Case], digest: int) -> list[int]:
        """Which cases are repeated."""

    def refuse_other_output(self, case: Case, output: torch.Tensor, fresh_seed: int) -> None:
        """Runs a case again, and with other contents. Raises SubmissionFailed."""


@dataclass(frozen=True)
class Hooks:
    """open_clock: raises SubmissionFailed where the worker cannot be clocked. repeat: takes a fresh
    process. observe: adds to the report of a call that was right, or raises SubmissionFailed.
    untimed: a report in place of times. floors_ns: of cases. end_case: adds to a report.
    """

    explain: Explain | None = None
    open_test: Callable[..., OpenedCase] = OpenedCase
    open_benchmark: Callable[..., OpenedCase] = OpenedCase
    open_clock: Callable[[], Clock] | None = None
    repeat: Callable[[SubmissionProcess], Repetition] | None = None
    observe: Callable[[OpenedCase, Called, dict[str, str]], None] = lambda *_: None
    untimed: Callable[[OpenedCase, Called], dict[str, str]] = lambda *_: {}
    floors_ns: Callable[[list[Case], DeviceLimits], list[float]] = lambda cases, limits: [
        limits.floor_ns(each.bytes) for each in cases
    ]
    flush: Flush = contest_flush
    end_case: Callable[[dict[str, str]], None] = lambda _: None
