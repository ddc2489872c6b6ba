"""What an installed nvfp4 adds to the judge."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from extras import Extras
from messages import Called
from nvfp4.local.diagnosis import likely_cause
from nvfp4.local.emulated_counts import total_counts
from nvfp4.local.findings import findings_of
from nvfp4.local.gated_timing import GatedClock
from nvfp4.local.listings import take_listings
from nvfp4.local.repeat import Repetition
from nvfp4.local.retargeted_kernels import RetargetedKernels
from opened_case import OpenedCase
from protocol import ResultPipe
from submission_process import SubmissionProcess


def judge_extras(
    process: SubmissionProcess,
    submission: Path,
    device: torch.device,
    deadline: float,
    strict: bool,
    pipe: ResultPipe,
) -> Extras:
    """process: that of the submission. deadline: on the monotonic clock, in seconds. strict:
    whether findings fail a case. pipe: takes what is known of the device only later.
    """
    on_cuda = device.type == "cuda"
    keep = os.environ.get("NVFP4_KEEP")
    retargeted = RetargetedKernels(pipe)

    def take() -> None:
        if keep:
            take_listings(process.scratch / "kept", Path(keep))

    def find(opened: OpenedCase, called: Called) -> list[dict[str, Any]]:
        retargeted.note(called.launches)
        return findings_of(opened, called)

    return Extras(
        explain=likely_cause,
        open_clock=partial(GatedClock, process, device, deadline) if on_cuda else None,
        count=total_counts,
        find=find,
        strict=strict,
        end_case=take,
        repeat=partial(Repetition, submission=submission, device=device, deadline=deadline),
    )
