"""Submissions timed against each other on one device.

Mode ``compare FOLDER ROUNDS SEED CASEFILE``. FOLDER/0, FOLDER/1, ... hold a submission.py each.
ROUNDS: a fresh process of every file makes one; as many as there is room for start together and
are a wave; 0: until this process is ended. SEED: of the order of calls.

Writes to the result pipe: ``wave.N``, a JSON list [rounds][files][cases] of means in microseconds;
or ``failed``, an object of file, case (null where it was not loaded) and message; or ``error``.
"""

import json
import os
import secrets
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from nvfp4.contract.reference import default_device
from nvfp4.judge.cases import Case, read_cases
from nvfp4.judge.clock.device_limits import DeviceLimits, free_memory_bytes, measure_limits
from nvfp4.judge.compare.side_by_side import SideBySide
from nvfp4.judge.compare.timed_worker import FileFailed, started
from nvfp4.judge.opened_case import NotEnoughMemory, OutOfTime
from nvfp4.judge.protocol import Exit, Request
from nvfp4.records.options import Options
from nvfp4.sandbox import isolation
from nvfp4.worker.timing import flushes

most_rounds_at_once = 8

longest_bytes = 60 << 10

_flush_bytes, _context_bytes = 4 << 30, 1 << 30


class Comparison:
    """Waves of rounds. Methods raise FileFailed, OutOfTime and NotEnoughMemory."""

    def __init__(
        self, files: Sequence[Path], cases: Sequence[Case], options: Options, seed: int
    ) -> None:
        """The time limit of the options is that of a wave."""
        self._files, self._cases, self._options = files, cases, options
        self._orders = Random(seed)
        self._device = default_device()
        self._limits: DeviceLimits | None = None

    def wave(self, rounds: int) -> list[list[list[float]]]:
        """The means of so many rounds, microseconds [rounds][files][cases]."""
        deadline = time.monotonic() + self._options.timeout_s
        with started(self._files, rounds, self._options, deadline) as workers:
            processes = SideBySide(workers, self._device, deadline)
            processes.wait_until_ready()
            # Later a single one is clocked: it takes seconds, and nobody knows which.
            clocked: Sequence[int] = [secrets.randbelow(len(self._files))]
            if self._limits is None:
                self._limits = measure_limits(self._device, flushes[self._options.flush])
                clocked = range(len(self._files))
            if self._device.type == "cuda":
                processes.clock_some(clocked)
            processes.load()
            for number, case in enumerate(self._cases):
                processes.time(number, case, self._limits, self._orders)
            processes.refuse_disagreement()
        means = [worker.means_us for worker in workers]
        files = len(self._files)
        return [means[first : first + files] for first in range(0, len(means), files)]

    def rounds_at_once(self) -> int:
        """For how many processes of each file there are cores and memory."""
        if self._device.type == "cpu":
            return 1
        return room_for(
            len(self._files), len(os.sched_getaffinity(0)), free_memory_bytes(self._device)
        )


def room_for(files: int, cores: int, free_bytes: int) -> int:
    """How many processes of each file fit beside each other, one at least; a process has a context
    and what flushes the cache.
    """
    worker_bytes = min(_flush_bytes, free_bytes // 4) + _context_bytes
    return max(1, min(most_rounds_at_once, min(cores, free_bytes // worker_bytes) // files))


def compare(request: Request) -> Exit:
    """Runs wave after wave."""
    folder, case_file = Path(request.arguments[0]), Path(request.arguments[3])
    rounds, seed = map(int, request.arguments[1:3])
    pipe, options = request.pipe, request.options
    isolation.processes *= most_rounds_at_once * 2  # it counts those of all submissions
    files = [each / "submission.py" for each in sorted(folder.iterdir(), key=lambda e: int(e.name))]
    try:
        comparison = Comparison(files, read_cases(case_file, None), options, seed)
        at_once, done = comparison.rounds_at_once(), 0
        for number in count():
            if rounds and done >= rounds:
                return Exit.PASSED
            size = min(at_once, rounds - done) if rounds else at_once
            found = comparison.wave(size)
            pipe.write(f"wave.{number}", json.dumps(found), longest_bytes)
            done += size
    except FileFailed as failed:
        said: dict[str, Any] = {"file": failed.file, "case": failed.case, "message": str(failed)}
        said["failure"] = failed.failure.as_plain()
        pipe.write("failed", json.dumps(said), longest_bytes)
    except NotEnoughMemory as error:
        pipe.write("error", error)
    except OutOfTime:
        pipe.write("error", f"a round took longer than {options.timeout_s:g} s")
    return Exit.CHECK_FAILED
