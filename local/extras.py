"""What an installed nvfp4 adds to the judge."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from extras import Extras, no_time
from messages import Called
from nvfp4.local.diagnosis import likely_cause
from nvfp4.local.emulated_counts import total_counts
from nvfp4.local.findings import findings_of
from nvfp4.local.flushes import flushes
from nvfp4.local.gated_timing import GatedClock
from nvfp4.local.listings import take_listings
from nvfp4.local.options import called_by_the_command
from nvfp4.local.repeat import Repetition
from nvfp4.local.retargeted_kernels import RetargetedKernels
from nvfp4.local.write_back import WriteBack
from opened_case import OpenedCase
from protocol import ResultPipe
from submission_process import SubmissionFailed, SubmissionProcess


def judge_extras(
    process: SubmissionProcess,
    submission: Path,
    device: torch.device,
    deadline: float,
    flush: str,
    strict: bool,
    pipe: ResultPipe,
) -> Extras:
    """process: that of the submission. deadline: on the monotonic clock, in seconds. flush: contest
    or clean. strict: whether findings fail a case. pipe: takes what is known of the device only
    later.
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
        count=total_counts if called_by_the_command() else _refuse_counts,
        flush=flushes[flush],
        added_ns=WriteBack(device).added_ns if on_cuda and flush == "contest" else no_time,
        find=find,
        strict=strict,
        end_case=take,
        repeat=partial(Repetition, submission=submission, device=device, deadline=deadline),
    )


def _refuse_counts(reports: list[Any]) -> dict[str, Any]:
    """Raises SubmissionFailed: the bot ranks by times, and takes nothing else for a benchmark."""
    raise SubmissionFailed("there is no GPU here, and a kernel that is emulated has no time")
