"""What an installed nvfp4 adds to the judge."""

from functools import partial

import torch

from extras import Extras
from nvfp4.local.diagnosis import likely_cause
from nvfp4.local.emulated_counts import total_counts
from nvfp4.local.gated_timing import GatedClock
from submission_process import SubmissionProcess


def judge_extras(process: SubmissionProcess, device: torch.device, deadline: float) -> Extras:
    """deadline: on the monotonic clock, in seconds."""
    on_cuda = device.type == "cuda"
    return Extras(
        explain=likely_cause,
        open_clock=partial(GatedClock, process, device, deadline) if on_cuda else None,
        count=total_counts,
    )
