"""What eval.py adds to the judge where nvfp4 is installed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cases import Case
from messages import Called
from opened_case import Explain, OpenedCase
from stats import Stats
from submission_process import SubmissionProcess
from timing import Flush, contest_flush


class Clock(Protocol):
    """The judge's own clock for calls on a GPU."""

    def check(self, opened: OpenedCase, stats: Stats, seeds: Iterator[int]) -> dict[str, str]:
        """What is to be reported. Raises SubmissionFailed where ``stats`` cannot be true."""


class Repetition(Protocol):
    """A fresh process of the same submission."""

    def choose(self, count: int, digest: int) -> list[int]:
        """Which of so many cases are repeated."""

    def refuse_other_output(self, case: Case, output: torch.Tensor) -> None:
        """Runs a case again. Raises SubmissionFailed."""


def no_time(nbytes: int) -> float:
    return 0.0


@dataclass(frozen=True)
class Extras:
    """open_clock: raises SubmissionFailed where the worker cannot be clocked. repeat: takes a fresh
    process. find: warnings about a case that passed; strict: they fail it. count: the sum of the
    reports of emulated launches. added_ns: by how much the flush raises the floor of a call that
    moves so many bytes. end_case: called after every case."""

    explain: Explain | None = None
    open_clock: Callable[[], Clock] | None = None
    repeat: Callable[[SubmissionProcess], Repetition] | None = None
    find: Callable[[OpenedCase, Called], list[dict[str, Any]]] | None = None
    strict: bool = False
    count: Callable[[list[Any]], dict[str, Any]] | None = None
    added_ns: Callable[[int], float] = no_time
    flush: Flush = contest_flush
    end_case: Callable[[], None] = lambda: None
