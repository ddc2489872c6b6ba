"""The runner of a submission where nvfp4 is installed."""

from pathlib import Path

import torch

from nvfp4.local.emulated_runner import EmulatedRunner
from nvfp4.local.flushes import flushes
from nvfp4.local.gated_calls import GatedCalls
from nvfp4.local.retargeted_calls import RetargetedCalls
from runner import Runner


def installed_runner(submission: Path, flush: str) -> Runner:
    """Emulates kernels where there is no GPU; on one it also queues calls and rewrites kernels.

    flush: contest or clean.
    """
    make = Runner if torch.cuda.is_available() else EmulatedRunner
    runner = make(submission, flushes[flush])
    runner.operations.update(GatedCalls(runner).operations)
    runner.operations.update(RetargetedCalls(runner).operations)
    return runner
