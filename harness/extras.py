"""What eval.py adds to the judge where nvfp4 is installed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cases import Case
from messages import Called
from opened_case import Explain, OpenedCase
from submission_process import SubmissionProcess
from timing_checks import Estimate


class Clock(Protocol):
    """The judge's own clock for calls on a GPU."""

    def estimates(self, opened: OpenedCase, seeds: Iterator[int]) -> Iterator[Estimate]:
        """What a call takes, ever costlier and more certain."""


class Repetition(Protocol):
    """A fresh process of the same submission."""

    def choose(self, cases: list[Case], digest: int) -> list[int]:
        """Which cases are repeated."""

    def refuse_other_output(self, case: Case, output: torch.Tensor, fresh_seed: int) -> None:
        """Runs a case again, and with other contents. Raises SubmissionFailed."""


@dataclass(frozen=True)
class Extras:
    """open_clock: raises SubmissionFailed where the worker cannot be clocked. repeat: takes a fresh
    process. find: warnings about a case that passed; strict: they fail it. count: the sum of the
    reports of emulated launches. end_case: called after every case."""

    explain: Explain | None = None
    open_clock: Callable[[], Clock] | None = None
    repeat: Callable[[SubmissionProcess], Repetition] | None = None
    find: Callable[[OpenedCase, Called], list[dict[str, Any]]] | None = None
    strict: bool = False
    count: Callable[[list[Any]], dict[str, Any]] | None = None
    end_case: Callable[[], None] = lambda: None
