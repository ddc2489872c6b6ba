"""The environment of a submission's process: variables from a list, for others may hold secrets."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from nvfp4.local.caches import cache_variables

_passed = re.compile(
    r"\w*PATH|HOME|USER|LANG|LC_\w+|TZ|CC|CXX|VIRTUAL_ENV|CONDA_PREFIX|POPCORN_NCU|PYTORCH_NVCC"
    r"|NVIDIA_VISIBLE_DEVICES|(CUDA|CUTE_DSL|MKL|NUMBA|OMP|PYTHON|TORCH|TRITON)\w*"
)

default_timeout_s = 170.0
"""Of a mode under the bot, as in ``eval``."""


def variables(submission: Path, scratch: Path, emulates: bool) -> dict[str, str]:
    """What a submission gets whose folder for temporary files is ``scratch``."""
    # ncu needs many of its own.
    passed = passed_on()
    if os.environ.get("POPCORN_NCU") == "1":
        ours = ("POPCORN_S", "POPCORN_F", "NVFP4_")
        passed |= {name: os.environ[name] for name in os.environ if not name.startswith(ours)}
    return {**passed, **cache_variables(submission, scratch, emulates), **_ours()}


def passed_on() -> dict[str, str]:
    """What a submission may know of the environment of this process."""
    return {name: value for name, value in os.environ.items() if _passed.fullmatch(name)}


def _ours() -> dict[str, str]:
    """What our side of the process needs: when the judge ends, what the file is called."""
    found = {name: os.environ[name] for name in ("NVFP4_NAME",) if name in os.environ}
    timeout = os.environ.get("NVFP4_TIMEOUT_S")
    with suppress(TypeError, ValueError):
        found["NVFP4_DEADLINE"] = str(time.monotonic() + float(timeout or default_timeout_s))
    return found
