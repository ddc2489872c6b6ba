"""Times the emulator on kernels in CuTe DSL: the contest's tests and its benchmark shapes.

    python -m scripts.emulator_speed [FILE ...]

Run it from the repository root. Every output is compared with the exact reference.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nvfp4.cli.problem import Shape, load_problem, shape_of
from nvfp4.contract.reference import check_implementation, generate_input
from nvfp4.emulation import install
from nvfp4.tuner.space import load_submission

KERNELS = ("shared_memory", "warp_per_row", "packed", "cp_async", "tma")
"""Of tests/kernels."""


def seconds_of(kernel: Callable[[Any], Any], shape: Shape) -> float:
    """Seconds of one call on new inputs. Raises SystemExit if its output is wrong."""
    data = generate_input(shape.m, shape.k, shape.l, seed=1111)
    start = time.perf_counter()
    output = kernel(data)
    seconds = time.perf_counter() - start
    right, message = check_implementation(data, output)
    if not right:
        raise SystemExit(f"wrong at {shape}: {message}")
    return seconds


def main() -> None:
    """Prints a row for each kernel."""
    # The reference's threads would spin for each other on a busy machine, for minutes.
    torch.set_num_threads(1)
    problem = load_problem()
    tests = [shape_of(line) for line in problem.tests]
    benchmarks = [shape_of(line) for line in problem.benchmarks]
    headings = [f"{2 * len(tests)} tests", *(f"{s.m}x{s.k}x{s.l}" for s in benchmarks)]
    print("seconds".ljust(16) + "".join(heading.rjust(16) for heading in headings))
    with install() as emulation, tempfile.TemporaryDirectory() as folder:
        write = [sys.executable, "tests/corpus.py", folder, "tests/kernels"]
        subprocess.run(write, check=True)
        own = [Path("ladder/cute/03_block_sum.py")]
        own += [Path(folder, "kernels", f"{name}.py") for name in KERNELS]
        for path in map(Path, sys.argv[1:]) if sys.argv[1:] else own:
            kernel = load_submission(path).custom_kernel
            row = [sum(seconds_of(kernel, shape) for shape in tests * 2)]
            row += [seconds_of(kernel, shape) for shape in benchmarks]
            print(path.stem.ljust(16) + "".join(f"{seconds:16.2f}" for seconds in row), flush=True)
            emulation.clear()
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak_gib:.1f} GiB")


if __name__ == "__main__":
    main()
