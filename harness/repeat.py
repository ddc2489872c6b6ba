"""Cases run once more in a fresh process: the same inputs must give the same output."""

from collections.abc import Mapping
from pathlib import Path

import torch

from cases import Case
from opened_case import OpenedCase, generate, same_bits
from submission_process import SubmissionFailed, SubmissionProcess

atomics_directive = "#!NVFP4 atomics"
"""A submission that adds up with atomics says so; its output may differ by one step of float16."""

repeated_cases = 2


def declares_atomics(submission: Path) -> bool:
    """Whether the directive stands among the first comment lines."""
    text = submission.read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            return False
        if line.strip() == atomics_directive:
            return True
    return False


def refuse_other_output(
    process: SubmissionProcess,
    case: Case,
    output: torch.Tensor,
    device: torch.device,
    deadline: float,
    atomics: bool,
) -> None:
    """Runs a case in ``process``, a fresh one. Raises SubmissionFailed if its output differs.

    output: float16 [m, 1, l], from the process before.
    """
    opened = OpenedCase(process, case, device, deadline)
    try:
        opened.judged_call(generate(case, case.seed))
        repeated = opened.output()
    finally:
        opened.close()
    if same_bits(repeated, output):
        return
    if not atomics:
        count = int((repeated != output).sum())
        raise SubmissionFailed(
            f"in a fresh process the same inputs gave {count} other results; a submission that "
            f"adds with atomics says so in its first comment lines: {atomics_directive}"
        )
    steps = int((_ordered(repeated) - _ordered(output)).abs().max())
    if steps > 1:
        raise SubmissionFailed(
            f"in a fresh process the same inputs gave results {steps} steps of float16 apart"
        )


def pick(outputs: Mapping[int, torch.Tensor], digest: int) -> list[int]:
    """Which of the judged cases are repeated: by chance, a few."""
    indices = sorted(outputs)
    chosen = []
    for _ in range(min(repeated_cases, len(indices))):
        digest, place = divmod(digest, len(indices))
        chosen.append(indices.pop(place))
    return chosen


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """float16 as integers in the order of the values, neighbours one apart."""
    bits = values.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)
