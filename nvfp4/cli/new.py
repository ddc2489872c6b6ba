"""Writes a submission to start from: a template, or a copy of a rung of the ladder."""

import difflib
import re
from pathlib import Path

from nvfp4.cli.errors import SetupError
from nvfp4.cli.invocation import refuse_kept
from nvfp4.cli.problem import Problem, bundled_folder, leaderboards_named, read_file

templates = Path(__file__).with_name("templates")
suffix = ".py.txt"
"""The templates are text here: this package imports no library of kernels."""


def template_text(kind: str) -> str:
    """Return a template. kind: torch, cute, cuda or triton."""
    return (templates / f"{kind}{suffix}").read_text(encoding="utf-8")


def problem_text(problem: Problem) -> str:
    """Return the template or the starter of a problem. Raises SetupError."""
    if problem.template is None:
        raise SetupError(f"{problem.name} has no template", "Write custom_kernel(data) yourself.")
    try:
        text = read_file(problem.template).decode()
    except (OSError, ValueError) as error:
        message = f"cannot read {problem.template}: {error}"
        raise SetupError(message, "It is the problem's.") from None
    if problem.name not in leaderboards_named(text.encode()):
        text = f"#!POPCORN leaderboard {problem.name}\n\n{text}"
    return text


def ladder_folder() -> Path:
    """Return the ladder's folder, which lies beside this package in a checkout and in a wheel."""
    return bundled_folder().parents[1] / "ladder"


def rungs() -> dict[str, Path]:
    """Return the two climbs, then the detours, by names such as cute/01_template."""
    folders = ("cute", "cuda", "detours")
    paths = [path for each in folders for path in sorted((ladder_folder() / each).glob("*.py"))]
    return {f"{path.parent.name}/{path.stem}": path for path in paths}


def rung_text(name: str) -> str:
    """Return the source of a rung, whose number may be left out. Raises SetupError with similar
    names if there is none."""
    wanted = name.removeprefix("ladder/").removesuffix(".py")
    known = {re.sub(r"/\d+_", "/", name): path for name, path in rungs().items()} | rungs()
    if wanted in known:
        return known[wanted].read_text(encoding="utf-8")
    by_stem = {each.rpartition("/")[2]: each for each in known}
    like = difflib.get_close_matches(wanted, [*known, *by_stem], n=3, cutoff=0.5)
    near = dict.fromkeys(by_stem.get(each, each) for each in like)
    hint = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(rungs())}."
    raise SetupError(f"the ladder has no rung {name}", hint, "usage")


def write(text: str, output: Path, force: bool) -> None:
    """Write a submission. force: whether a file may be overwritten. Raises SetupError."""
    refuse_kept(output)
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SetupError(f"{output} exists", "Name another with -o, or add --force.") from None
    except OSError as error:
        message = f"cannot write {output}: {error.strerror}"
        raise SetupError(message, "Name a file that can be written.") from error
