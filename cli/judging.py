"""Judges for a command: options in, verdict out, exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nvfp4.cli.assess import Plan, assess, profile, read_submission
from nvfp4.cli.bot import Bot
from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import load_problem
from nvfp4.cli.progress import observed
from nvfp4.cli.render import show
from nvfp4.cli.verdict import Verdict

passed_exit, failed_exit = 0, 1

narrowest_columns = 100


@dataclass(frozen=True)
class Options:
    """What every command that judges takes; see ``cli.parameters.judging_options``."""

    device: str
    seed: int | None
    timeout: float
    arch: str
    check: bool
    orders: int
    strict: bool
    keep: Path | None
    retarget: str
    flush: str
    as_json: bool
    output: Path | None

    def bot(self, content: bytes) -> Bot:
        """The bot that runs a submission with these options."""
        return Bot(
            load_problem(),
            content,
            self.device,
            self.seed,
            self.timeout,
            self.arch,
            self.check,
            self.orders,
            self.strict,
            self.keep,
            self.retarget,
            self.flush,
        )


def judge_and_show(path: Path, plan: Plan, options: Options) -> int:
    """Judges by the plan, shows the verdict, returns the exit code. Raises SetupError."""
    _check_output(options.output)
    console = new_console(stderr=options.as_json)
    described, content = read_submission(path)
    verdict = Verdict(described)
    with observed(console) as observer:
        assess(options.bot(content), plan, verdict, observer)
    _hand_out(verdict.as_json(), options)
    if not options.as_json:
        show(console, verdict)
    return passed_exit if verdict.passed else failed_exit


def profile_and_show(path: Path, cases: list[str], options: Options) -> int:
    """Profiles one call of each case, shows the reports, returns the exit code. Raises
    SetupError.
    """
    _check_output(options.output)
    described, content = read_submission(path)
    with observed(new_console(stderr=options.as_json)) as observer:
        reports = profile(options.bot(content), cases, observer)
    passed = all(report.passed for report in reports)
    result = {
        "passed": passed,
        "submission": vars(described),
        "reports": [vars(report) for report in reports],
    }
    _hand_out(result, options)
    if not options.as_json:
        for report in reports:
            click.echo(f"{report.spec}\n{report.text}\n")
    return passed_exit if passed else failed_exit


def new_console(stderr: bool = False) -> Console:
    """A console that is wide enough for the tables where nobody looks at a terminal."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console = Console(
            stderr=stderr, highlight=False, width=max(narrowest_columns, console.width)
        )
    return console


def _hand_out(result: dict[str, Any], options: Options) -> None:
    text = json.dumps(result, indent=2, allow_nan=False)
    if options.as_json:
        click.echo(text)
    _write_output(options.output, text)


def _check_output(output: Path | None) -> None:
    """Finds out before judging that the file cannot be written."""
    if output is None:
        return
    existed = output.exists()
    try:
        with output.open("a", encoding="utf-8"):
            pass
        if not existed:  # an empty file would look like a verdict if there is none in the end
            output.unlink()
    except OSError as error:
        raise _not_written(output, error) from None


def _not_written(output: Path, error: OSError) -> SetupError:
    return SetupError(
        f"cannot write {output}: {error.strerror}", "Name a file in a folder that exists."
    )


def _write_output(output: Path | None, text: str) -> None:
    if output is None:
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _not_written(output, error) from None
