"""The rungs of ladder/: which there are, and what others measured of the same ideas."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import problem_folder

own_submission = "submission"
"""The name, among those of rungs, of the repository's own submission."""

_folders = ("cute", "cuda", "detours")

_published_us = {
    "cute/01_template": 100.0,
    "cute/06_split_k_shared": 33.0,
    "cute/09_half2_fma": 25.99,
    "cute/11_tuned": 24.26,
    "cute/12_one_asm": 21.60,
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
