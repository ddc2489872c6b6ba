"""Whether a submission belongs to this problem: its directives, and the task.yml beside it."""

from __future__ import annotations

import re
from pathlib import Path

from nvfp4.cli.problem import Problem, leaderboard, shape_of
from nvfp4.cli.verdict import Warning

_directive = re.compile(r"(?:#|//)!POPCORN\s+leaderboards?\s+(.+)", re.IGNORECASE)


def warnings_before(path: Path, content: bytes, problem: Problem) -> list[Warning]:
    """What says that the submission is another problem's."""
    found = (_other_leaderboard(content), _other_problem(path, problem))
    return [warning for warning in found if warning is not None]


def _other_leaderboard(content: bytes) -> Warning | None:
    named = _leaderboards(content)
    if not named or leaderboard in named:
        return None
    return Warning(
        "other_leaderboard",
        f"the submission names the leaderboard {', '.join(named)[:80]}, and this is {leaderboard}",
        f"For this one its first line is #!POPCORN leaderboard {leaderboard}",
    )


def _leaderboards(content: bytes) -> list[str]:
    """Those that the directives in the first comment lines name."""
    named: list[str] = []
    for line in content.decode("utf-8", "replace").splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "//")):
            break
        if found := _directive.match(line.strip()):
            named += found.group(1).split()
    return named


def _other_problem(path: Path, problem: Problem) -> Warning | None:
    """Of a task.yml in the submission's folder that has none of this problem's shapes."""
    import yaml

    task = path.resolve().parent / "task.yml"
    if task.parent == problem.folder or not task.is_file():
        return None
    try:
        content = yaml.safe_load(task.read_text(encoding="utf-8"))
        shapes = {frozenset(_shape(case).items()) for case in content["tests"]}
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    except (KeyError, TypeError, AttributeError):  # it is no problem's
        return None
    ours = {frozenset(vars(shape_of(line)).items()) for line in problem.tests}
    if not shapes or shapes & ours:
        return None
    return Warning(
        "other_problem",
        f"{task.name} beside the submission is another problem's: it has none of the shapes of "
        f"{leaderboard}",
        f"This judge knows {leaderboard} alone.",
    )


def _shape(case: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in case.items() if name != "seed"}
