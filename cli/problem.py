"""The problem folder: where it lies and what task.yml says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

submission_source = "@SUBMISSION@"


class ProblemError(Exception):
    """task.yml is missing or not what it should be."""


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
    """files: name in the staged folder to source, the submission's being ``@SUBMISSION@``.
    tests, benchmarks: lines of a case file."""

    folder: Path
    files: dict[str, str]
    tests: list[str]
    benchmarks: list[str]


def case_line(case: dict[str, Any]) -> str:
    """A case as a line of a case file."""
    return "; ".join(f"{name}: {value}" for name, value in case.items())


def shape_of(line: str) -> Shape:
    """The shape of a line of a case file."""
    pairs = (part.split(":") for part in line.split(";"))
    values = {name.strip(): value.strip() for name, value in pairs}
    return Shape(int(values["m"]), int(values["k"]), int(values["l"]))


def problem_folder() -> Path:
    """Beside this package in a checkout, inside it where the package is installed as a wheel."""
    inside = Path(__file__).parent / "problem"
    return inside if inside.is_dir() else Path(__file__).parent.parent


def load_problem(folder: Path | None = None) -> Problem:
    """Reads task.yml. Raises ProblemError with what is wrong with it."""
    import yaml

    folder = folder or problem_folder()
    path = folder / "task.yml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        files = {entry["name"]: entry["source"] for entry in content["files"]}
        problem = Problem(
            folder,
            files,
            [case_line(case) for case in content["tests"]],
            [case_line(case) for case in content["benchmarks"]],
        )
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProblemError(f"cannot read {path}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ProblemError(f"{path} does not hold files, tests and benchmarks: {error}") from error
    for name, source in files.items():
        if Path(name).name != name:
            raise ProblemError(f"{path} names {name!r}: the bot writes no subfolders")
        if source != submission_source and not (folder / source).is_file():
            raise ProblemError(f"{path} names {source!r}, which is not there")
    return problem
