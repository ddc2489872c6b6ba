"""The submission against what a user would run instead, in one process, by the judge's timer.

    python benchmarks/compare.py                       a table for the contest's three shapes
    python benchmarks/compare.py --sweep plot.png      time against bytes, 1 MB to 1 GB of weights

Candidates take turns; a time is the median of single calls on a cold L2 cache. The floor is the
bytes a call must move over the bandwidth of the largest plain read, plus an empty kernel's time.
Exits 1 when an answer is wrong.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

import timing
from benchmarks import alternatives, plots
from scripts.kernel_baselines import Baselines
from scripts.kernel_inputs import bytes_of, contest_shapes, expected, inputs
from scripts.sass import load_submission

# Scale codes below this are at most 2, so that float16 holds every dequantised product.
scale_codes = 0x41


class Clock:
    """Median times of single calls."""

    def __init__(self) -> None:
        self.timer = timing.CudaTimer(torch.device("cuda"))

    def call_us(self, call: Callable[[], object]) -> float:
        return self.timer.time(call)[1].call_ns / 1e3

    def quick_us(self, call: Callable[[], object]) -> float:
        """The median of seven calls after one that may compile."""
        call()
        return statistics.median(self.call_us(call) for _ in range(7))

    def medians_us(self, calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
        for call in calls.values():
            call()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _, (name, call) in itertools.product(range(repeats), calls.items()):
            times[name].append(self.call_us(call))
        return {name: statistics.median(values) for name, values in times.items()}


def candidates(submission: Any, data: Any, clock: Clock) -> tuple[dict[str, Callable], str]:
    """name -> call for everything that can run here, and a note on the Triton kernel."""
    found: dict[str, Callable] = {
        "submission.py": functools.partial(submission.custom_kernel, data),
        "fp16 weights, cuBLAS": alternatives.cublas_fp16(data),
        "torch dequantise + bmm": alternatives.torch_dequantise_bmm(data),
    }
    note = "Triton is not installed"
    triton = alternatives.triton_kernel(data, clock.quick_us)
    if triton:
        found["Triton kernel"], note = triton[0], f"Triton: {triton[1]}"
    published = alternatives.bitsandbytes_4bit(data)
    if published:
        found["bitsandbytes gemv_4bit"] = published
    return found, note


def wrong_share(out: torch.Tensor, reference: torch.Tensor) -> float:
    """The share of outputs outside the contest's tolerance."""
    error = (out.double() - reference).abs()
    return float((~(error <= 1e-3 + 1e-3 * reference.abs())).double().mean())


def table(submission: Any, baselines: Baselines, clock: Clock, repeats: int) -> bool:
    """Print times, ratios to the floor and to ours for the three shapes; False if ours is wrong."""
    good = True
    rows: dict[str, list[float]] = {}
    floors = []
    for shape in contest_shapes:
        data, raw = inputs(*shape, 1, scale_codes)
        calls, note = candidates(submission, data, clock)
        reference, _ = expected(raw)
        for name, call in calls.items():
            if name.startswith("bitsandbytes"):
                continue
            data[6].fill_(float("nan"))
            share = wrong_share(call(), reference)
            if share:
                print(f"{shape} {name}: {share:.2%} of outputs outside the tolerance")
                good = good and name != "submission.py"
        del reference, raw
        calls |= {
            "empty kernel": baselines.empty,
            "plain read": functools.partial(baselines.read, bytes_of(*shape)),
        }
        times = clock.medians_us(calls, repeats)
        floors.append(baselines.floor_us(bytes_of(*shape), times.pop("empty kernel")))
        for name, value in times.items():
            rows.setdefault(name, []).append(value)
        print(f"{shape}: {note}")
        torch.cuda.empty_cache()
    floor = statistics.geometric_mean(floors)
    shapes = "  ".join(f"{'x'.join(map(str, shape)):>13}" for shape in contest_shapes)
    print(f"\n{'us':24}{shapes}   geomean  / floor   / ours")
    print(f"{'floor':24}" + "  ".join(f"{v:13.2f}" for v in floors) + f"  {floor:8.2f}")
    ours = rows["submission.py"]
    for name, values in sorted(rows.items(), key=lambda row: statistics.fmean(row[1])):
        mean = statistics.geometric_mean(values)
        least = min(value / our for value, our in zip(values, ours, strict=True))
        print(
            f"{name:24}"
            + "  ".join(f"{v:13.2f}" for v in values)
            + f"  {mean:8.2f}  {mean / floor:7.3f}"
            f"  {mean / statistics.geometric_mean(ours):7.2f}   (least {least:.2f})"
        )
    print(f"plain read of 2 GiB: {baselines.gbps:.0f} GB/s")
    return good


def sweep_shapes() -> list[tuple[int, int, int]]:
    """(m, k, l) with 1 MB to 1.1 GB of weights."""
    extents = ((128, 1000, 4096, 28672), (512, 2048, 7168, 16384, 53248), (1, 4, 32))
    return [(m, k, l) for m, k, l in itertools.product(*extents) if 1e6 <= l * m * k // 2 <= 1.1e9]


def sweep(submission: Any, baselines: Baselines, clock: Clock, path: pathlib.Path) -> None:
    """Print ratios over the sweep and draw it. Each shape is timed in two rounds, apart from one
    another, and the better median counts: a disturbance of the machine rarely meets both."""
    rounds = []
    for _ in range(2):
        found = []
        for shape in sweep_shapes():
            data, _ = inputs(*shape, 1)
            calls: dict[str, Callable[[], object]] = {
                "ours": functools.partial(submission.custom_kernel, data),
                "empty": baselines.empty,
                "plain": functools.partial(baselines.read, bytes_of(*shape)),
            }
            found.append(clock.medians_us(calls, 15))
        rounds.append(found)
    empty_us = min(times["empty"] for found in rounds for times in found)
    points = []
    for shape, *pair in zip(sweep_shapes(), *rounds, strict=True):
        ours, plain = (min(times[name] for times in pair) for name in ("ours", "plain"))
        floor = baselines.floor_us(bytes_of(*shape), empty_us)
        points.append(plots.Point("x".join(map(str, shape)), bytes_of(*shape), ours, floor, plain))
    for point in sorted(points, key=lambda p: p.bytes):
        print(
            f"{point.label:>16} {point.bytes / 1e6:8.1f} MB {point.ours_us:8.2f} us"
            f"  floor {point.floor_us:7.2f}  ratio {point.ours_us / point.floor_us:.3f}"
            f"  plain read {point.plain_us / point.floor_us:.3f}"
        )
    print(plots.terminal(points))
    large = [p for p in points if p.bytes >= 16e6 * 1.125]
    worst = max(large, key=lambda p: p.ours_us / p.floor_us)
    print(f"worst from 16 MB of weights on: {worst.label}, {worst.ours_us / worst.floor_us:.3f}")
    plots.png(points, path, f"NVFP4 GEMV on {torch.cuda.get_device_name()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submission", type=pathlib.Path, default=root / "submission.py")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--sweep", type=pathlib.Path, help="draw the sweep into this PNG instead")
    arguments = parser.parse_args()
    submission = load_submission(arguments.submission)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    baselines, clock = Baselines(), Clock()
    if arguments.sweep:
        sweep(submission, baselines, clock, arguments.sweep)
        return 0
    return 0 if table(submission, baselines, clock, arguments.repeats) else 1


if __name__ == "__main__":
    sys.exit(main())
