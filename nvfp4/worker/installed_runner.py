"""The runner of a submission: on a GPU, or on a stand-in for one."""

from pathlib import Path

import torch

from nvfp4.records.options import Options
from nvfp4.worker.emulated_runner import EmulatedRunner
from nvfp4.worker.explained_calls import ExplainedCalls
from nvfp4.worker.gated_calls import GatedCalls
from nvfp4.worker.loading import Loading
from nvfp4.worker.printed import send_lines_at_once
from nvfp4.worker.recorded_calls import RecordedCalls
from nvfp4.worker.reporting_runner import ReportingRunner
from nvfp4.worker.retargeted_calls import RetargetedCalls
from nvfp4.worker.runner import Runner


def installed_runner(submission: Path, options: Options) -> Runner:
    """Emulates kernels where there is no GPU; on one it also queues calls and rewrites kernels."""
    send_lines_at_once()
    make = ReportingRunner if torch.cuda.is_available() else EmulatedRunner
    runner: Runner = make(submission, options)
    if isinstance(runner, EmulatedRunner):
        runner.operations.update(ExplainedCalls(runner, submission.parent).operations)
        runner.operations.update(RecordedCalls(runner).operations)
    runner.operations.update(GatedCalls(runner).operations)
    runner.operations.update(RetargetedCalls(runner, options).operations)
    runner.operations.update(Loading(runner, submission).operations)
    return runner
