"""Judges for a command: options in, verdict out, exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nvfp4.cli import interrupts

from nvfp4.cli import errors as exits
from nvfp4.cli.judging.assess import Observer, Plan, ProfileReport, assess, profile, read_submission
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.display.brief import is_brief, show_briefly
from nvfp4.cli.display.console import new_console
from nvfp4.cli.judging.directives import warnings_before
from nvfp4.cli.errors import SetupError
from nvfp4.cli.display.formats import format_of, formatted
from nvfp4.cli.judging.info import has_gpu
from nvfp4.cli.history.keeping import keep
from nvfp4.cli.judging.mistakes import first_mistake
from nvfp4.cli.problem import load_problem
from nvfp4.cli.display.progress import observed
from nvfp4.cli.display.render import show
from nvfp4.cli.verdict import Submission, Verdict, json_schema
from nvfp4.records.options import Options


@dataclass(frozen=True)
class Invocation:
    """What a command that judges was asked for, with the same defaults as
    ``cli.parameters.judging_options``. kept: whether the verdict goes into the history.
    """

    options: Options = Options()
    seed: int | None = None
    as_json: bool = False
    chosen_format: str | None = None
    output: Path | None = None
    kept: bool = False

    @classmethod
    def of(cls, given: dict[str, Any]) -> Invocation:
        """From the parameters of a command."""
        known = {each.name for each in fields(Options)}
        chosen = {name: given.pop(name) for name in known & given.keys()}
        return cls(Options(**chosen), **given)

    @property
    def format(self) -> str:
        """What goes to stdout."""
        return "json" if self.as_json else self.chosen_format or "text"

    @property
    def for_people(self) -> bool:
        """Whether stdout takes words beside the verdict."""
        return self.format == "text"

    def bot(self, content: bytes, name: str = "submission.py") -> Bot:
        """The bot that runs a submission with these options. name: of the file, for messages."""
        return Bot(load_problem(), content, replace(self.options, name=name), self.seed)


def show_verdict(console: Console, verdict: Verdict) -> None:
    """Tables, unless one sentence says as much."""
    (show_briefly if is_brief(verdict) else show)(console, verdict)


def judge_and_show(
    path: Path,
    plan: Plan,
    invocation: Invocation,
    show: Callable[[Console, Verdict], None] = show_verdict,
    observed: Callable[[Console], AbstractContextManager[Observer]] = observed,
    judged: Callable[..., Verdict] | None = None,
) -> int:
    """Judges by the plan, shows the verdict, returns the exit code. judged: in place of ``judge``.
    Raises SetupError."""
    check_output(invocation.output)
    read = read_submission(path)
    console = new_console(stderr=not invocation.for_people)
    with observed(console) as observer:
        verdict = (judged or judge)(path, plan, invocation, observer, read)
    try:
        _show(console, verdict, invocation, show)
    finally:  # also where nobody reads what is shown
        if invocation.kept:
            keep(verdict, read[1])
    if verdict.interrupted:
        return interrupts.exit_code()
    codes = {"passed": exits.passed, "unclear": exits.unclear, "failed": exits.failed}
    return codes[verdict.outcome]


def _show(
    console: Console,
    verdict: Verdict,
    invocation: Invocation,
    show: Callable[[Console, Verdict], None],
) -> None:
    if invocation.for_people:
        show(console, verdict)
    else:
        click.echo(formatted(verdict, invocation.format))
    if invocation.output is not None:
        chosen = "json" if invocation.as_json else invocation.chosen_format
        write_output(invocation.output, formatted(verdict, format_of(invocation.output, chosen)))


def judge(
    path: Path,
    plan: Plan,
    invocation: Invocation,
    observer: Observer,
    read: tuple[Submission, bytes] | None = None,
) -> Verdict:
    """The verdict by the plan; a mistake that parsing finds is all of it. read: the file, if it has
    been read. Raises SetupError.
    """
    described, content = read or read_submission(path)
    verdict = Verdict(described, mistake=first_mistake(path.name, content))
    verdict.strict = invocation.options.strict
    if verdict.mistake is None:
        assess(
            _without_repeats(invocation, plan).bot(content, path.name), plan, verdict, observer
        )
    if verdict.mistake is not None:
        verdict.mistake = verdict.mistake.of_file(path.name)
    verdict.warnings[:0] = warnings_before(path, content, load_problem())
    return verdict


def _without_repeats(invocation: Invocation, plan: Plan) -> Invocation:
    return replace(invocation, options=replace(invocation.options, repeat=plan.repeat))


def profile_and_show(path: Path, cases: list[str], invocation: Invocation) -> int:
    """Profiles one call of each case on a GPU, or explains it without one; shows the reports,
    returns the exit code. Raises SetupError.
    """
    if invocation.format not in ("text", "json"):
        raise SetupError(f"a profile has no format {invocation.format}", "Use text or json.", "usage")
    check_output(invocation.output)
    described, content = read_submission(path)
    mistake = first_mistake(path.name, content)
    if mistake is None and not has_gpu(invocation.options.device):
        from nvfp4.cli.explain.command import explain_and_show

        return explain_and_show(path, cases, invocation)
    if mistake is None:
        with observed(new_console(stderr=not invocation.for_people)) as observer:
            reports = profile(invocation.bot(content, path.name), cases, observer)
    else:
        reports = [ProfileReport(line, False, mistake.text) for line in cases[:1]]
    passed = all(report.passed for report in reports)
    result = {
        "schema": json_schema,
        "passed": passed,
        "submission": vars(described),
        "reports": [vars(report) for report in reports],
    }
    text = json.dumps(result, indent=2, allow_nan=False)
    if not invocation.for_people:
        click.echo(text)
    else:
        for report in reports:
            click.echo(f"{report.spec}\n{report.text}\n")
    if invocation.output is not None:
        write_output(invocation.output, text)
    return exits.passed if passed else exits.failed


def check_output(output: Path | None) -> None:
    """Finds out before judging that the file cannot be written."""
    if output is None:
        return
    existed = output.exists()
    if output.is_fifo():
        raise SetupError(f"{output} is a pipe, not a file", "Name a file to write to.")
    try:
        with output.open("a", encoding="utf-8"):
            pass
        if not existed:  # an empty file would look like a verdict if there is none in the end
            output.unlink()
    except OSError as error:
        raise _not_written(output, error) from None


def _not_written(output: Path, error: OSError) -> SetupError:
    message = f"cannot write {output}: {error.strerror}"
    return SetupError(message, "Name a file that can be written.", "setup.unwritable")


def write_output(output: Path, text: str) -> None:
    """Writes a file that ends with a line break. Raises SetupError."""
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _not_written(output, error) from None
