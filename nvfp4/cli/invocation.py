"""The course of a command that judges: from options to verdict and exit code."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nvfp4.cli import errors as exits
from nvfp4.cli.display.console import new_console
from nvfp4.cli.display.progress import observed
from nvfp4.cli.display.render import plain_text, show_verdict
from nvfp4.cli.errors import SetupError
from nvfp4.cli.history.judgements import keep
from nvfp4.cli.judging.assess import Observer, Plan, assess, read_submission
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.warnings import warnings_before
from nvfp4.cli.mistakes import first_mistake
from nvfp4.cli.problem import Problem, data_file, find_problem
from nvfp4.cli.verdict import Submission, Verdict
from nvfp4.records.options import Options
from nvfp4.records.processes import wait_for_turn


@dataclass(frozen=True)
class Invocation:
    """The parameters of a command that judges, with the same defaults as
    ``cli.parameters.judging_options``."""

    options: Options = field(default_factory=Options)
    seed: int | None = None
    as_json: bool = False
    output: Path | None = None
    kept: bool = False
    """Whether the verdict goes into the history."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Invocation":
        """Return the invocation that the parameters of a command describe."""
        known = {each.name for each in fields(Options)}
        chosen = {name: given.pop(name) for name in known & given.keys()}
        return cls(Options(**chosen), **given)

    def problem(self, submission: Path | None = None) -> Problem:
        """Return the problem that is meant. Raises SetupError."""
        return find_problem(self.options.problem, submission)

    def bot(self, problem: Problem, content: bytes, name: str = "submission.py") -> Bot:
        """Return the bot that runs a submission with these options. name: of the file, for
        messages."""
        named = "" if problem.is_bundled else problem.name
        flush = problem.flush if self.options.flush == "contest" else self.options.flush
        options = replace(self.options, name=name, problem=named, flush=flush, calls=problem.calls)
        return Bot(problem, content, options, self.seed)


def judge_and_show(
    path: Path,
    plan: Plan,
    invocation: Invocation,
    show: Callable[[Console, Verdict], None] = show_verdict,
    observed: Callable[[Console], AbstractContextManager[Observer]] = observed,
) -> int:
    """Judge by the plan, show the verdict, return the exit code. Raises SetupError."""
    check_output(invocation.output, [path])
    read = read_submission(path)
    console = new_console(stderr=invocation.as_json)
    with observed(console) as observer:
        verdict = judge(path, plan, invocation, observer, read)
    content = json.dumps(verdict.as_json(), indent=2, allow_nan=False)
    try:
        if invocation.as_json:
            click.echo(content)
        else:
            show(console, verdict)
        if invocation.output is not None:
            as_text = invocation.output.suffix.lower() == ".txt"
            write_output(invocation.output, plain_text(verdict) if as_text else content)
    finally:  # also if the output is closed
        if invocation.kept:
            keep(verdict, read[1])
    if verdict.interrupted:
        return exits.interrupted()
    codes = {"passed": exits.passed, "unclear": exits.unclear, "failed": exits.failed}
    return codes[verdict.outcome]


def judge(
    path: Path,
    plan: Plan,
    invocation: Invocation,
    observer: Observer,
    read: tuple[Submission, bytes] | None = None,
) -> Verdict:
    """Return the verdict by the plan; a mistake that parsing finds is all of it. read: the file, if
    it has been read. Raises SetupError.
    """
    described, content = read or read_submission(path)
    verdict = Verdict(described, mistake=first_mistake(path.name, content))
    verdict.strict, verdict.checked = invocation.options.strict, invocation.options.check
    verdict.problem, verdict.ranking_by = plan.problem.name, plan.problem.ranking_by
    verdict.problem_sha256 = plan.problem.sha256
    if verdict.mistake is None:
        options = replace(invocation.options, repeat=plan.repeat)
        bot = replace(invocation, options=options).bot(plan.problem, content, path.name)
        if not wait_for_turn(bot.prepare):
            raise SetupError("the batch that this belongs to has ended", "Start it again.")
        assess(bot, plan, verdict, observer)
    if verdict.mistake is not None:
        verdict.mistake = verdict.mistake.of_file(path.name)
    verdict.warnings[:0] = warnings_before(content, plan.problem)
    return verdict


def refuse_kept(output: Path) -> None:
    """Raise SetupError for a file that nvfp4 keeps."""
    kept = filter(os.path.exists, map(data_file, ("history.sqlite3", "problems.json")))
    if os.path.exists(output) and any(os.path.samefile(output, each) for each in kept):
        message = f"{output} is a file that nvfp4 keeps"
        raise SetupError(message, "Name another file to write to.", "usage")


def check_output(output: Path | None, submissions: Sequence[str | Path]) -> None:
    """Checks before judging that the file can be written and holds no source, and nothing that
    nvfp4 keeps."""
    if output is None:
        return
    existed, others = os.path.exists(output), filter(os.path.exists, submissions)
    is_python = ".py" in (output.suffix, Path(os.path.realpath(output)).suffix)
    refuse_kept(output)
    if existed and (is_python or any(os.path.samefile(output, each) for each in others)):
        message = f"{output} is a submission"
        raise SetupError(message, "Name another file to write to.", "usage")
    try:
        if output.is_fifo():
            raise SetupError(f"{output} is a pipe, not a file", "Name a file to write to.")
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
