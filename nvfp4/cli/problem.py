"""The problem folder: where it lies and what task.yml says."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvfp4.cli.errors import SetupError

leaderboard = "nvfp4_gemv"
"""The contest's name for this problem."""

flat_files = ("task.py", "reference.py", "utils.py", "eval.py")
"""What stands beside a submission where it is judged."""


class ProblemError(SetupError):
    """task.yml is missing or not what it should be."""

    code = "setup.problem"

    def __init__(self, message: str) -> None:
        super().__init__(message, "Restore the file from the repository.")


@dataclass(frozen=True)
class Shape:
    """m rows, k elements, l batches."""

    m: int
    k: int
    l: int

    def __str__(self) -> str:
        return f"{self.m} x {self.k} x {self.l}"


@dataclass(frozen=True)
class Problem:
    """tests, benchmarks: lines of a case file."""

    folder: Path
    tests: list[str]
    benchmarks: list[str]


def case_line(case: dict[str, Any]) -> str:
    """A case as a line of a case file. Raises TypeError for what is not names with whole numbers,
    and KeyError where one of m, k, l and seed is missing.
    """
    for name in ("m", "k", "l", "seed"):
        if type(case[name]) is not int:
            raise TypeError(f"{name} must be a whole number, not {case[name]!r:.60}")
    if len(case) != 4:
        raise TypeError(f"a case is m, k, l and seed, not {', '.join(map(str, case)):.60}")
    return "; ".join(f"{name}: {value}" for name, value in case.items())


def shape_of(line: str) -> Shape:
    """The shape of a line of a case file."""
    pairs = (part.split(":") for part in line.split(";"))
    values = {name.strip(): value.strip() for name, value in pairs}
    return Shape(int(values["m"]), int(values["k"]), int(values["l"]))


def matching(lines: list[str], pattern: str) -> list[str]:
    """The cases whose shape has the pattern in it, such as 512x4096: as whole numbers, or else
    anywhere. Raises SetupError where there is none."""
    wanted = re.sub(r"[\s,*x]+", "x", pattern.strip().lower())
    shapes = [str(shape_of(line)).replace(" ", "") for line in lines]
    for found in (rf"(?<!\d){re.escape(wanted)}(?!\d)", re.escape(wanted)):
        if wanted and any(re.search(found, shape) for shape in shapes):
            each = zip(lines, shapes, strict=True)
            return [line for line, shape in each if re.search(found, shape)]
    raise SetupError(
        f"no test has a shape like {pattern!r}", f"There are {', '.join(dict.fromkeys(shapes))}."
    )


def problem_folder() -> Path:
    """The one in this package; a checkout shows its files at the top."""
    return Path(__file__).resolve().parent.parent / "contract"


def package_path() -> dict[str, str]:
    """The variable with which Python finds this package, which may not be installed."""
    folder, inherited = problem_folder().parent.parent, os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *([inherited] if inherited else [])])}


def _sentence(error: Exception) -> str:
    """The message of an error, on one line and cut."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def load_problem(folder: Path | None = None) -> Problem:
    """Reads task.yml. Raises ProblemError with what is wrong with it."""
    import yaml

    folder = folder or problem_folder()
    path = folder / "task.yml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        problem = Problem(
            folder,
            [case_line(case) for case in content["tests"]],
            [case_line(case) for case in content["benchmarks"]],
        )
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ProblemError(f"cannot read {path}: {_sentence(error)}") from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ProblemError(
            f"{path} does not hold tests and benchmarks: {_sentence(error)}"
        ) from error
    return problem
