"""Judges for a command: options in, verdict out, exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from nvfp4.cli import exits, interrupts
from nvfp4.cli.assess import Observer, Plan, ProfileReport, assess, profile, read_submission
from nvfp4.cli.bot import Bot
from nvfp4.cli.brief import is_brief, show_briefly
from nvfp4.cli.check import show_check
from nvfp4.cli.console import new_console
from nvfp4.cli.directives import warnings_before
from nvfp4.cli.errors import SetupError
from nvfp4.cli.formats import format_of, formatted
from nvfp4.cli.gpu import has_gpu
from nvfp4.cli.keeping import keep
from nvfp4.cli.mistakes import first_mistake
from nvfp4.cli.problem import load_problem
from nvfp4.cli.progress import observed, quiet
from nvfp4.cli.render import show
from nvfp4.cli.verdict import Submission, Verdict, json_schema


@dataclass(frozen=True)
class Options:
    """What every command that judges takes, with the same defaults; see
    ``cli.parameters.judging_options``. kept: whether the verdict goes into the history.
    """

    device: str = "auto"
    seed: int | None = None
    timeout: float = 170.0
    arch: str = "sm_100a"
    check: bool = True
    orders: int = 4
    strict: bool = False
    keep: Path | None = None
    retarget: str = "auto"
    flush: str = "contest"
    as_json: bool = False
    chosen_format: str | None = None
    output: Path | None = None
    kept: bool = False

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
            name=name,
        )


def show_verdict(console: Console, verdict: Verdict) -> None:
    """Tables, unless one sentence says as much."""
    (show_briefly if is_brief(verdict) else show)(console, verdict)


def judge_and_show(
    path: Path,
    plan: Plan,
    options: Options,
    show: Callable[[Console, Verdict], None] = show_verdict,
    observed: Callable[[Console], AbstractContextManager[Observer]] = observed,
) -> int:
    """Judges by the plan, shows the verdict, returns the exit code. Raises SetupError."""
    check_output(options.output)
    read = read_submission(path)
    console = new_console(stderr=not options.for_people)
    with observed(console) as observer:
        verdict = judge(path, plan, options, observer, read)
    try:
        _show(console, verdict, options, show)
    finally:  # also where nobody reads what is shown
        if options.kept:
            keep(verdict, read[1])
    if verdict.interrupted:
        return interrupts.exit_code()
    codes = {"passed": exits.passed, "unclear": exits.unclear, "failed": exits.failed}
    return codes[verdict.outcome]


def _show(
    console: Console,
    verdict: Verdict,
    options: Options,
    show: Callable[[Console, Verdict], None],
) -> None:
    if options.for_people:
        show(console, verdict)
    else:
        click.echo(formatted(verdict, options.format))
    if options.output is not None:
        chosen = "json" if options.as_json else options.chosen_format
        write_output(options.output, formatted(verdict, format_of(options.output, chosen)))


def check_and_show(path: Path, plan: Plan, options: Options) -> int:
    """The same for a check, which shows nothing while it runs."""
    return judge_and_show(path, plan, options, partial(show_check, problem=load_problem()), quiet)


def judge(
    path: Path,
    plan: Plan,
    options: Options,
    observer: Observer,
    read: tuple[Submission, bytes] | None = None,
) -> Verdict:
    """The verdict by the plan; a mistake that parsing finds is all of it. read: the file, if it has
    been read. Raises SetupError.
    """
    described, content = read or read_submission(path)
    verdict = Verdict(described, mistake=first_mistake(path.name, content))
    if verdict.mistake is None:
        assess(
            replace(options.bot(content, path.name), repeat=plan.repeat), plan, verdict, observer
        )
    if verdict.mistake is not None:
        verdict.mistake = verdict.mistake.of_file(path.name)
    verdict.warnings[:0] = warnings_before(path, content, load_problem())
    return verdict


def profile_and_show(path: Path, cases: list[str], options: Options) -> int:
    """Profiles one call of each case on a GPU, or explains it without one; shows the reports,
    returns the exit code. Raises SetupError.
    """
    if options.format not in ("text", "json"):
        raise SetupError(f"a profile has no format {options.format}", "Use text or json.", "usage")
    check_output(options.output)
    described, content = read_submission(path)
    mistake = first_mistake(path.name, content)
    if mistake is None and not has_gpu(options.device):
        from nvfp4.cli.explain import explain_and_show

        return explain_and_show(path, cases, options)
    if mistake is None:
        with observed(new_console(stderr=not options.for_people)) as observer:
            reports = profile(options.bot(content, path.name), cases, observer)
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
    if not options.for_people:
        click.echo(text)
    else:
        for report in reports:
            click.echo(f"{report.spec}\n{report.text}\n")
    if options.output is not None:
        write_output(options.output, text)
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
