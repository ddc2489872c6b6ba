"""`nvfp4 ladder`: judges rungs, shows the table of the climb, keeps what was found."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from nvfp4.cli import errors as exits
from nvfp4.cli import interrupts
from nvfp4.cli.display.benchmark_tables import status_text
from nvfp4.cli.display.columns import show_table
from nvfp4.cli.display.console import new_console, say
from nvfp4.cli.display.progress import observed, quiet
from nvfp4.cli.ladder.measuring import Climber, climber
from nvfp4.cli.ladder.results import Rung, Step, Steps, find_rungs, read_steps, write_steps
from nvfp4.cli.ladder.tables import climb_columns
from nvfp4.cli.problem import load_problem
from nvfp4.cli.text import first_lines, seconds


@dataclass(frozen=True)
class LadderOptions:
    """quick: one test of each kind. state: a file to keep results in, and to go on from."""

    device: str = "auto"
    flush: str = "contest"
    quick: bool = False
    state: Path | None = None
    as_json: bool = False


def climb_and_show(names: Sequence[str], options: LadderOptions) -> int:
    """Judges the rungs of these names, or all, and returns the exit code. Raises SetupError."""
    rungs = find_rungs(names)
    steps = read_steps(options.state) if options.state else {}
    console = new_console(stderr=options.as_json)
    course = observed if console.is_interactive else quiet
    climbing = climber(
        load_problem(), options.device, options.flush, options.quick, lambda: course(console)
    )
    stopped = False
    try:
        _climb(console, climbing, rungs, steps, options.state)
    except KeyboardInterrupt:
        stopped = True
    chosen = {rung.name: steps[rung.name] for rung in rungs if _is_current(rung, steps)}
    _show(console, rungs, chosen, climbing.label, options)
    if stopped:
        return interrupts.exit_code()
    outcomes = {chosen[rung.name].on[climbing.label].outcome for rung in rungs}
    if "fail" in outcomes:
        return exits.failed
    return exits.unclear if "unclear" in outcomes else exits.passed


def _climb(
    console: Console, climbing: Climber, rungs: Sequence[Rung], steps: Steps, state: Path | None
) -> None:
    """Fills in what is found, and shows a line for each rung."""
    started = time.monotonic()
    with closing(climbing.climb(rungs, steps)) as found:
        for step in found:
            known = steps.get(step.name) == step
            steps[step.name] = step
            if state and not known:
                write_steps(state, steps)
            taken = "known" if known else seconds(time.monotonic() - started)
            for line in _lines(step, climbing.label, taken):
                say(console, line)
            started = time.monotonic()


def _lines(step: Step, label: str, taken: str) -> list[Text]:
    judged = step.on[label]
    status = status_text(judged.outcome)
    lines = [Text.assemble(f"{step.name:<28} ", status, (f"  {taken}", "dim"))]
    if judged.message and not judged.passed:
        lines += [Text(f"  {line}") for line in first_lines(judged.message)]
    return lines


def _is_current(rung: Rung, steps: Steps) -> bool:
    return rung.name in steps and steps[rung.name].sha256 == rung.sha256


def _show(
    console: Console, rungs: Sequence[Rung], steps: Steps, label: str, options: LadderOptions
) -> None:
    if options.as_json:
        plain = {
            "device": label,
            "rungs": [
                {**asdict(steps[rung.name]), "published_us": rung.published_us}
                for rung in rungs
                if rung.name in steps
            ],
        }
        click.echo(json.dumps(plain, indent=2, allow_nan=False))
        return
    say(console)
    show_table(console, f"The ladder, {label}", climb_columns(rungs, steps, label))
