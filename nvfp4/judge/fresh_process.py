"""Repeats calls in a process that has made none: the same inputs must give the same output, and
other inputs the right one, whatever earlier calls have left behind."""

from collections.abc import Container
from contextlib import closing, suppress
from itertools import takewhile

import torch

from nvfp4.contract.referee import Output
from nvfp4.judge.later_calls import judged_code, too_slow
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, OutOfTime
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.cases import Case
from nvfp4.records.unanswered import longest_call_s
from nvfp4.sandbox.caches import forget

atomics_directive = "#!NVFP4 atomics"
"""A submission that adds up with atomics says so; its output may differ by one step of float16."""

repeated_cases = 2


def declares_atomics(source: str) -> bool:
    """Return whether the directive stands among the first comment lines."""
    head = takewhile(lambda line: not line.strip() or line.startswith("#"), source.splitlines())
    return any(line.strip() == atomics_directive for line in head)


class Repetition:
    """A fresh process of the same submission."""

    def __init__(self, setup: CaseSetup) -> None:
        self._setup = setup
        self._begun = False
        self._atomics = declares_atomics(setup.process.source.text)

    def begin(self) -> None:
        """Start the process once, while the first one makes its calls; a failure is raised when it
        is used. On a GPU the process also loads the submission; elsewhere the emulator needs the
        cores."""
        if self._begun:
            return
        self._begun = True
        self._setup.process.start()
        if self._setup.device.type == "cuda":
            with suppress(SubmissionFailed):
                self._setup.process.begin_load()

    def choose(self, cases: list[Case], left_out: Container[int], digest: int) -> list[int]:
        """Return which cases are repeated: one at random of each kind of inputs, two at least; none
        that is left out, because it failed or its calls are long."""
        short = [index for index in range(len(cases)) if index not in left_out]
        groups = [
            [index for index in short if cases[index].full_range == full] for full in (False, True)
        ]
        chosen: list[int] = []
        for group in (*filter(None, groups), short):
            left = [index for index in group if index not in chosen]
            if left and len(chosen) < repeated_cases:
                digest, place = divmod(digest, len(left))
                chosen.append(left[place])
        return chosen

    def refuse_other_output(self, case: Case, output: Output, fresh_seed: int) -> None:
        """Run a case again, and once more with contents that cannot be foreseen. Raises
        SubmissionFailed if its output differs where it must not, or is wrong then, and OutOfTime.

        output: from the process before.
        """
        try:
            with closing(OpenedCase(self._setup, case)) as opened:
                opened.judged_call(opened.draw(case.seed))
                repeated = opened.returned()
                opened.judged_call(opened.draw(fresh_seed))
        except SubmissionFailed as failed:
            own_s = failed.failure.own_s or 0.0
            cut_short = failed.end is Exit.TIMED_OUT and own_s < longest_call_s / 2
            if cut_short or judged_code(failed) == too_slow:
                raise OutOfTime from None
            raise
        if not self._setup.referee.repeatable or repeated.same_bits(output):
            return
        before, after = output.data, repeated.data
        if self._atomics:
            steps = int((_ordered(after) - _ordered(before)).abs().max())
            if steps <= 1:
                return
            said = f"results {steps} steps of float16 apart"
        else:
            said = f"{int((after != before).sum())} other results; a submission that adds with "
            said += f"atomics says so in its first comment lines: {atomics_directive}"
        forget(self._setup.process.source.content)  # it may hold what decided the results
        message = f"in a fresh process the same inputs gave {said}"
        raise SubmissionFailed("output.not_repeatable", message)


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Return float16 as integers in the order of the values; neighbours differ by one."""
    bits = values.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)
