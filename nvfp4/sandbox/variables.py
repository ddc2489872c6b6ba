"""The environment of a submission's process: variables from a list, for others may hold secrets."""

import os
import re
import time
from pathlib import Path

from nvfp4.records.options import Options
from nvfp4.sandbox.caches import cache_variables
from nvfp4.sandbox.namespaces import uses_gpu

_passed = re.compile(
    r"\w*PATH|HOME|USER|LANG|LC_\w+|TZ|CC|CXX|VIRTUAL_ENV|CONDA_PREFIX|POPCORN_NCU|PYTORCH_NVCC"
    r"|NVIDIA_VISIBLE_DEVICES|(CUDA|CUTE_DSL|MKL|NUMBA|OMP|PYTHON|TORCH|TRITON)\w*"
)


def variables(submission: Path, scratch: Path, options: Options) -> dict[str, str]:
    """What a submission gets whose folder for temporary files is ``scratch``."""
    # ncu needs many of its own.
    passed = passed_on()
    if os.environ.get("POPCORN_NCU") == "1":
        ours = ("POPCORN_S", "POPCORN_F", "NVFP4_")
        passed |= {name: os.environ[name] for name in os.environ if not name.startswith(ours)}
    return {**passed, **cache_variables(submission, scratch, not uses_gpu()), **_ours(options)}


def passed_on() -> dict[str, str]:
    """What a submission may know of the environment of this process."""
    return {name: value for name, value in os.environ.items() if _passed.fullmatch(name)}


def _ours(options: Options) -> dict[str, str]:
    """What our side of the process needs: the options, and when the judge ends."""
    return {**options.as_variable(), "NVFP4_DEADLINE": str(time.monotonic() + options.timeout_s)}
