"""The runner of a submission: on a GPU, or on a stand-in for one."""

from pathlib import Path

import torch

from nvfp4.records.options import Options
from nvfp4.worker.emulated_runner import EmulatedRunner
from nvfp4.worker.gated_calls import GatedCalls
from nvfp4.worker.gpu_runner import GpuRunner
from nvfp4.worker.printed import send_lines_at_once
from nvfp4.worker.runner import Runner


def make_runner(submission: Path, options: Options) -> Runner:
    """The one for this machine, which also queues calls behind a gate."""
    send_lines_at_once()
    kind = GpuRunner if torch.cuda.is_available() else EmulatedRunner
    runner: Runner = kind(submission, options)
    runner.operations |= GatedCalls(runner).operations
    return runner
