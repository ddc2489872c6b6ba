"""The runner of a submission where nvfp4 is installed."""

from pathlib import Path

import torch

from nvfp4.local.emulated_runner import EmulatedRunner
from nvfp4.local.explained_calls import ExplainedCalls
from nvfp4.local.flushes import flushes
from nvfp4.local.gated_calls import GatedCalls
from nvfp4.local.loading import Loading
from nvfp4.local.printed import send_lines_at_once
from nvfp4.local.recorded_calls import RecordedCalls
from nvfp4.local.reporting_runner import ReportingRunner
from nvfp4.local.retargeted_calls import RetargetedCalls
from runner import Runner


def installed_runner(submission: Path, flush: str) -> Runner:
    """Emulates kernels where there is no GPU; on one it also queues calls and rewrites kernels.

    flush: contest or clean.
    """
    send_lines_at_once()
    make = ReportingRunner if torch.cuda.is_available() else EmulatedRunner
    runner: Runner = make(submission, flushes[flush])
    if isinstance(runner, EmulatedRunner):
        runner.operations.update(ExplainedCalls(runner, submission.parent).operations)
        runner.operations.update(RecordedCalls(runner).operations)
    runner.operations.update(GatedCalls(runner).operations)
    runner.operations.update(RetargetedCalls(runner).operations)
    runner.operations.update(Loading(runner, submission).operations)
    return runner
