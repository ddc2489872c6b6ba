"""NVFP4 GEMV with other cases than task.yml has, for commands in this process and in others."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bot import root

from nvfp4.cli import problem

customize = """
import json, os

if "NVFP4_SMALL_CASES" in os.environ:  # a command; judges do not inherit it
    from nvfp4.cli import problem

    read, cases = problem._read_yaml, json.loads(os.environ["NVFP4_SMALL_CASES"])
    problem._read_yaml = lambda path: {**read(path), **cases}
"""


small = {
    "tests": [{"m": m, "k": 256, "l": 2, "seed": 1111} for m in (128, 256)],
    "benchmarks": [{"m": 256, "k": 512, "l": 1, "seed": 1111}],
}
"""Two tests and a benchmark."""


def use_small_cases(patch: pytest.MonkeyPatch, **cases: list[dict[str, Any]]) -> None:
    """Give commands in this process other tests or benchmarks."""
    read = problem._read_yaml
    patch.setattr(problem, "_read_yaml", lambda path: {**read(path), **cases})


def with_small_cases(folder: Path, **cases: list[dict[str, Any]]) -> dict[str, str]:
    """Variables that give commands other tests or benchmarks. folder: where to write what does."""
    (folder / "sitecustomize.py").write_text(customize)
    path = os.pathsep.join([str(folder), str(root)])
    return {"PYTHONPATH": path, "NVFP4_SMALL_CASES": json.dumps(cases)}
