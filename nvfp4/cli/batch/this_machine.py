"""Judges the submissions of a batch on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nvfp4.cli.batch.eval_process import Candidate, EvalProcesses
from nvfp4.cli.batch.options import BatchOptions, Busy, Told
from nvfp4.cli.batch.places import Place, cpu_places, gpu_places, judge_on
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.info import visible_gpus


class ThisMachine:
    """kind: cuda or cpu."""

    def __init__(self, options: BatchOptions) -> None:
        """Raises SetupError."""
        self._options = options
        self._places = _places(options)
        self.kind = self._places[0].device.partition(":")[0]

    def judge(self, candidates: Sequence[Candidate], told: Told, busy: Busy) -> None:
        """As of Judges."""
        processes = EvalProcesses(self._options.arguments, self._options.limit_s)

        def judge(candidate: Candidate, place: Place) -> dict[str, Any]:
            busy[place.name] = (str(candidate.paths[0]), time.monotonic())
            try:
                return processes.judge(candidate, place.device, place.environment)
            finally:
                del busy[place.name]

        judge_on(self._places, candidates, judge, processes.stop, told)


def _places(options: BatchOptions) -> list[Place]:
    gpus = [] if options.device in ("cpu", "emulate") else visible_gpus()
    if not gpus:
        if options.device.startswith("cuda") or options.gpus:
            raise SetupError("there is no GPU", "--device cpu judges without.")
        return cpu_places(options.jobs)
    if options.jobs:
        raise SetupError(
            "a GPU judges one submission at a time", "--gpus N says how many.", "usage"
        )
    if ":" in options.device:
        return [Place(options.device, options.device)]
    wanted = options.gpus or len(gpus)
    if wanted > len(gpus):
        raise SetupError(f"there are {len(gpus)} GPUs, not {wanted}", "Leave out --gpus.", "usage")
    return gpu_places(gpus[:wanted])
