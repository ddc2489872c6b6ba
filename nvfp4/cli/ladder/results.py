"""The rungs of ladder/, what others measured of the same ideas, and what is known of each."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import Shape, problem_folder

own_submission = "submission"
"""The name, among those of rungs, of the repository's own submission."""

_folders = ("cute", "cuda", "detours")

_published_us = {
    "cute/01_template": 100.0,
    "cute/06_split_k_shared": 33.0,
    "cute/09_half2_fma": 25.99,
    "cute/11_tuned": 24.26,
    "cute/12_one_asm": 21.60,
    "cute/13_tma_tcgen05": 21.78,
    "cuda/01_naive": 2000.0,
    "cuda/02_coalesced": 443.0,
    "cuda/04_vector_loads": 39.0,
    "cuda/05_ptx_decode": 27.0,
    "cuda/06_shape_tuned": 26.0,
    "cuda/07_two_tiles": 22.9,
    "cuda/08_fused": 22.3,
    "cuda/09_per_shape": 18.55,
}
"""What contestants report of a kernel of the same idea: geometric mean of the three benchmarks on a
B200, in microseconds."""


@dataclass(frozen=True)
class Rung:
    """name: folder and file, such as cute/01_template, or `own_submission`."""

    name: str
    path: Path

    @property
    def published_us(self) -> float | None:
        """What a contestant reports of the same idea on a B200; None where nobody does."""
        return _published_us.get(self.name)

    @property
    def folder(self) -> str:
        """cute, cuda, detours; empty for the repository's own submission."""
        return self.name.rpartition("/")[0]

    @property
    def sha256(self) -> str:
        """Of the file as it is now."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def ladder_folder() -> Path:
    """Beside this package, in a checkout as in an installed wheel."""
    return problem_folder().parent / "ladder"


def all_rungs() -> list[Rung]:
    """The two climbs, the detours, and the repository's own submission to compare with.

    Raises SetupError where the folder is missing.
    """
    root = ladder_folder()
    paths = [path for folder in _folders for path in sorted((root / folder).glob("*.py"))]
    if not paths:
        raise SetupError(f"{root} holds no rungs", "Restore the folder from the repository.")
    rungs = [Rung(f"{path.parent.name}/{path.stem}", path) for path in paths]
    return [*rungs, Rung(own_submission, problem_folder() / "submission.py")]


def find_rungs(names: Sequence[str]) -> list[Rung]:
    """The rungs of these names, in the order of the ladder; all of them without names.

    A name is cute/07_split_k_warp, the same without its number, or a folder, such as cuda. Raises
    SetupError for any other, with names like it.
    """
    rungs = all_rungs()
    if not names:
        return rungs
    chosen = {rung.name for name in names for rung in _named(name, rungs)}
    return [rung for rung in rungs if rung.name in chosen]


def rung_text(name: str) -> str:
    """The source of a rung. Raises SetupError, with names like it, where there is none."""
    found = _named(name, all_rungs())
    if len(found) > 1:
        raise SetupError(f"{name} is a folder of the ladder", f"It has {_listed(found)}.", "usage")
    return found[0].path.read_text(encoding="utf-8")


def _named(name: str, rungs: list[Rung]) -> list[Rung]:
    wanted = name.removeprefix("ladder/").removesuffix(".py").rstrip("/")
    known = {rung.name: rung for rung in rungs}
    plain = {_unnumbered(each): each for each in known}
    if wanted in known:
        return [known[wanted]]
    if wanted in plain:
        return [known[plain[wanted]]]
    if wanted in _folders:
        return [rung for rung in rungs if rung.folder == wanted]
    by_stem = {each.rpartition("/")[2]: each for each in (*plain, *known)}
    like = difflib.get_close_matches(wanted, [*known, *plain, *by_stem], n=3, cutoff=0.5)
    near = dict.fromkeys(by_stem.get(each, each) for each in like)
    hint = f"Did you mean {', '.join(near)}?" if near else f"There are {_listed(rungs)}."
    raise SetupError(f"the ladder has no rung {name}", hint, "usage")


def _unnumbered(name: str) -> str:
    return re.sub(r"/\d+_", "/", name)


def _listed(rungs: list[Rung]) -> str:
    return ", ".join(rung.name for rung in rungs)


counted_shape = Shape(256, 16384, 1)
"""What is counted: rows as long as those of the first benchmark, and few enough to emulate all."""

no_gpu = "emulated as sm_100a"
"""Stands for the device where there is no GPU."""

_schema = 1


@dataclass(frozen=True)
class Counts:
    """Of an emulated call of `counted_shape`. instructions: a lane's, for each element of a.
    sectors: requested ones over distinct ones. tensor_instructions: products of tensor cores, which
    are busy with them for tensor_cycles; tensor_bytes: to and from tensor memory. Of the costliest
    kernel, None without ptxas: registers and spilled bytes of a thread, and warps, of 64, that an
    SM of a B200 holds.
    """

    instructions: float
    sectors: float
    bank_conflicts: int
    registers: int | None = None
    spilled_bytes: int | None = None
    warps_per_sm: int | None = None
    tensor_instructions: int = 0
    tensor_cycles: int = 0
    tensor_bytes: int = 0


@dataclass(frozen=True)
class Judged:
    """On one device. passed: every test on the contest's inputs and every benchmark. unclear: of a
    verdict. tests: how many were run, full-range ones too. full_range: whether those passed.
    message: of the case that decides. mean_us: by benchmark; with geomean_us None without a
    GPU. retargeted: whether kernels were rewritten for the GPU. predicted_us: what a model says of
    a B200 where there is no GPU, the truth lying between the other two in four cases of five.
    """

    passed: bool
    tests: int
    full_range: bool
    message: str | None = None
    geomean_us: float | None = None
    mean_us: dict[str, float] | None = None
    retargeted: bool = False
    unclear: bool = False
    predicted_us: float | None = None
    predicted_low_us: float | None = None
    predicted_high_us: float | None = None

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
