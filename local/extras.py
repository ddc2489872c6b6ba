"""What an installed nvfp4 adds to the judge."""

import os
from functools import partial
from pathlib import Path

import torch

from extras import Extras
from nvfp4.local.diagnosis import likely_cause
from nvfp4.local.emulated_counts import total_counts
from nvfp4.local.findings import findings_of
from nvfp4.local.gated_timing import GatedClock
from nvfp4.local.listings import take_listings
from nvfp4.local.repeat import Repetition
from submission_process import SubmissionProcess


def judge_extras(
    process: SubmissionProcess,
    submission: Path,
    device: torch.device,
    deadline: float,
    strict: bool,
) -> Extras:
    """process: that of the submission. deadline: on the monotonic clock, in seconds. strict:
    whether findings fail a case.
    """
    on_cuda = device.type == "cuda"
    keep = os.environ.get("NVFP4_KEEP")

    def take() -> None:
        if keep:
            take_listings(process.scratch / "kept", Path(keep))

    return Extras(
        explain=likely_cause,
        open_clock=partial(GatedClock, process, device, deadline) if on_cuda else None,
        count=total_counts,
        find=findings_of,
        strict=strict,
        end_case=take,
        repeat=partial(Repetition, submission=submission, device=device, deadline=deadline),
    )
