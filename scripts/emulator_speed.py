"""Time the emulator on the test kernels: the contest's tests and its three benchmark shapes.

python scripts/emulator_speed.py                     every kernel
python scripts/emulator_speed.py tma --no-check      some, without the costly checks
python scripts/emulator_speed.py plain --profile     where the time goes, largest shape
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import pstats
import resource
import sys
import time
from pathlib import Path
from typing import Any

root = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(root), str(root / "tests")]

from reference import check_implementation, generate_input

KERNELS = ("plain", "shared_memory", "warp_per_row", "packed", "cp_async", "tma")
TESTS = (
    (128, 256, 1),
    (128, 1536, 1),
    (128, 3072, 1),
    (256, 7168, 1),
    (256, 7168, 1),
    (2432, 4608, 2),
    (384, 7168, 2),
    (512, 512, 2),
    (512, 4096, 2),
    (512, 1536, 2),
)
BENCHMARKS = ((7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4))
SEED = 1111


def timed(kernel: Any, shape: tuple[int, int, int], verify: bool) -> float:
    """Seconds of one call of the kernel on new inputs, which it must get right."""
    data = generate_input(*shape, SEED)
    began = time.perf_counter()
    output = kernel.custom_kernel(data)
    seconds = time.perf_counter() - began
    if verify:
        right, message = check_implementation(data, output)
        if not right:
            raise SystemExit(f"{kernel.__name__} is wrong at {shape}: {message}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL")
    parser.add_argument("--no-check", action="store_true", help="switch the costly checks off")
    parser.add_argument("--no-verify", action="store_true", help="do not compare the outputs")
    parser.add_argument("--profile", action="store_true", help="profile the largest shape")
    options = parser.parse_args()
    headings = ["20 tests", *("x".join(map(str, shape)) for shape in BENCHMARKS)]
    print("seconds".ljust(16) + "".join(h.rjust(16) for h in headings))
    with install(check=not options.no_check) as emulation:
        for name in options.kernels:
            kernel = importlib.import_module(f"kernels.{name}")
            verify = not options.no_verify
            tests = sum(timed(kernel, shape, verify) for shape in TESTS * 2)
            row = [tests, *(timed(kernel, shape, verify) for shape in BENCHMARKS)]
            print(name.ljust(16) + "".join(f"{seconds:16.2f}" for seconds in row), flush=True)
            emulation.clear()
            if options.profile:
                profile = cProfile.Profile()
                profile.runcall(timed, kernel, BENCHMARKS[0], False)
                pstats.Stats(profile).sort_stats("tottime").print_stats(20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.1f} GiB")


if __name__ == "__main__":
    main()
