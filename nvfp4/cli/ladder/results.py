"""What is known of the rungs of the ladder, and the file that keeps it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import Shape

counted_shape = Shape(256, 16384, 1)
"""What is counted: rows as long as those of the first benchmark, and few enough to emulate all."""

no_gpu = "emulated as sm_100a"
"""Stands for the device where there is no GPU."""

_schema = 1


@dataclass(frozen=True)
class Counts:
    """Of an emulated call of `counted_shape`. instructions: a lane's, for each element of a.
    sectors: requested ones over distinct ones. Of the costliest kernel, None without ptxas:
    registers and spilled bytes of a thread, and warps, of 64, that an SM of a B200 holds.
    """

    instructions: float
    sectors: float
    bank_conflicts: int
    registers: int | None = None
    spilled_bytes: int | None = None
    warps_per_sm: int | None = None


@dataclass(frozen=True)
class Judged:
    """On one device. passed: every test on the contest's inputs and every benchmark. unclear: of a
    verdict. tests: how many were run, full-range ones too. full_range: whether those passed.
    message: of the case that decides. mean_us: by benchmark; with geomean_us None without a
    GPU. retargeted: whether kernels were rewritten for the GPU.
    """

    passed: bool
    tests: int
    full_range: bool
    message: str | None = None
    geomean_us: float | None = None
    mean_us: dict[str, float] | None = None
    retargeted: bool = False
    unclear: bool = False

    @property
    def outcome(self) -> str:
        """pass, unclear or fail."""
        return "pass" if self.passed else "unclear" if self.unclear else "fail"


@dataclass(frozen=True)
class Step:
    """What is known of a rung. sha256: of the file that was judged. on: by device."""

    name: str
    sha256: str
    counts: Counts | None = None
    on: dict[str, Judged] = field(default_factory=dict)


Steps = dict[str, Step]
"""By the rung's name."""


def read_steps(path: Path) -> Steps:
    """What a state file holds; nothing where there is none. Raises SetupError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != _schema:
            raise ValueError(f"schema {content['schema']}")
        return {name: _step_of(name, plain) for name, plain in content["rungs"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SetupError(
            f"cannot read {path}: {error.strerror}", "Name another state file."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"{path} does not hold what this command writes: {error!r:.100}"
        raise SetupError(message, "Name another state file, or remove this one.") from None


def _step_of(name: str, plain: dict[str, Any]) -> Step:
    counts = plain["counts"]
    return Step(
        name,
        plain["sha256"],
        None if counts is None else Counts(**counts),
        {device: Judged(**each) for device, each in plain["on"].items()},
    )


def write_steps(path: Path, steps: Steps) -> None:
    """Replaces the file, whole or not at all. Raises SetupError."""
    rungs = {name: asdict(step) for name, step in sorted(steps.items())}
    for plain in rungs.values():
        del plain["name"]
    text = json.dumps({"schema": _schema, "rungs": rungs}, indent=1, allow_nan=False)
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text + "\n", encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        hint = "Name a file in a folder that exists."
        raise SetupError(f"cannot write {path}: {error.strerror}", hint) from None
