"""submission.py under compute-sanitizer: memcheck, then racecheck.

    python -m scripts.sanitize

Run it from the repository root on a machine with a GPU and compute-sanitizer. Calls the submission
on the contest's tests and benchmarks and on odd shapes, with both decoders before sm_100 and with
several configurations, and checks every output. Exits 1 where something is found.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

odd = ((1, 64, 1), (3, 1088, 2), (129, 4160, 3), (1000, 4096, 1), (127, 16320, 1))
"""m, k, l"""

tools: dict[str, list[str]] = {
    # CUDA's bindings for Python ask for functions that the driver may lack.
    "memcheck": ["--report-api-errors", "no"],
    "racecheck": [],
}


def call_all() -> None:
    """Raises AssertionError for a wrong output."""
    from nvfp4.cli.problem import load_problem
    from nvfp4.contract import reference
    from nvfp4.judge.cases import parse_case
    from nvfp4.tuner.space import load_submission

    submission: Any = load_submission(Path("submission.py"))
    capability = submission.compute_capability()
    problem = load_problem()
    cases = [parse_case(line) for line in (*problem.tests, *problem.benchmarks)]
    shapes = [(case.m, case.k, case.l) for case in cases] + list(odd)
    decoders = [submission.decoder_for(capability)]
    if capability < 100:
        decoders = [submission.IntegerDecoder, submission.IntegerDecoderBeforeE4M3]
    for decoder in decoders:
        submission.decoder_for = lambda capability, decoder=decoder: decoder
        submission.compiled.cache_clear()
        submission.plan.cache_clear()
        for m, k, l in shapes:
            data = reference.generate_full_range_input(m, k, l, 1)
            space = submission.configurations(m, k, l, capability)
            expected = reference.ref_kernel(data)
            for configuration in (None, space[len(space) // 2]):
                data[6].fill_(float("nan"))
                output = submission.gemv(data, configuration)
                right, why = reference.check_implementation(data, output, expected)
                assert right, f"{decoder.__name__}, {m}x{k}x{l}, {configuration}: {why}"
        print(f"{decoder.__name__}: {2 * len(shapes)} calls are right", flush=True)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", action="store_true", help="what the tools run")
    parser.add_argument("--tool", choices=list(tools), help="this one alone")
    arguments = parser.parse_args()
    if arguments.calls:
        call_all()
        return 0
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    found = 0
    for tool in [arguments.tool] if arguments.tool else tools:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *tools[tool]]
        command += [sys.executable, "-m", "scripts.sanitize", "--calls"]
        done = subprocess.run(command, env=environment, check=False)
        print(f"{tool}: {'clean' if done.returncode == 0 else f'exit code {done.returncode}'}")
        found |= done.returncode != 0
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
