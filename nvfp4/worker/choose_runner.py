"""The runner of a submission: on a GPU, or on a stand-in for one."""

from pathlib import Path

import torch

from nvfp4.records.options import Options
from nvfp4.worker.emulated_runner import EmulatedRunner
from nvfp4.worker.gated_calls import GatedCalls
from nvfp4.worker.runner import Runner, send_lines_at_once


def make_runner(submission: Path, options: Options) -> Runner:
    """Return the runner of a submission: without a GPU it sends kernels to the emulator; on a GPU
    it may rewrite them, and queues calls."""
    send_lines_at_once()
    if torch.cuda.is_available():
        from nvfp4.retarget.extensions import watch_compilers
        from nvfp4.worker.fitting import RetargetedCalls

        runner = Runner(submission, options)
        watch_compilers(runner.state.busy)
        runner.operations |= RetargetedCalls(runner, options).operations
    else:
        runner = EmulatedRunner(submission, options)
    runner.operations |= GatedCalls(runner).operations
    return runner
