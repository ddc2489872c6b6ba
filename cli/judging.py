"""Judges for a command: options in, verdict out, exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from nvfp4.cli import interrupts
from nvfp4.cli.assess import Plan, assess, profile, read_submission
from nvfp4.cli.bot import Bot
from nvfp4.cli.console import new_console
from nvfp4.cli.errors import SetupError
from nvfp4.cli.gpu import has_gpu
from nvfp4.cli.problem import load_problem
from nvfp4.cli.progress import observed
from nvfp4.cli.render import show
from nvfp4.cli.verdict import Verdict

passed_exit, failed_exit = 0, 1


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
    if not options.as_json:
        show(console, verdict)
    _hand_out(verdict.as_json(), options)
    if verdict.interrupted:
        return interrupts.exit_code()
    return passed_exit if verdict.passed else failed_exit


def profile_and_show(path: Path, cases: list[str], options: Options) -> int:
    """Profiles one call of each case on a GPU, or explains it without one; shows the reports,
    returns the exit code. Raises SetupError.
    """
    _check_output(options.output)
    if not has_gpu(options.device):
        return _explain(path, cases, options)
    described, content = read_submission(path)
    with observed(new_console(stderr=options.as_json)) as observer:
        reports = profile(options.bot(content), cases, observer)
    passed = all(report.passed for report in reports)
    result = {
        "passed": passed,
        "submission": vars(described),
        "reports": [vars(report) for report in reports],
    }
    if not options.as_json:
        for report in reports:
            click.echo(f"{report.spec}\n{report.text}\n")
    _hand_out(result, options)
    return passed_exit if passed else failed_exit


def _explain(path: Path, cases: list[str], options: Options) -> int:
    try:
        explain = import_module("nvfp4.cli.explain")
    except ModuleNotFoundError:
        raise SetupError("a profile needs a GPU", "nvfp4 eval shows counts without one.") from None
    exit_code: int = explain.explain_and_show(path, cases, options)
    return exit_code


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
        f"cannot write {output}: {error.strerror}", "Name a file that can be written."
    )


def _write_output(output: Path | None, text: str) -> None:
    if output is None:
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _not_written(output, error) from None
