"""The submission against what a user would run instead, in one process, by the judge's timer.

    python -m benchmarks.compare                    the contest's three shapes
    python -m benchmarks.compare --flush clean      no dirty lines in the cache
    python -m benchmarks.compare --sweep plot.png   1 MB to 1 GB of weights

Run it from the repository root on a machine with a GPU. Candidates take turns; a time is the median
of single calls on a cold L2 cache. The floor is that of `nvfp4 info`: the shortest of many reads of
the bytes that a call must move, after the same flush. Exits 1 if the submission is wrong.
"""

import argparse
import functools
import itertools
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import alternatives, plots
from nvfp4.cli.problem import load_problem
from nvfp4.gpu import timing
from nvfp4.gpu.timing import flushes
from nvfp4.judge.clock.calibration import measure_limits
from nvfp4.judge.clock.reads import Read, Reads
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.problems.nvfp4_gemv.extras import least_bytes
from nvfp4.problems.nvfp4_gemv.referee import shape_of
from nvfp4.records.cases import Case, label, parse_case
from nvfp4.tuner.space import load_submission

Call = Callable[[], object]

PLAIN = Read(512, 1)
"""Each thread reads 16 bytes."""


class Clock:
    """Times in microseconds: medians of single calls, and the shortest reads."""

    def __init__(self, flush: str) -> None:
        """flush: contest or clean."""
        device = torch.device("cuda", 0)
        self.flush = flush
        self.gbps = measure_limits(device, flushes[flush]).read_gbps
        self._timer = timing.CudaTimer(device, flushes[flush])
        self._reads = Reads(device)

    def medians_us(self, calls: dict[str, Call], repeats: int) -> dict[str, float]:
        """The calls take turns, after one each that may compile."""
        for call in calls.values():
            call()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _, (name, call) in itertools.product(range(repeats), calls.items()):
            times[name].append(self._timer.time(call)[1].call_ns / 1e3)
        return {name: statistics.median(values) for name, values in times.items()}

    def floors_us(self, sizes: list[int]) -> list[float]:
        """The shortest read of each of so many bytes."""
        return [ns / 1e3 for _, ns in self._reads.fastest(sizes, self._timer)]

    def plain_read(self, nbytes: int) -> Call:
        """A read of so many bytes."""
        return functools.partial(self._reads.read, nbytes, PLAIN)

    def median_us(self, call: Call) -> float:
        """Of seven calls."""
        return self.medians_us({"": call}, 7)[""]


def inputs(case: Case) -> Any:
    """Full-range inputs, as the judge makes them."""
    return reference.generate_full_range_input(*shape_of(case), case.seed)


def candidates(submission: Any, data: Any, clock: Clock) -> tuple[dict[str, Call], str]:
    """name -> call for everything that can run here, and notes on what was chosen."""
    found: dict[str, Call] = {
        "submission.py": functools.partial(submission.custom_kernel, data),
        "fp16 weights, cuBLAS": alternatives.cublas_fp16(data),
        "torch dequantise + bmm": alternatives.torch_dequantise_bmm(data),
    }
    note = "Triton is not installed"
    triton = alternatives.triton_kernel(data, clock.median_us)
    if triton:
        found["Triton kernel"], note = triton[0], f"Triton: {triton[1]}"
    published = alternatives.bitsandbytes_4bit(data)
    if published:
        found["bitsandbytes gemv_4bit"] = published
    return found, note


def wrong_ones(calls: dict[str, Call], data: Any) -> dict[str, str]:
    """name -> message for each call whose output is not the product of data."""
    expected = reference.ref_kernel(data)
    wrong = {}
    for name, call in calls.items():
        if name.startswith("bitsandbytes"):  # it has weights of its own
            continue
        data[6].fill_(float("nan"))
        right, message = reference.check_implementation(data, call(), expected)
        if not right:
            wrong[name] = message.splitlines()[0]
    return wrong


def table(submission: Any, clock: Clock, repeats: int) -> bool:
    """Prints times, and ratios to the floor and to ours, for the contest's shapes; False if ours
    is wrong.
    """
    good = True
    rows: dict[str, list[float]] = {}
    cases = [parse_case(line) for line in load_problem().benchmarks]
    floors = clock.floors_us([least_bytes(*shape_of(case)) for case in cases])
    for case in cases:
        data = inputs(case)
        calls, note = candidates(submission, data, clock)
        print(f"{case.spec}: {note}")
        for name, message in wrong_ones(calls, data).items():
            print(f"  {name}: {message}")
            good = good and name != "submission.py"
        calls["plain read"] = clock.plain_read(least_bytes(*shape_of(case)))
        for name, value in clock.medians_us(calls, repeats).items():
            rows.setdefault(name, []).append(value)
        del data, calls
        torch.cuda.empty_cache()
    floor = statistics.geometric_mean(floors)
    ours = rows["submission.py"]
    shapes = "  ".join(f"{label(case.spec).replace(' ', ''):>13}" for case in cases)
    print(f"\n{f'us, {clock.flush} flush':24}{shapes}   geomean  / floor   / ours")
    print(f"{'floor':24}" + "  ".join(f"{v:13.2f}" for v in floors) + f"  {floor:8.2f}")
    for name, values in sorted(rows.items(), key=lambda row: statistics.fmean(row[1])):
        mean = statistics.geometric_mean(values)
        least = min(value / our for value, our in zip(values, ours, strict=True))
        print(
            f"{name:24}"
            + "  ".join(f"{v:13.2f}" for v in values)
            + f"  {mean:8.2f}  {mean / floor:7.3f}"
            f"  {mean / statistics.geometric_mean(ours):7.2f}   (least {least:.2f})"
        )
    print(f"a long read: {clock.gbps:.0f} GB/s")
    return good


def sweep_cases() -> list[Case]:
    """Shapes with 1 MB to 1.1 GB of weights."""
    extents = ((128, 1000, 4096, 28672), (512, 2048, 7168, 16384, 53248), (1, 4, 32))
    return [
        parse_case(f"m: {m}; k: {k}; l: {l}; seed: 1")
        for m, k, l in itertools.product(*extents)
        if 1e6 <= l * m * k // 2 <= 1.1e9
    ]


def sweep(submission: Any, clock: Clock, path: pathlib.Path) -> None:
    """Prints ratios over the sweep and draws it. Each shape is timed in two separate rounds and the
    better median counts: a disturbance of the machine rarely meets both.
    """
    cases = sweep_cases()
    rounds = []
    for _ in range(2):
        found = []
        for case in cases:
            calls: dict[str, Call] = {
                "ours": functools.partial(submission.custom_kernel, inputs(case)),
                "plain": clock.plain_read(least_bytes(*shape_of(case))),
            }
            found.append(clock.medians_us(calls, 15))
        rounds.append(found)
    floors = clock.floors_us([least_bytes(*shape_of(case)) for case in cases])
    points = []
    for case, floor, *pair in zip(cases, floors, *rounds, strict=True):
        ours, plain = (min(times[name] for times in pair) for name in ("ours", "plain"))
        points.append(
            plots.Point(
                label(case.spec).replace(" ", ""), least_bytes(*shape_of(case)), ours, floor, plain
            )
        )
    for point in sorted(points, key=lambda p: p.bytes):
        print(
            f"{point.label:>16} {point.bytes / 1e6:8.1f} MB {point.ours_us:8.2f} us"
            f"  floor {point.floor_us:7.2f}  ratio {point.ours_us / point.floor_us:.3f}"
            f"  plain read {point.plain_us / point.floor_us:.3f}"
        )
    large = [p for p in points if p.bytes >= 16e6 * 1.125]
    worst = max(large, key=lambda p: p.ours_us / p.floor_us)
    print(f"worst from 16 MB of weights on: {worst.label}, {worst.ours_us / worst.floor_us:.3f}")
    plots.png(points, path, f"NVFP4 GEMV on {torch.cuda.get_device_name()}")


def main() -> int:
    """Prints the table, or draws the sweep; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--submission", type=pathlib.Path, default=pathlib.Path("submission.py"))
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--flush", choices=list(flushes), default="contest")
    parser.add_argument("--sweep", type=pathlib.Path, help="draw the sweep into this PNG instead")
    arguments = parser.parse_args()
    submission = load_submission(arguments.submission)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    clock = Clock(arguments.flush)
    if arguments.sweep:
        sweep(submission, clock, arguments.sweep)
        return 0
    return 0 if table(submission, clock, arguments.repeats) else 1


if __name__ == "__main__":
    sys.exit(main())
