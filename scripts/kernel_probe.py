"""Check and time configurations of the kernel on the present GPU, beside the floor.

    python scripts/kernel_probe.py check                      every odd shape against float64
    python scripts/kernel_probe.py rank [--shapes 7168,2048,4] [--limit 40]
    python scripts/kernel_probe.py sweep                      1 MB to 1 GB of weights

A time is the median over calls, each timed by the judge's timer on a cold L2 cache; candidates take
turns. The floor is bytes / streaming bandwidth (largest
plain read of 2 GiB) plus the same pair of events around an empty kernel.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import torch

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root))
import timing  # noqa: E402
from scripts.kernel_baselines import Baselines  # noqa: E402

contest_shapes = [(7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4)]
odd_shapes = [
    (1, 64, 1),
    (3, 64, 5),
    (17, 192, 2),
    (129, 320, 3),
    (128, 256, 1),
    (2432, 4608, 2),
    (384, 7168, 2),
    (33, 1088, 2),
    (250, 2112, 3),
    (7, 16384, 1),
    (5, 131072, 2),
    (2, 64, 70000),
]


def load_submission(path: pathlib.Path):
    """The submission at path as a module."""
    spec = importlib.util.spec_from_file_location("submission", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    return module


def inputs(m: int, k: int, l: int, seed: int, scale_codes: int = 127):
    """A full-range input: all 16 codes, all finite scales below scale_codes, both signs."""
    g = torch.Generator(device="cuda").manual_seed(seed)

    def codes(*shape: int) -> torch.Tensor:
        size = (*shape,)
        return torch.randint(0, 256, size, generator=g, device="cuda", dtype=torch.uint8)

    def scales(*shape: int) -> torch.Tensor:
        low = torch.randint(0, scale_codes, shape, generator=g, device="cuda", dtype=torch.uint8)
        return low | (codes(*shape) & 128)

    a, b = codes(l, m, k // 2), codes(l, 128, k // 2)
    sfa, sfb = scales(l, m, k // 16), scales(l, 128, k // 16)
    c = torch.full((l, m, 1), float("nan"), device="cuda", dtype=torch.float16)
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    view = [
        a.view(fp4).permute(1, 2, 0),
        b.view(fp4).permute(1, 2, 0),
        sfa.view(fp8).permute(1, 2, 0),
        sfb.view(fp8).permute(1, 2, 0),
        None,
        None,
        c.permute(1, 2, 0),
    ]
    return tuple(view), (a, b, sfa, sfb)


def expected(raw) -> tuple[torch.Tensor, torch.Tensor]:
    """The product in float64, [m, 1, l], and the sum of the magnitudes of its terms."""
    a, b, sfa, sfb = raw
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device="cuda", dtype=torch.float64)
    table = torch.cat([table, -table])

    def values(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        pairs = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).int()
        factor = scales.view(torch.float8_e4m3fn).double().repeat_interleave(16, -1)
        return table[pairs] * factor

    products, magnitudes = [], []
    step = max(1, (1 << 27) // (a.shape[1] * a.shape[2] * 2))
    for i in range(0, a.shape[0], step):
        vector = values(b[i : i + step, :1], sfb[i : i + step, :1])
        terms = values(a[i : i + step], sfa[i : i + step]) * vector
        products.append(terms.sum(-1))
        magnitudes.append(terms.abs().sum(-1))
    return torch.cat(products).t().unsqueeze(1), torch.cat(magnitudes).t().unsqueeze(1)


def mismatch(out: torch.Tensor, reference: torch.Tensor, magnitude: torch.Tensor):
    """How many outputs differ from the correctly rounded ones, and how many by more than f32
    rounding of terms of that magnitude and one unit in the last place of f16 explain."""
    right = reference.to(torch.float16)
    same = (out == right) | (torch.isnan(out) & torch.isnan(right))
    error = (out.double() - reference).abs()
    allowed = reference.abs() * 2.0**-10 + 2.0**-24 + magnitude * 2.0**-22
    infinite = torch.isinf(out) | torch.isinf(right)
    error = torch.where(infinite & ((reference.abs() - 65504).abs() < 64), 0.0, error)
    wrong = ~same & ~(error <= allowed)
    return int((~same).sum()), int(wrong.sum())


def configurations_to_check(submission, m: int, k: int, l: int, capability: int):
    """The rule's configuration and a spread of the declared space."""
    space = submission.configurations(m, k, l, capability)
    return [submission.configuration_for(m, k, l, capability), *space[:: max(1, len(space) // 3)]]


def check(submission, capability: int) -> bool:
    """Every odd shape, the spread of configurations and two ranges of scales; True if right."""
    good, total, off = True, 0, 0
    for m, k, l in odd_shapes + contest_shapes:
        for scale_codes in (127, 64):
            data, raw = inputs(m, k, l, m + k + l, scale_codes)
            reference, magnitude = expected(raw)
            for configuration in configurations_to_check(submission, m, k, l, capability):
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
            flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
            self.timer.flush = flush.zero_

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


def bytes_of(m: int, k: int, l: int) -> int:
    """The least that a call must move: a, sfa, row 0 of b and sfb, c."""
    return l * (m + 1) * (k // 2 + k // 16) + 2 * m * l


def candidates(submission, shape, capability: int, only: str):
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


def rank(submission, capability: int, arguments) -> None:
    clock = Clock(arguments.dirty)
    baselines = Baselines()
    ratios = []
    for i, shape in enumerate(arguments.shapes):
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


def sweep(submission, arguments) -> None:
    """Time against bytes for shapes from 1 MB to 1 GB of weights."""
    clock = Clock(arguments.dirty)
    baselines = Baselines()
    print("      m       k     l        MB       us   floor  ratio  plain")
    shapes = itertools.product(
        (128, 1000, 4096, 28672), (512, 2048, 7168, 16384, 53248), (1, 4, 32)
    )
    worst = 0.0
    for shape in shapes:
        m, k, l = shape
        weights = l * m * k // 2
        if not 1e6 <= weights <= 1.1e9:
            continue
        data, _ = inputs(*shape, 1)
        size = bytes_of(*shape)
        calls = {
            "empty": baselines.empty,
            "ours": functools.partial(submission.gemv, data),
            "plain": functools.partial(baselines.read, size),
        }
        times = clock.medians_us(calls, 15)
        floor = baselines.floor_us(size, times["empty"])
        ratio = times["ours"] / floor
        worst = max(worst, ratio) if weights >= 16e6 else worst
        print(
            f"{m:7d} {k:7d} {l:5d} {weights / 1e6:9.1f} {times['ours']:8.2f} {floor:7.2f} "
            f"{ratio:6.3f} {times['plain'] / floor:6.3f}"
            + ("  ABOVE 1.25" if ratio > 1.25 and weights >= 16e6 else "")
        )
    print(f"worst ratio from 16 MB on: {worst:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", nargs="+", choices=["check", "rank", "sweep"])
    parser.add_argument("--submission", type=pathlib.Path, default=root / "submission.py")
    parser.add_argument("--shapes", default="", help="m,k,l;m,k,l")
    parser.add_argument(
        "--only", default="", help="for each shape, a/b/c/d/e;... instead of all; | between shapes"
    )
    parser.add_argument("--limit", type=int, default=30, help="configurations kept after 5 calls")
    parser.add_argument("--top", type=int, default=12, help="configurations printed a shape")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--dirty", action="store_true", help="flush by writing only")
    arguments = parser.parse_args()
    arguments.shapes = [
        tuple(map(int, shape.split(","))) for shape in arguments.shapes.split(";") if shape
    ] or contest_shapes
    os.environ.pop("CUTE_DSL_ARCH", None)
    submission = load_submission(arguments.submission)
    capability = submission.compute_capability()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    good = True
    for mode in arguments.mode:
        if mode == "check":
            good = check(submission, capability)
        elif mode == "rank":
            rank(submission, capability, arguments)
        else:
            sweep(submission, arguments)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
