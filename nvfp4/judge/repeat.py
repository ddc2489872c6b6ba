"""Cases run once more in a fresh process: the same inputs must give the same output, and others the
right one."""

import torch

from nvfp4.judge.cases import Case
from nvfp4.judge.opened_case import CaseSetup, OpenedCase, generate, same_bits
from nvfp4.judge.submission_process import SubmissionFailed

atomics_directive = "#!NVFP4 atomics"
"""A submission that adds up with atomics says so; its output may differ by one step of float16."""

repeated_cases = 2


def declares_atomics(source: str) -> bool:
    """Whether the directive stands among the first comment lines."""
    for line in source.splitlines():
        if line.strip() and not line.startswith("#"):
            return False
        if line.strip() == atomics_directive:
            return True
    return False


class Repetition:
    """A fresh process of the same submission."""

    def __init__(self, setup: CaseSetup) -> None:
        self._setup = setup
        self._atomics = declares_atomics(setup.process.source.text)

    def choose(self, cases: list[Case], digest: int) -> list[int]:
        """Which cases are repeated: one at random of each kind of inputs, two at least."""
        groups = [
            [index for index, case in enumerate(cases) if case.full_range == full]
            for full in (False, True)
        ]
        chosen: list[int] = []
        for group in (*filter(None, groups), list(range(len(cases)))):
            left = [index for index in group if index not in chosen]
            if left and len(chosen) < repeated_cases:
                digest, place = divmod(digest, len(left))
                chosen.append(left[place])
        return chosen

    def refuse_other_output(self, case: Case, output: torch.Tensor, fresh_seed: int) -> None:
        """Runs a case again, and once more with contents that nobody could foresee. Raises
        SubmissionFailed if its output differs, or is wrong then.

        output: float16 [m, 1, l], from the process before.
        """
        opened = OpenedCase(self._setup, case)
        try:
            opened.judged_call(generate(case, case.seed))
            repeated = opened.output()
            opened.judged_call(generate(case, fresh_seed))
        finally:
            opened.close()
        if same_bits(repeated, output):
            return
        if not self._atomics:
            count = int((repeated != output).sum())
            raise SubmissionFailed(
                "output.not_repeatable",
                f"in a fresh process the same inputs gave {count} other results; a submission that "
                f"adds with atomics says so in its first comment lines: {atomics_directive}",
            )
        steps = int((_ordered(repeated) - _ordered(output)).abs().max())
        if steps > 1:
            raise SubmissionFailed(
                "output.not_repeatable",
                f"in a fresh process the same inputs gave results {steps} steps of float16 apart",
            )


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """float16 as integers in the order of the values; neighbours differ by one."""
    bits = values.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)
