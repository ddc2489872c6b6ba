"""The worker's side of a call whose launches another process runs."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

from nvfp4.records.execution_messages import Record, Recorded
from nvfp4.records.launch_records import outbox_bytes
from nvfp4.shared_memory.whole_mapping import whole_mapping
from nvfp4.worker.emulated_runner import EmulatedRunner


class RecordedCalls:
    """The operation on a runner's submission."""

    def __init__(self, runner: EmulatedRunner) -> None:
        self._runner = runner
        self.operations: dict[type, Callable[[Any, int | None], object]] = {Record: self._record}

    def _record(self, request: Record, fd: int | None) -> Recorded:
        runner = self._runner
        outbox = mmap.mmap(fd, outbox_bytes) if request.fresh and fd is not None else None
        emulation = runner.begin_call()
        base, nbytes = whole_mapping(runner.buffers)
        c = runner.buffers.tensors["c"]
        with emulation.recording(outbox) as recorder:
            recorder.begin((base, nbytes), (c.data_ptr(), c.numel()))
            try:
                output = runner.kernel(runner.data(runner.buffers))
                runner.refuse_other_outputs(output)
                emulation.end_call()
                said = recorder.finish()
            except Exception:
                if recorder.refused is None:
                    raise
                return Recorded({}, True, recorder.refused)
        launched = recorder.launched
        if not any(step["launch"] for step in said["steps"]):
            return Recorded({}, launched, recorder.refused or "no kernel was launched")
        if recorder.refused is not None:
            return Recorded({}, launched, recorder.refused)
        width = output.element_size()
        call = {
            **said,
            "base": base,
            "output": output.data_ptr(),
            "dtype": str(output.dtype).removeprefix("torch."),
            "strides": [each * width for each in output.stride()],
        }
        return Recorded(call, launched, "")
