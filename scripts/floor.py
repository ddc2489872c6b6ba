"""Whether what is called the floor is one: reads of all kinds, kernels, and the floors of a judge.

    python -m scripts.floor OUT.json [--processes N]

For the three benchmark shapes and both flushes: the times of more ways to read than the judge
tries, of our submission and two rungs of the ladder, a sum by torch and an empty kernel, which take
turns in one process, and the judge's floors, measured three times. All of it in several processes,
one after the other. Microseconds. Exits with 1 where a mean is below a floor.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.compare import inputs
from nvfp4.cli.problem import load_problem
from nvfp4.judge.cases import parse_case
from nvfp4.judge.clock.device_limits import measure_limits
from nvfp4.judge.clock.reads import Read, Reads, ways
from nvfp4.retarget.driver import installed_driver
from nvfp4.tuner.space import load_submission
from nvfp4.worker.timing import CudaTimer, flushes

ROUNDS = 24
FILES = ["submission.py", "ladder/cute/11_tuned.py", "ladder/cute/12_one_asm.py"]


def more_ways(device: torch.device) -> dict[str, list[Read]]:
    """Those of the judge and others."""
    found = ways(torch.cuda.get_device_capability(device), installed_driver().newest_ptx())
    plain, *others = found
    sizes = [(threads, loads) for threads in (128, 256, 512, 1024) for loads in (1, 2, 4, 8)]
    found[plain] = [Read(*size) for size in sizes]
    for header in others:
        if any(read.bulk for read in found[header]):
            kib = (4, 8, 16, 24, 32, 40, 64, 96)
            found[header] = [Read(32, 1, each << 10, bulk=True) for each in kib]
    return found


def words(read: Read) -> str:
    """What a way is called."""
    return f"bulk {read.load_bytes >> 10} KiB" if read.bulk else f"{read.threads} x {read.name[5:]}"


def summary(times_us: list[float]) -> dict[str, float]:
    """Of single calls."""
    ordered = sorted(times_us)
    return {
        "min": ordered[0],
        "p10": ordered[len(ordered) // 10],
        "median": statistics.median(ordered),
        "mean": statistics.fmean(ordered),
    }


def measured(flush: str) -> dict[str, Any]:
    """All that is timed in one process."""
    device = torch.device("cuda", 0)
    submissions = {name: load_submission(Path(name)) for name in FILES}
    limits = measure_limits(device, flushes[flush])
    cases = [parse_case(line) for line in load_problem().benchmarks]
    sizes = [case.bytes for case in cases]
    timer = CudaTimer(device, flushes[flush])
    floors, seconds = [], []
    for _ in range(3):
        start_s = time.perf_counter()
        reads = Reads(device)
        floors.append([each / 1e3 for each in reads.fastest_ns(sizes, timer)])
        seconds.append(time.perf_counter() - start_s)
    reads = Reads(device, more_ways(device))
    found: dict[str, Any] = {
        "limits": vars(limits),
        "floors_us": floors,
        "floors_s": seconds,
        "bounds_us": [limits.floor_ns(size) / 1e3 for size in sizes],
        "times_us": {},
    }
    for case in cases:
        data = inputs(case)
        long = torch.empty(case.bytes // 8, dtype=torch.int64, device=device).random_()
        calls: dict[str, Callable[[], object]] = {
            **{
                name: functools.partial(submission.custom_kernel, data)
                for name, submission in submissions.items()
            },
            "torch sum": long.sum,
            "empty kernel": functools.partial(torch.cuda._sleep, 0),
        }
        times: dict[str, list[float]] = {name: [] for name in (*calls, *map(words, reads.ways))}
        for number in range(-2, ROUNDS):
            place = max(0, number) / ROUNDS
            for way in reads.ways:
                calls[words(way)] = functools.partial(reads.read, case.bytes, way, place)
            for name, call in calls.items():
                _, taken = timer.time(call)
                if number >= 0 and not taken.late:
                    times[name].append(taken.call_ns / 1e3)
        shape = f"{case.m}x{case.k}x{case.l}"
        found["times_us"][shape] = {name: summary(each) for name, each in times.items()}
    return found


def show(flush: str, process: int, found: dict[str, Any]) -> None:
    """Prints a line for each call, the fastest first."""
    limits = {name: round(value, 1) for name, value in found["limits"].items()}
    print(f"\n{flush} flush, process {process}: {limits}")
    for floors, seconds in zip(found["floors_us"], found["floors_s"], strict=True):
        print(f"  judge's floors {' '.join(f'{each:8.2f}' for each in floors)}  in {seconds:.2f} s")
    print(f"  least          {' '.join(f'{each:8.2f}' for each in found['bounds_us'])}")
    for shape, times in found["times_us"].items():
        print(f"  {shape:22}     min     p10  median    mean")
        for name in sorted(times, key=lambda name: times[name]["median"]):
            values = " ".join(f"{value:7.2f}" for value in times[name].values())
            print(f"    {name:20} {values}")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--one", choices=list(flushes), help="measure in this process")
    given = parser.parse_args()
    if given.one:
        given.out.write_text(json.dumps(measured(given.one)))
        return 0
    processes: list[dict[str, Any]] = []
    good = True
    for process in range(given.processes):
        for flush in flushes:
            command = [sys.executable, "-m", "scripts.floor", str(given.out), "--one", flush]
            subprocess.run(command, check=True)
            result = json.loads(given.out.read_text())
            show(flush, process, result)
            processes.append({"flush": flush, **result})
            floors_by_shape = zip(*result["floors_us"], strict=True)
            by_shape = result["times_us"].values()
            for times, floors in zip(by_shape, floors_by_shape, strict=True):
                reading = [times[name]["mean"] for name in times if name != "empty kernel"]
                good = good and max(floors) <= min(reading)
    device = torch.cuda.get_device_name()
    given.out.write_text(json.dumps({"device": device, "processes": processes}))
    print("no mean is below a floor" if good else "A MEAN IS BELOW A FLOOR")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
