"""Calls submission.py in every way that compute-sanitizer should see; scripts/on_gpu.sh runs it.

    compute-sanitizer python -m scripts.sanitize

The contest's tests and benchmarks and odd shapes, with both decoders before sm_100 and several
configurations. Raises AssertionError for a wrong output.
"""

from pathlib import Path
from typing import Any

from nvfp4.cli.problem import load_problem
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.problems.nvfp4_gemv.referee import shape_of
from nvfp4.records.cases import parse_case
from nvfp4.tuner.space import load_submission

ODD = ((1, 64, 1), (3, 1088, 2), (129, 4160, 3), (1000, 4096, 1), (127, 16320, 1))
"""m, k, l"""


def main() -> None:
    """Makes all calls."""
    submission: Any = load_submission(Path("submission.py"))
    capability = submission.compute_capability()
    problem = load_problem()
    cases = [parse_case(line) for line in (*problem.tests, *problem.benchmarks)]
    shapes = [shape_of(case) for case in cases] + list(ODD)
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


if __name__ == "__main__":
    main()
