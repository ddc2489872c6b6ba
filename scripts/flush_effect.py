"""What a flush before a timed call does to its time, on this GPU.

    PYTHONPATH=.:harness python -m scripts.flush_effect OUT.json

Run it from the repository root. For each benchmark shape, submission.py, a plain read of the same
bytes by one kernel, a sum of them by torch, and an empty kernel take turns after each of these:

- clean: writes four times the L2, then reads it;
- contest: the judge's, 4 GiB of normal random numbers in one buffer;
- randn: torch.randn of 4 GiB, a new tensor for each call, as the contest's benchmark does;
- zeros: 4 GiB of zeros, which is cheaper than random numbers;
- few zeros: four times the L2, written alone.

A time is the median of single calls, in microseconds.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.baselines import Baselines
from benchmarks.compare import inputs
from nvfp4.cli.problem import load_problem
from nvfp4.judge.cases import parse_case
from nvfp4.tuner.space import load_submission
from nvfp4.worker import timing
from nvfp4.worker.flushes import clean_flush

FLUSH_BYTES = 4 << 30
CALLS = 60
WARM_UP_CALLS = 3


def randn_flush(device: torch.device) -> Callable[[], None]:
    """The contest's own."""

    def flush() -> None:
        torch.cuda._sleep(timing.spin_cycles)
        torch.randn(FLUSH_BYTES // 4, device=device)

    return flush


def zeros_flush(nbytes: int, device: torch.device) -> Callable[[], None]:
    """Writes alone."""
    buffer = torch.empty(nbytes // 8, dtype=torch.int64, device=device)

    def flush() -> None:
        torch.cuda._sleep(timing.spin_cycles)
        buffer.zero_()

    return flush


def timers(device: torch.device) -> dict[str, timing.CudaTimer]:
    """One for each flush."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flushes: dict[str, timing.Flush] = {
        "clean": clean_flush,
        "contest": timing.contest_flush,
        "randn": randn_flush,
        "zeros": functools.partial(zeros_flush, FLUSH_BYTES),
        "few zeros": functools.partial(zeros_flush, 4 * l2_bytes),
    }
    return {name: timing.CudaTimer(device, flush) for name, flush in flushes.items()}


def medians_us(
    by_flush: dict[str, timing.CudaTimer], calls: dict[str, Callable[[], object]]
) -> dict[str, dict[str, float]]:
    """Call to flush to median; flushes and calls take turns."""
    times: dict[str, dict[str, list[float]]] = {
        name: {flush: [] for flush in by_flush} for name in calls
    }
    for _ in range(WARM_UP_CALLS + CALLS):
        for flush, timer in by_flush.items():
            for name, call in calls.items():
                times[name][flush].append(timer.time(call)[1].call_ns / 1e3)
    return {
        name: {flush: statistics.median(each[WARM_UP_CALLS:]) for flush, each in found.items()}
        for name, found in times.items()
    }


def main() -> int:
    """Writes and prints a JSON object."""
    device = torch.device("cuda", 0)
    submission, baselines = load_submission(Path("submission.py")), Baselines()
    by_flush = timers(device)
    shapes: dict[str, Any] = {}
    for case in [parse_case(line) for line in load_problem().benchmarks]:
        words = torch.empty(case.bytes // 8, dtype=torch.int64, device=device).random_()
        calls: dict[str, Callable[[], object]] = {
            "submission.py": functools.partial(submission.custom_kernel, inputs(case)),
            "plain read": functools.partial(baselines.read, case.bytes),
            "torch sum": words.sum,
            "empty kernel": baselines.empty,
        }
        shapes[f"{case.m}x{case.k}x{case.l}"] = medians_us(by_flush, calls)
    rows = next(iter(shapes.values()))
    geomeans = {
        name: {
            flush: statistics.geometric_mean([found[name][flush] for found in shapes.values()])
            for flush in by_flush
        }
        for name in rows
    }
    free_bytes = torch.cuda.mem_get_info(device)[0]
    found = {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "free_bytes": free_bytes,
        "read_gbps": baselines.gbps,
        "calls": CALLS,
        "median_us": shapes,
        "geomean_us": geomeans,
        "over_randn": {
            name: {flush: value / row["randn"] - 1 for flush, value in row.items()}
            for name, row in geomeans.items()
        },
    }
    text = json.dumps(found, indent=1)
    Path(sys.argv[1]).write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
