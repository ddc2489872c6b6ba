"""Check and time configurations of the kernel on the present GPU, beside the floor.

    python scripts/kernel_probe.py check                      every odd shape against float64
    python scripts/kernel_probe.py rank [--shapes 7168,2048,4] [--limit 40]

A time is the median over calls, each timed by the judge's timer on a cold L2 cache; candidates take
turns. The floor is bytes over the bandwidth of the largest plain read plus an empty kernel's time.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import timing
from scripts.kernel_baselines import Baselines
from scripts.kernel_inputs import (
    Shape,
    bytes_of,
    contest_shapes,
    expected,
    inputs,
    mismatch,
    odd_shapes,
)
from scripts.sass import load_submission, shape_of


def check(submission: Any, capability: int, arguments: argparse.Namespace) -> bool:
    """Every shape with the rule's configuration and a spread of the declared space, for two ranges
    of scales; True if right."""
    good, total, off = True, 0, 0
    shapes: list[Shape] = arguments.shapes or odd_shapes + contest_shapes
    for m, k, l in shapes:
        space = submission.configurations(m, k, l, capability)
        chosen = [submission.configuration_for(m, k, l, capability)]
        if arguments.spread:
            chosen += space[:: max(1, len(space) // arguments.spread)]
        for scale_codes in (127, 64):
            data, raw = inputs(m, k, l, m + k + l, scale_codes)
            reference, magnitude = expected(raw)
            for configuration in chosen:
                data[6].fill_(float("nan"))
                out = submission.gemv(data, configuration)
                torch.cuda.synchronize()
                differ, wrong = mismatch(out, reference, magnitude)
                total, off = total + out.numel(), off + differ
                if wrong:
                    good = False
                    print(f"WRONG {m, k, l} {configuration} {wrong} of {out.numel()}")
    share = off / total
    print(
        f"check {'passed' if good else 'FAILED'}: {off} of {total} outputs ({share:.2e}) one "
        "unit in the last place from the correctly rounded ones"
    )
    return good


class Clock:
    """Medians of single calls on a cold L2 cache, by the judge's timer.

    With dirty, the flush only writes: the L2 is then full of lines that the timed call must have
    written back, as after a plain memset.
    """

    def __init__(self, dirty: bool = False) -> None:
        self.timer = timing.CudaTimer(torch.device("cuda"))
        if dirty:
            flush = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
            vars(self.timer)["flush"] = flush.zero_

    def medians_us(
        self, calls: dict[object, Callable[[], object]], repeats: int
    ) -> dict[object, float]:
        """name -> median time in microseconds; candidates take turns."""
        for call in calls.values():
            call()
        times: dict[object, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                times[name].append(self.timer.time(call)[1].call_ns / 1e3)
        return {name: statistics.median(values) for name, values in times.items()}


def candidates(submission: Any, shape: Shape, capability: int, only: str) -> list[Any]:
    """The configurations to rank: those given, or the declared space.

    A brace list stands for each of its values: 512/1/{2,4}/1/16.
    """
    if only:
        choices = [
            [values.strip("{}").split(",") for values in part.split("/")]
            for part in only.split(";")
        ]
        products = itertools.chain.from_iterable(itertools.product(*fields) for fields in choices)
        return [submission.Configuration(*map(int, fields)) for fields in products]
    return submission.configurations(*shape, capability)


def host_us(call: Callable[[], object]) -> float:
    """What a call costs the host, in microseconds."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(200):
        call()
    host = (time.perf_counter() - start) / 200 * 1e6
    torch.cuda.synchronize()
    return host


def rank(submission: Any, capability: int, arguments: argparse.Namespace) -> None:
    clock = Clock(arguments.dirty)
    baselines = Baselines()
    ratios = []
    shapes: list[Shape] = arguments.shapes or contest_shapes
    for i, shape in enumerate(shapes):
        only = (arguments.only.split("|") + [""] * i)[i]
        data, _ = inputs(*shape, 1)
        print(f"\n{shape} host {host_us(functools.partial(submission.gemv, data)):.1f} us a call")
        calls: dict[object, Callable[[], object]] = {
            "empty": baselines.empty,
            "plain read": functools.partial(baselines.read, bytes_of(*shape)),
        }
        tuned = submission.configuration_for(*shape, capability)
        for candidate in [tuned, *candidates(submission, shape, capability, only)]:
            calls[candidate] = functools.partial(submission.gemv, data, candidate)
        if arguments.limit and len(calls) > arguments.limit + 3:
            times = clock.medians_us(calls, 5)
            best = sorted(times, key=lambda name: times[name])[: arguments.limit]
            keep = {"empty", "plain read", tuned, *best}
            calls = {name: call for name, call in calls.items() if name in keep}
        times = clock.medians_us(calls, arguments.repeats)
        floor = baselines.floor_us(bytes_of(*shape), times["empty"])
        print(
            f"{shape} floor {floor:.2f} us ({baselines.gbps:.0f} GB/s, "
            f"empty {times['empty']:.2f} us), plain read "
            f"{times['plain read']:.2f} us ({times['plain read'] / floor:.3f})"
        )
        ordered = [name for name in sorted(times, key=lambda n: times[n]) if name in calls]
        for name in [n for n in ordered if not isinstance(n, str)][: arguments.top]:
            mark = "*" if name == tuned else " "
            fields = "/".join(str(v) for v in vars(name).values())
            print(f" {mark} {times[name]:7.2f} us {times[name] / floor:.3f}  {fields}")
        best_time = min(times[n] for n in calls if not isinstance(n, str))
        ratios.append((times[tuned], best_time, floor, times["plain read"]))
    columns = [statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
    print(
        f"\ngeometric mean: tuned {columns[0]:.2f} us ({columns[0] / columns[2]:.3f}), best "
        f"{columns[1]:.2f} ({columns[1] / columns[2]:.3f}), floor {columns[2]:.2f}, "
        f"plain read {columns[3]:.2f} ({columns[3] / columns[2]:.3f})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "mode",
        nargs="+",
        choices=[
            "check",
            "rank",
        ],
    )
    parser.add_argument("--submission", type=pathlib.Path, default=root / "submission.py")
    parser.add_argument("--shapes", default="", help="m,k,l;m,k,l")
    parser.add_argument(
        "--only", default="", help="for each shape, a/b/c/d/e;... instead of all; | between shapes"
    )
    parser.add_argument("--limit", type=int, default=30, help="configurations kept after 5 calls")
    parser.add_argument("--top", type=int, default=12, help="configurations printed a shape")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--spread", type=int, default=3, help="configurations checked a shape")
    parser.add_argument("--dirty", action="store_true", help="flush by writing only")
    arguments = parser.parse_args()
    arguments.shapes = [shape_of(shape) for shape in arguments.shapes.split(";") if shape]
    os.environ.pop("CUTE_DSL_ARCH", None)
    submission = load_submission(arguments.submission)
    capability = submission.compute_capability()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    good = True
    for mode in arguments.mode:
        if mode == "check":
            good = check(submission, capability, arguments)
        else:
            rank(submission, capability, arguments)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
